# SPDX-License-Identifier: BSD-3-Clause
"""Helpers that programs import from torch's files of layers: numbers as tuples, indented text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from modtree import _imports
from modtree._C import as_tuple
from modtree.core import module

__all__ = ["global_table"]


def global_table(name: str) -> Any:
    """What ``nn.modules.module`` answers for a name that it does not hold: the tables of hooks of
    all modules, one of which is bound anew when a hook is registered.
    """
    if name.startswith("_global_"):
        return getattr(module, name)
    raise _imports.absent(sys.modules["modtree.nn.modules.module"], name, sys._getframe(1))


def _addindent(s_: str, numSpaces: int) -> str:
    """The text with all lines but the first moved to the right."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives ``n`` times what it gets, or the tuple of an iterable."""

    def parse(x: Any) -> tuple[Any, ...]:
        return as_tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = parse.__qualname__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """The elements from the last to the first, each ``n`` times: the order of ``pad``."""
    return tuple(chain.from_iterable(repeat(x, n) for x in reversed(t)))


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> Any:
    """A size whose None are the last of the defaults; a number stays a number."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    last = defaults[-len(out_size) :]
    return [d if size is None else size for size, d in zip(out_size, last, strict=True)]
