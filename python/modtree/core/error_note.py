# SPDX-License-Identifier: BSD-3-Clause
"""What the notes of exceptions say of a call (csrc/core/module/error_note.h)."""

from __future__ import annotations

from typing import Any

from modtree import _C
from modtree.core.families import family_of

_MOST_ARGUMENTS = 8
_MOST_ITEMS = 4
_DEEPEST = 3
_LONGEST = 60


def describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
    """``", called with (2, 4) float32, mask=None"``."""
    parts = [_text(arg) for arg in args[:_MOST_ARGUMENTS]]
    named = list((kwargs or {}).items())[: _MOST_ARGUMENTS - len(parts)]
    parts += [f"{name}={_text(arg)}" for name, arg in named]
    left = len(args) + len(kwargs or {}) - len(parts)
    if left:
        parts.append(f"{left} more")
    return f", called with {', '.join(parts) or 'no arguments'}"


def describe_hook(module: Any) -> str:
    """``"(in_features=4, out_features=3, bias=True), in a backward hook"``."""
    return f"({_short(module.extra_repr())}), in a backward hook"


def _text(value: Any, depth: int = 0) -> str:
    family = family_of(value)
    if family is not None:
        return f"{tuple(family.shape(value))} {family.dtype_name(value)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return _short(repr(value))
    if type(value) in (list, tuple, dict) and depth < _DEEPEST:
        return _items_text(value, depth + 1)
    return type(value).__qualname__


def _items_text(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        parts = [f"{key!r}: {_text(value[key], depth)}" for key in list(value)[:_MOST_ITEMS]]
        opening, closing = "{}"
    else:
        parts = [_text(item, depth) for item in value[:_MOST_ITEMS]]
        opening, closing = "[]" if isinstance(value, list) else "()"
    if len(value) > _MOST_ITEMS:
        parts.append(f"{len(value) - _MOST_ITEMS} more")
    return opening + ", ".join(parts) + closing


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


_C._install(describe_arguments=describe_arguments, describe_hook=describe_hook)
