# SPDX-License-Identifier: BSD-3-Clause
"""The opcodes of pickle's protocol 2 for numbers and text, and the memo."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from typing import Any

__all__ = ["BITS", "Memo", "number", "numbers", "text"]

#: The longest integer that has an opcode which torch.load() knows.
BITS = 255 * 8 - 1
_INTS = ((0, 0xFF, "<cB", b"K"), (0, 0xFFFF, "<cH", b"M"), (-(1 << 31), (1 << 31) - 1, "<ci", b"J"))


def number(value: int) -> bytes:
    """Pushes an integer of at most ``BITS`` bits."""
    for low, high, form, code in _INTS:
        if low <= value <= high:
            return struct.pack(form, code, value)
    data = pickle.encode_long(value)
    return b"\x8a" + bytes([len(data)]) + data


def numbers(values: Iterable[int]) -> bytes:
    """Pushes a tuple of integers."""
    return b"(" + b"".join(map(number, values)) + b"t"


def text(value: str) -> bytes:
    """Pushes a str."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


class Memo:
    """What was written before, and the opcodes that push it again."""

    def __init__(self) -> None:
        self._known: dict[Any, bytes] = {}
        self._kept: list[Any] = []  # so that no address among the keys is used again

    def get(self, key: Any) -> bytes | None:
        """What pushes it again; None before :meth:`put`."""
        return self._known.get(key)

    def put(self, key: Any, value: Any = None) -> bytes:
        """The opcode that notes what is on the stack.

        Args:
            key: For :meth:`get`: what nothing else has.
            value: What to keep alive: the object whose address the key is.
        """
        place = len(self._kept)
        self._kept.append(value)
        short = bytes([place]) if place < 256 else struct.pack("<I", place)
        self._known[key] = (b"h" if place < 256 else b"j") + short
        return (b"q" if place < 256 else b"r") + short

    def name(self, path: str, stage: str = "name") -> bytes:
        """Pushes a global, such as "torch.Size".

        Args:
            path: Its module and name.
            stage: Where in the pickle it stands: names of another stage may not have come yet.
        """
        known = self._known.get((stage, path))
        if known is not None:
            return known
        module, _, name = path.rpartition(".")
        return f"c{module}\n{name}\n".encode() + self.put((stage, path))
