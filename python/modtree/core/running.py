# SPDX-License-Identifier: BSD-3-Clause
"""Which modules are running, for errors that name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from modtree._C import ModuleBase


def path_of_call(frame: FrameType | None) -> str:
    """``"encoder.0: "``: the path of the module in whose ``forward`` a frame runs, from the
    outermost module that is called; nothing outside of modules.
    """
    called = list(modules_of_call(frame))
    if not called:
        return ""
    inner, root = called[0], called[-1]
    paths: Iterable[tuple[str, Any]] = root.named_modules()
    path = next((path for path, module in paths if module is inner), "")
    return f"{path or type(inner).__name__}: "


def modules_of_call(frame: FrameType | None) -> Iterator[Any]:
    """The modules whose methods are running, from the innermost on."""
    while frame is not None:
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(owner, ModuleBase):
            yield owner
        frame = frame.f_back
