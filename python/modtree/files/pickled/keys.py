# SPDX-License-Identifier: BSD-3-Clause
"""What may be a key of a dict or a member of a set in a file from anywhere (hashing it has to end,
and soon), or a length.
"""

from __future__ import annotations

from pickle import UnpicklingError
from typing import Any

#: CPython hashes nested tuples by recursion, without a check of the depth.
_PARTS = 256
_BITS = 4096
#: So many different keys may have one hash; with more, a dict takes quadratic time. Hashes of text
#: and bytes cannot be foreseen.
_OF_ONE_HASH = 256
_SMALL = (1 << 61) - 1  # below it the hash of an integer is the integer itself
_PLAIN = frozenset((str, bytes, float, bool, type(None)))


class Keys:
    """Remembers the keys of one file."""

    def __init__(self) -> None:
        self._first: dict[int, Any] = {}  # by hash
        self._others: dict[int, set[Any]] = {}

    def check(self, key: Any) -> None:
        """Refuses a key that takes long, or deep recursion, to hash, and too many that differ but
        have one hash.
        """
        kind = type(key)
        if kind in _PLAIN or (kind is int and -_SMALL < key < _SMALL):
            return
        _check_parts(key)
        value = hash(key)
        first = self._first.setdefault(value, key)
        if first is not key and first != key:
            others = self._others.setdefault(value, set())
            others.add(key)
            if len(others) > _OF_ONE_HASH:
                raise UnpicklingError("the file has too many keys with one hash")


def _check_parts(key: Any) -> None:
    parts, pending = 0, [key]
    while pending:
        part = pending.pop()
        parts += 1
        if isinstance(part, (tuple, frozenset)):
            if len(part) > _PARTS:
                parts += len(part)
            else:
                pending.extend(part)
        elif type(part) is int and part.bit_length() > _BITS:
            raise UnpicklingError("the file has a key with too many digits")
        if parts > _PARTS:
            raise UnpicklingError("the file has a key with too many parts")


def length_of(count: int) -> int:
    """The length that a file announces."""
    if count < 0:
        raise UnpicklingError("the file is damaged: a negative length")
    return count
