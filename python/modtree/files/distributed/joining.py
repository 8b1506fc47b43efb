# SPDX-License-Identifier: BSD-3-Clause
"""The rules by which parts of ranks that do not say how are put together."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

__all__ = ["HOW_TO_JOIN", "Joins", "Rule", "Rules"]

#: The advice where it is not said how parts are put together; modtree.load() takes no rules.
HOW_TO_JOIN = (
    "say it, with modtree.load_file(path, join={'*.weight': 0}) or --join '*.weight=0' where that "
    "is dimension 0"
)

_MOST_BLOCKS = 1 << 20


class Rule(NamedTuple):
    """How the parts of a tensor are put together.

    Attributes:
        dim: The dimension in which they follow each other; None where all ranks have the same.
        blocks: How many tensors, one after the other in this dimension, a part is made of: each is
            put together by itself.
        rows: How many of that dimension are kept, where what follows is padding.
        is_mean: Whether the mean of all ranks counts, where they all have one.
    """

    dim: int | None
    blocks: int = 1
    rows: int | None = None
    is_mean: bool = False


class Rules(Protocol):
    """What says how the parts of a tensor are put together."""

    def rule(self, key: str) -> Rule | None:
        """The rule for a key; None where it is not said."""


class Joins:
    """Rules by patterns of keys; the first that matches counts.

    Args:
        rules: A dimension, or a dimension and a number of blocks, or None, for each pattern:
            ``{"*.q_proj.weight": 0, "*.gate_up.weight": (0, 2), "*": None}``.

    Raises:
        TypeError: They are of another kind.
        ValueError: A number is not a number of blocks.
    """

    def __init__(self, rules: Any) -> None:
        if not isinstance(rules, Mapping):
            raise TypeError(
                f"join maps patterns of keys to dimensions, such as {{'*.weight': 0}}; got "
                f"{type(rules).__name__}"
            )
        self._rules = [(pattern, _rule(pattern, value)) for pattern, value in rules.items()]

    def rule(self, key: str) -> Rule | None:
        """The rule for a key, which may also be named without the part that it is in."""
        names = (key, key.partition(".")[2])
        for pattern, rule in self._rules:
            if any(name and fnmatch.fnmatchcase(name, pattern) for name in names):
                return rule
        return None


def _rule(pattern: Any, value: Any) -> Rule:
    if not isinstance(pattern, str):
        raise TypeError(f"join maps patterns of keys to dimensions; got the pattern {pattern!r}")
    dim, blocks = value if isinstance(value, tuple) and len(value) == 2 else (value, 1)
    if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
        raise TypeError(
            f"join maps {pattern!r} to a dimension, a dimension and a number of blocks, or None; "
            f"got {value!r}"
        )
    if not isinstance(blocks, int) or not 1 <= blocks <= _MOST_BLOCKS:
        raise ValueError(f"join gives {pattern!r} {blocks!r} blocks: expected a number from 1 on")
    return Rule(dim, blocks)
