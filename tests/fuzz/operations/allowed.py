# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: each entry names its row of docs/compat.md by the beginning of the row's first
column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Allowed(NamedTuple):
    row: str
    applies: Callable[[Any], bool]  # to a Failure


ALLOWED: list[Allowed] = []


class Avoided(NamedTuple):
    """Lines that stop the process in torch."""

    names: tuple[str, ...]
    row: str
    applies: Callable[[Any], bool]  # to a Line


def has_no_rows(line: Any) -> bool:
    return any(t.array.size == 0 for t in line.tensors)


AVOIDED: list[Avoided] = [
    Avoided(("pdist", "F.pdist"), "gradient of `pdist` of no rows", has_no_rows),
]


def is_avoided(line: Any) -> bool:
    name = line.operation.name
    return any(name in entry.names and entry.applies(line) for entry in AVOIDED)


def allowed_by(failure: Any) -> str | None:
    """The row that allows it."""
    return next((entry.row for entry in ALLOWED if entry.applies(failure)), None)
