# SPDX-License-Identifier: BSD-3-Clause
"""What is done with libraries that use what a native class does not allow."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from modtree import _C


def let_pyro_make_modules(file: ModuleType) -> None:
    """Lets ``_PyroModuleMeta._New``, with which copies and pickles of a ``PyroModule[...]`` begin,
    make a module.

    pyro's own class makes an object of its own and assigns the class of a module to it, which
    CPython allows among Python classes only. Another pyro, without that class, is left alone.
    """
    meta = getattr(file, "_PyroModuleMeta", None)
    theirs = getattr(meta, "_New", None)
    if not isinstance(theirs, type) or not isinstance(getattr(file, "PyroModule", None), type):
        return

    def make(cls: type, Module: Any) -> Any:
        return _C.ModuleBase.__new__(file.PyroModule[Module])

    # Pickles name the class.
    names = {key: vars(theirs)[key] for key in ("__module__", "__doc__")}
    names["__qualname__"] = theirs.__qualname__
    meta._New = type(theirs.__name__, (), {**names, "__new__": make})  # type: ignore[union-attr]
