# SPDX-License-Identifier: BSD-3-Clause
"""The opcodes of pickle's protocol 2 for numbers, text and tensors, and the memo."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from typing import Any

from modtree.files.torch.shared_memory import Piece, Storage, storages_of
from modtree.files.torch.storages import STORAGES

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


# -- tensors: they are made when all of the object was seen ----------------------------------------

_STORAGE_OF = {kind.dtype: name for name, kind in STORAGES.items()}


class LateTensor:
    """Stands where the opcodes of a tensor will be.

    Attributes:
        piece: The tensor.
        requires_grad: Its flag.
        is_meta: Whether it has no values.
        as_call: Whether they call what makes it, or push that function, the class and the
            arguments.
    """

    __slots__ = ("as_call", "is_meta", "piece", "requires_grad")

    def __init__(self, piece: Piece, requires_grad: bool, is_meta: bool, as_call: bool) -> None:
        self.piece = piece
        self.requires_grad = requires_grad
        self.is_meta = is_meta
        self.as_call = as_call


def finished(parts: list[Any], memo: Memo) -> tuple[bytes, list[Storage]]:
    """A pickle, and the storages that its tensors need, in the order of their keys.

    Args:
        parts: Opcodes, and tensors that wait for theirs.
        memo: The pickle's.

    Raises:
        ValueError: Tensors share memory in a way that no file can say.
    """
    waiting = [part for part in parts if type(part) is LateTensor]
    storages_of([part.piece for part in waiting if not part.is_meta])
    writer = _Writer(memo)
    whole = [writer.tensor(part) if type(part) is LateTensor else part for part in parts]
    return b"".join(whole), writer.storages


class _Writer:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self.storages: list[Storage] = []

    def _name(self, path: str) -> bytes:
        return self._memo.name(path, "late")

    def tensor(self, late: LateTensor) -> bytes:
        name, arguments = self._meta(late) if late.is_meta else self._with_storage(late)
        if late.as_call:
            return self._name(name) + arguments + b"R"
        return self._name(name) + self._name("torch.Tensor") + arguments

    def _meta(self, late: LateTensor) -> tuple[str, bytes]:
        piece = late.piece
        arguments = b"(" + self._name(f"torch.{piece.dtype}")
        arguments += numbers(piece.size) + numbers(piece.stride) + _flag(late.requires_grad) + b"t"
        return "torch._utils._rebuild_meta_tensor_no_storage", arguments

    def _with_storage(self, late: LateTensor) -> tuple[str, bytes]:
        piece = late.piece
        arguments = b"(" + self._storage(piece) + number(piece.offset)
        arguments += numbers(piece.size) + numbers(piece.stride) + _flag(late.requires_grad)
        arguments += self._name("collections.OrderedDict") + b")R"  # of its hooks: none
        if piece.storage.dtype in _STORAGE_OF:
            return "torch._utils._rebuild_tensor_v2", arguments + b"t"
        arguments += self._name(f"torch.{piece.dtype}") + b"t"
        return "torch._utils._rebuild_tensor_v3", arguments

    def _storage(self, piece: Piece) -> bytes:
        """The persistent id of a storage; of bytes where its tensors have several dtypes, or one
        that has no storage of its own.
        """
        storage = piece.storage
        if not storage.key:
            storage.key = str(len(self.storages))
            self.storages.append(storage)
        typed = _STORAGE_OF.get(storage.dtype or "")
        kind = self._name(f"torch.{typed}" if typed else "torch.storage.UntypedStorage")
        count = storage.nbytes // (piece.itemsize if typed else 1)
        place = text(storage.key) + text(storage.location)
        return b"(" + text("storage") + kind + place + number(count) + b"tQ"


def _flag(value: bool) -> bytes:
    return b"\x88" if value else b"\x89"
