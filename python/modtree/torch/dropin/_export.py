# SPDX-License-Identifier: BSD-3-Clause
"""What torch.export needs where it makes objects of its own into modules."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from modtree import _C


def give_proxies_the_layout_of_modules(file: ModuleType) -> None:
    """For ``torch.fx.experimental.proxy_tensor``: it stands proxies in for shared submodules and
    gives each the class of its module, which CPython allows only for objects of the same layout.
    """
    plain = getattr(file, "_AttrProxy", None)
    if isinstance(plain, type) and plain.__bases__ == (object,):
        kept = {k: v for k, v in vars(plain).items() if k not in ("__dict__", "__weakref__")}
        file._AttrProxy = type(plain.__name__, (_C.ModuleBase,), kept)  # type: ignore[attr-defined]
    tracer = getattr(file, "_ModuleStackTracer", None)
    init = vars(tracer).get("__init__") if isinstance(tracer, type) else None
    if plain is None and isinstance(init, FunctionType):
        tracer.__init__ = _with_bases(init)  # type: ignore[misc]


def _with_bases(function: FunctionType) -> Callable[..., Any]:
    """A function that makes a class ``AttrProxy`` of no base (before torch 2.5): with one."""

    def build_class(body: Any, name: str, *bases: Any, **kwargs: Any) -> Any:
        if name == "AttrProxy" and not bases:
            bases = (_C.ModuleBase,)
        return builtins.__build_class__(body, name, *bases, **kwargs)

    # A function looks up what builds its classes where it was made, in its globals' builtins.
    own = function.__globals__
    kept = own.get("__builtins__", builtins)
    own["__builtins__"] = {**vars(builtins), "__build_class__": build_class}
    try:
        made = FunctionType(
            function.__code__, own, function.__name__, function.__defaults__, function.__closure__
        )
    finally:
        own["__builtins__"] = kept
    return functools.wraps(function)(made)
