# SPDX-License-Identifier: BSD-3-Clause
"""Views that take the place of the tensor they are made of: ``t.unsqueeze_(0)``, ``t.t_()``."""

from __future__ import annotations

from typing import Any

from modtree import _C
from modtree.numpy.ops.registry import export, functions
from modtree.numpy.ops.signatures import like


def become(tensor: Any, view: Any) -> Any:
    """Turns ``tensor`` into ``view(tensor)`` in place; gradients go back through the view to what
    the tensor was.
    """
    _C.check_inplace(tensor)
    if tensor._base is not None:
        _C.swap_contents(tensor, view(tensor))
    elif tensor.grad_fn is None or not _C.is_grad_enabled():
        tensor.data = view(tensor.detach())
    else:
        # Another handle with the same history: the view's base must not be the view itself.
        before = _C.with_history(tensor.detach(), tensor.grad_fn, tensor.output_nr)
        _C.swap_contents(tensor, view(before))
    return tensor


def _inplace(name: str) -> Any:
    view = functions[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return become(self, lambda tensor: view(tensor, *args, **kwargs))

    method.__name__ = method.__qualname__ = name + "_"
    method.__doc__ = f"{name}() in place: the tensor itself gets the other shape."
    return like(method, view)


for _name in ("squeeze", "unsqueeze", "t", "transpose", "swapaxes", "as_strided"):
    export(_name + "_", _inplace(_name), function=False)
