# SPDX-License-Identifier: BSD-3-Clause
"""Nested dicts, lists and tuples as a flat list of leaves and a structure."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_DICTS = (dict, OrderedDict, defaultdict)


@dataclass(frozen=True)
class Structure:
    """What is around the leaves; equal structures hold equally many leaves in the same places."""

    kind: Any = None  # the class of a container; None for a leaf
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        if self.kind in _DICTS:
            inner = zip(self.keys, self.parts, strict=True)
            return "{" + ", ".join(f"{k!r}: {p!r}" for k, p in inner) + "}"
        return f"{self.kind.__name__}({', '.join(map(repr, self.parts))})"


_LEAF = Structure()


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


def _contents(tree: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    """(keys, values) of a container; None for a leaf."""
    kind = type(tree)
    if kind in _DICTS:
        return tuple(tree), list(tree.values())
    if kind in (list, tuple) or _is_named_tuple(kind):
        return (), list(tree)
    return None


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves from left to right, and what :func:`unflatten` puts around them again."""
    found = _contents(tree)
    if found is None:
        return [tree], _LEAF
    flat: list[Any] = []
    parts = []
    for value in found[1]:
        inner, part = flatten(value)
        flat += inner
        parts.append(part)
    return flat, Structure(type(tree), found[0], tuple(parts))


def unflatten(values: Any, structure: Structure) -> Any:
    """The structure with these leaves."""
    return _take(iter(values), structure)


def _take(values: Iterator[Any], structure: Structure) -> Any:
    if structure.kind is None:
        return next(values)
    parts = [_take(values, part) for part in structure.parts]
    if structure.kind in _DICTS:
        pairs = zip(structure.keys, parts, strict=True)
        return OrderedDict(pairs) if structure.kind is OrderedDict else dict(pairs)
    return structure.kind(*parts) if _is_named_tuple(structure.kind) else structure.kind(parts)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``function(leaf)`` in place of each leaf."""
    flat, structure = flatten(tree)
    return unflatten([function(leaf) for leaf in flat], structure)
