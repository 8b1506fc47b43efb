# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of torch that programs import although they are private: flat tensors, and what pickles
of classes derived from torch's go through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from modtree.numpy.ops.functions import cat
from modtree.numpy.tensor.parameter import Parameter
from modtree.numpy.tensor.tensor import Tensor


def _get_obj_state(obj: Any) -> Any:
    """The attributes of an object, and those in its slots, as ``copyreg`` wants them."""
    own_state = getattr(obj, "__getstate__", None)
    if own_state is not None and getattr(type(obj), "__getstate__", None) is not getattr(
        object, "__getstate__", None
    ):
        return own_state()
    state = obj.__dict__
    names = [
        name
        for cls in type(obj).__mro__
        for name in _slots_of(cls)
        if name not in ("__dict__", "__weakref__") and hasattr(obj, name)
    ]
    return (state, {name: getattr(obj, name) for name in names}) if names else state


def _slots_of(cls: type) -> list[str]:
    slots = vars(cls).get("__slots__", ())
    return [slots] if isinstance(slots, str) else list(slots)


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Sets what :func:`_get_obj_state` gave."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    obj.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter, where its pickle comes back; hooks are never in one."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Any, requires_grad: bool, backward_hooks: Any, state: Any
) -> Any:
    """The same with attributes.

    Args:
        data: The tensor.
        requires_grad: The flag.
        backward_hooks: Empty.
        state: The attributes.
    """
    return _set_obj_state(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """The elements of all tensors in one of a single axis."""
    return cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of the parts of ``flat``, in the shapes of ``tensors``."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view_as(like) for part, like in zip(parts, tensors, strict=True))
