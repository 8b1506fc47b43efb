# SPDX-License-Identifier: BSD-3-Clause
"""Seeing a model: what is in its tree, as data, and what is made of that."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for checkers to which an import elsewhere does not say that these are here
    from modtree.inspection import check, comparison, drawing, summary  # noqa: F401

#: Imported when they are first named: by ``functions`` and by the evaluation of its annotations.
_LATER = {"check", "comparison", "drawing", "summary"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
