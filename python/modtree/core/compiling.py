# SPDX-License-Identifier: BSD-3-Clause
"""``compile`` of functions and of modules."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

from modtree.core.families import family_of


def compile(  # noqa: A001
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """The function or module itself, without compiling it. Usable as a decorator; options are those
    of torch's and change nothing.

    Args:
        model: The function or module; None when used as a decorator with arguments.
        fullgraph: Accepted, like all that follow.
        dynamic: Accepted.
        backend: Accepted.
        mode: Accepted; not together with ``options``.
        options: Accepted; not together with ``mode``.
        name: Accepted.
        disable: Accepted.
        recompile_limit: Accepted.
        isolate_recompiles: Accepted.
        shapes_spec: Accepted.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    return (lambda function: function) if model is None else model


def compile_module(self: Any, *args: Any, **kwargs: Any) -> None:
    """Puts a compiled form of the call in the place of this module's call; the arguments are those
    of ``torch.compile``.

    With torch tensors as leaves that is ``torch.compile`` (of each ``forward`` in the tree, since
    it does not see through native calls); with others it is :func:`modtree.compile`, which changes
    nothing.
    """
    call = self._call_impl
    compiler = compile
    if _has_torch_leaves(self):
        compiler = sys.modules["torch"].compile
        if not isinstance(call, (types.FunctionType, types.MethodType)):
            call = types.MethodType(_call_impl_of, self)  # torch.compile takes no native methods
    self._compiled_call_impl = compiler(call, *args, **kwargs)


def _has_torch_leaves(module: Any) -> bool:
    families = map(family_of, itertools.chain(module.parameters(), module.buffers()))
    return "torch" in sys.modules and any(family.name == "torch" for family in families if family)


def _call_impl_of(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._call_impl(*args, **kwargs)
