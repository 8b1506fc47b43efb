# SPDX-License-Identifier: BSD-3-Clause
"""The files of torch.save(): a zip archive with a pickle in it, and one record for the memory of
each storage.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

import numpy as np

from modtree import _C
from modtree._module.parameter import Parameter
from modtree._ops.strided import reach, strided_view
from modtree._serialization.names import check_bools, check_sizes, make_device, safe_unpickler
from modtree._serialization.unpickle import UnpicklingError
from modtree._tensor.tensor import Size, Tensor

__all__ = ["load_archive"]

_LOCAL_HEADER = 30


class _Storage:
    """A name such as torch.FloatStorage: which numbers a record holds."""

    def __init__(self, name: str, dtype: Any) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)


class _Memory(np.ndarray):
    """The numbers of a storage: only tensors are made of it. ``copies_left`` bounds the tensors
    that cannot be views.
    """

    copies_left: int
    is_swapped: bool


_STORAGES = {
    name: _Storage(name, dtype)
    for name, dtype in {
        "BFloat16Storage": np.uint16,
        "BoolStorage": np.bool_,
        "ByteStorage": np.uint8,
        "CharStorage": np.int8,
        "ComplexDoubleStorage": np.complex128,
        "ComplexFloatStorage": np.complex64,
        "DoubleStorage": np.float64,
        "FloatStorage": np.float32,
        "HalfStorage": np.float16,
        "IntStorage": np.int32,
        "LongStorage": np.int64,
        "ShortStorage": np.int16,
    }.items()
}
_BYTES = _Storage("UntypedStorage", np.uint8)


# -- what the pickle calls -------------------------------------------------------------------------


def _tensor_of(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    metadata: Any = None,
) -> Any:
    if type(storage) is not _Memory:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    if type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: requires_grad is no bool")
    check_sizes(size, storage.itemsize)
    numbers = (offset, *stride) if type(stride) is tuple else (None,)
    if len(numbers) != len(size) + 1 or not all(type(n) is int for n in numbers):
        raise UnpicklingError("the file is damaged: the strides of a tensor")
    if min(numbers) < 0 or offset + reach(size, stride) > storage.size:
        raise UnpicklingError(
            f"a tensor of size {tuple(size)} and strides {tuple(stride)} at {offset} does not "
            f"fit the {storage.size} values it is to be made of"
        )
    # Where there is at most one step, its length means nothing, but NumPy computes with it.
    steps = [
        s * storage.itemsize if n > 1 and 0 not in size else 0
        for n, s in zip(size, stride, strict=True)
    ]
    flat = storage.view(np.ndarray)[offset:]
    view = strided_view(flat, size, steps)
    return _C.from_array(_resolved(view, metadata, storage), requires_grad)


def _tensor_of_bytes(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    dtype: Any = None,
    metadata: Any = None,
) -> Any:
    """Of a storage of bytes, for dtypes that have no storage of their own."""
    if type(storage) is not _Memory or storage.dtype != np.uint8:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    if type(dtype) is not _C.dtype:
        raise UnpicklingError("the file is damaged: a tensor without a dtype")
    try:
        kind = dtype.dtype
    except TypeError as error:
        raise UnpicklingError(f"the file contains numbers of {dtype.name}: {error}") from None
    if kind.kind == "b":
        check_bools(storage.view(np.ndarray).data)
    if kind.itemsize > 1 and storage.is_swapped:
        raise UnpicklingError(f"the file has numbers of {dtype} in another byte order")
    typed: Any = storage[: storage.size // kind.itemsize * kind.itemsize].view(kind)
    typed.copies_left = storage.copies_left
    return _tensor_of(typed, offset, size, stride, requires_grad, _hooks, metadata)


def _resolved(view: np.ndarray, metadata: Any, storage: _Memory) -> np.ndarray:
    """Carries out what torch only notes: that a tensor is to be read conjugated, or negated."""
    wanted = metadata if type(metadata) is dict else {}
    if not (wanted.get("conj") is True or wanted.get("neg") is True):
        return view
    storage.copies_left -= view.size
    if storage.copies_left < 0:
        raise UnpicklingError("the file has too many conjugated tensors of one storage")
    view = view.conj() if wanted.get("conj") is True else view
    return np.negative(view) if wanted.get("neg") is True else view


def _parameter_of(data: Any, requires_grad: Any, _hooks: Any = None) -> Any:
    if type(data) is not Tensor or type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: a parameter that is not made of a tensor")
    return Parameter(data, requires_grad)


_MAKERS = {make: make for make in (_tensor_of, _tensor_of_bytes, _parameter_of, make_device)}
_NAMES: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor_of,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_bytes,
    ("torch.storage", "UntypedStorage"): _BYTES,
    ("torch._utils", "_rebuild_parameter"): _parameter_of,
    ("torch", "Size"): Size,
    ("torch", "device"): make_device,
    **{("torch", name): storage for name, storage in _STORAGES.items()},
    **{("torch", name): dtype for name, dtype in _C._dtypes.items()},
    **{("torch", name): dtype for name, dtype in _C._stored_dtypes.items()},
}


class _TrustingUnpickler(pickle.Unpickler):
    """For weights_only=False: torch's names become ours, and every other name is imported."""

    def __init__(self, file: Any, archive: _Archive, options: Any) -> None:
        super().__init__(file, **options)
        self._archive = archive

    def find_class(self, module: str, name: str) -> Any:
        known = _NAMES.get((module, name))
        return super().find_class(module, name) if known is None else known

    def persistent_load(self, pid: Any) -> Any:
        return self._archive.storage(pid)


