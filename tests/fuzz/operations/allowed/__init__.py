# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: each entry names its row of docs/compat.md by the beginning of the row's first
column. Entries are in files by what they are about.
"""

from __future__ import annotations

from typing import Any

from . import errors, indexing, layers, linear_algebra, losses, pointwise, reductions, rounding
from .avoided import AVOIDED, is_avoided
from .failures import Allowed

__all__ = ["ALLOWED", "AVOIDED", "allowed_by", "is_avoided"]

_FILES = (pointwise, reductions, indexing, linear_algebra, losses, layers, rounding, errors)
ALLOWED: list[Allowed] = [entry for file in _FILES for entry in file.ALLOWED]


def allowed_by(failure: Any) -> str | None:
    """The row that allows it."""
    return next((entry.row for entry in ALLOWED if entry.applies(failure)), None)
