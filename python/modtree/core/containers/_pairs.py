# SPDX-License-Identifier: BSD-3-Clause
"""Reading key/value pairs with errors that say which pair is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from modtree._C import as_tuple


def pairs(owner: str, source: Any) -> Iterator[tuple[Any, Any]]:
    """The pairs of ``source``, checked one by one as they are used.

    Raises:
        TypeError: ``source`` (at once) or an element is not iterable.
        ValueError: an element does not hold two things.
    """
    if not isinstance(source, Iterable):
        raise TypeError(
            f"{owner}.update should be called with an iterable of key/value pairs, "
            f"but got {type(source).__name__}"
        )
    return _checked(owner, source)


def _checked(owner: str, source: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for j, element in enumerate(source):
        if not isinstance(element, Iterable):
            raise TypeError(
                f"{owner} update sequence element #{j} should be Iterable; "
                f"is{type(element).__name__}"
            )
        pair = as_tuple(element)
        if len(pair) != 2:
            raise ValueError(
                f"{owner} update sequence element #{j} has length {len(pair)}; 2 is required"
            )
        yield pair[0], pair[1]