# -- the archive -----------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or parts[0] == "" or parts[0].endswith(":") or "\0" in name:
        raise UnpicklingError(f"the archive has an entry named {name!r:.80}, which leads out of it")


class _Archive:
    """The records of an archive, after its directory was checked: read one by one, they are not
    larger than the file.
    """

    def __init__(self, archive: Any) -> None:
        self._archive = archive
        self._entries: dict[str, Any] = {}
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        for entry in entries:
            _check_name(entry.orig_filename)
            if entry.filename in self._entries:
                raise UnpicklingError(f"the archive has two entries named {entry.filename!r:.80}")
            self._entries[entry.filename] = entry
        self._check_places(entries)
        pickles = [name for name in self._entries if name.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            raise UnpicklingError(
                "the file is a zip archive, but not one that torch.save() wrote: it has no entry "
                "data.pkl"
                if not pickles
                else "the file is a zip archive, but not one that torch.save() wrote: it has "
                "several entries data.pkl"
            )
        self._folder = pickles[0].rpartition("data.pkl")[0]
        self.pickled = self._read("data.pkl")
        self._swapped = self._byte_order() != sys.byteorder
        self._storages: dict[str, tuple[Any, int, Any]] = {}

    def _check_places(self, entries: list[Any]) -> None:
        ends = [entry.header_offset for entry in entries[1:]] + [self._archive.start_dir]
        for entry, end in zip(entries, ends, strict=True):
            name = entry.filename
            if entry.compress_type or entry.compress_size != entry.file_size:
                raise UnpicklingError(
                    f"the entry {name!r:.80} of the archive is compressed; torch.save() writes "
                    f"entries as they are"
                )
            if entry.flag_bits & 1:
                raise UnpicklingError(f"the entry {name!r:.80} of the archive is encrypted")
            if (
                entry.header_offset < 0
                or entry.header_offset + _LOCAL_HEADER + entry.file_size > end
            ):
                raise UnpicklingError(f"the entry {name!r:.80} of the archive overlaps another one")

    def _read(self, name: str) -> bytes:
        entry = self._entries.get(self._folder + name)
        if entry is None:
            raise UnpicklingError(f"the archive has no entry {self._folder + name!r:.80}")
        try:
            data = self._archive.read(entry)
        except MemoryError:
            raise
        except Exception as error:  # of many kinds: a bad checksum, another name, no more bytes
            raise _damaged(error) from error
        if len(data) != entry.file_size:
            raise UnpicklingError("the file is truncated")
        return data

    def _byte_order(self) -> str:
        if self._folder + "byteorder" not in self._entries:
            return "little"
        order = self._read("byteorder")
        if order not in (b"little", b"big"):
            raise UnpicklingError(f"the archive names the byte order {order!r:.80}")
        return order.decode()

    def storage(self, pid: Any) -> Any:
        """The numbers behind the persistent id of a storage."""
        if type(pid) is not tuple or len(pid) != 5 or pid[0] != "storage":
            raise UnpicklingError("the file is damaged: the id of a storage")
        _, kind, key, _, count = pid
        if type(kind) is not _Storage or type(key) is not str or type(count) is not int:
            raise UnpicklingError("the file is damaged: the id of a storage")
        known = self._storages.get(key)
        if known is None:
            known = self._storages[key] = (kind, count, self._memory(kind, key, count))
        if known[0] is not kind or known[1] != count:
            raise UnpicklingError(f"the file is damaged: the storage {key!r:.80} is of two kinds")
        return known[2]

    def _memory(self, kind: _Storage, key: str, count: int) -> Any:
        data = bytearray(self._read(f"data/{key}"))
        if count * kind.dtype.itemsize != len(data):
            raise UnpicklingError(
                f"the storage {key!r:.80} is to have {count} values of {kind.dtype}, but its "
                f"entry has {len(data)} bytes"
            )
        if kind.dtype.kind == "b":
            check_bools(data)
        numbers = np.frombuffer(data, kind.dtype)
        if self._swapped:
            numbers = numbers.byteswap()
        if kind.name == "BFloat16Storage":
            numbers = _bfloat16(numbers)
        memory = numbers.view(_Memory)
        memory.copies_left = 8 * count
        memory.is_swapped = self._swapped
        return memory


def _bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Of numbers that are the upper halves of float32 numbers; as float32 where the package that
    has the dtype is not installed.
    """
    try:
        return numbers.view(_C._stored_dtypes["bfloat16"].dtype)
    except TypeError:
        return (numbers.astype(np.uint32) << 16).view(np.float32)


def load_archive(file: Any, everything: bool, options: Any) -> Any:
    """Reads a file of torch.save().

    Raises:
        UnpicklingError: The archive is damaged, or its pickle contains what is not allowed.
    """
    import zipfile  # takes a while, and few programs need it

    try:
        archive = _Archive(zipfile.ZipFile(file))
    except (UnpicklingError, MemoryError):
        raise
    except Exception as error:
        raise _damaged(error) from error
    stream = io.BytesIO(archive.pickled)
    if everything:
        return _TrustingUnpickler(stream, archive, options).load()
    return safe_unpickler(stream, options, _NAMES, _MAKERS, archive.storage).load()


def _damaged(error: Exception) -> UnpicklingError:
    return UnpicklingError(f"the archive is damaged: {type(error).__name__}: {error}")
