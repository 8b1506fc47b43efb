# SPDX-License-Identifier: BSD-3-Clause
"""Files that torch.load() reads, written without torch: their pickle has opcodes of protocol 2 for
what it reads with weights_only=True, and nothing else.
"""

from __future__ import annotations

import collections
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree.core.families import family_of, is_lazy
from modtree.core.state_dict import StateDict
from modtree.files.checkpoint.base import bytes_of
from modtree.files.checkpoint.dtypes import DTYPES, array_dtype
from modtree.files.torch.archive import ArchiveWriter
from modtree.files.torch.opcodes import BITS, LateTensor, Memo, finished, number, text
from modtree.files.torch.records import DeviceRecord, SizeRecord, TensorRecord
from modtree.files.torch.shared_memory import (
    Piece,
    Storage,
    empty_piece,
    piece_of_array,
    piece_of_source,
    piece_of_torch,
)
from modtree.files.torch.sources import Source

_BEHIND_ALL_MEMORY = 1 << 64
_ALIGNMENT = 64
_HINT = (
    "torch.load(weights_only=True) reads tensors, numbers, text, None, and lists, tuples, dicts "
    "and sets of them"
)


class TorchPickler:
    """Writes one object. ``storages`` are then what its tensors need, in their order."""

    def __init__(self) -> None:
        self._parts: list[Any] = [b"\x80\x02"]
        self._memo = Memo()
        self._open: set[int] = set()  # tuples that are being written
        self._path: list[str] = ["obj"]
        self._moved: dict[Any, Any] = {}
        self._late: dict[int, int] = {}  # what stands for addresses of values that are not read yet
        self._next_address = _BEHIND_ALL_MEMORY
        self.storages: list[Storage] = []
        # Classes of the NumPy side; there are none of their objects before they exist.
        sizes, devices = _classes("size", "Size"), _classes("devices", "device")
        self._writers = {
            **_WRITERS,
            **dict.fromkeys(sizes, TorchPickler._size),
            **dict.fromkeys(devices, TorchPickler._device),
        }
        self._tensors = _classes("tensor", "Tensor")
        self._parameters = _classes("parameter", "Parameter")

    def dump(self, obj: Any) -> bytes:
        """The pickle.

        Raises:
            TypeError: Something in the object cannot be said in this form; its place is named.
            ValueError: A number or the way in which tensors share memory cannot.
            RecursionError: Containers are nested too deeply.
        """
        try:
            self._save(obj)
        except RecursionError:
            raise RecursionError(
                f"{self._place(8)}... is nested too deeply to be written"
            ) from None
        self._parts.append(b".")
        pickled, self.storages = finished(self._parts, self._memo)
        return pickled

    # -- places ------------------------------------------------------------------------------------

    def _place(self, parts: int | None = None) -> str:
        return "".join(self._path[:parts])

    def _part(self, name: str, value: Any) -> None:
        self._path.append(name)
        self._save(value)
        self._path.pop()

    def _wrong(self, what: str, try_: str = _HINT) -> TypeError:
        return TypeError(f"{self._place()} is {what}, which a file of torch cannot hold: {try_}")

    def _not_read(self, what: str, try_: str) -> TypeError:
        return TypeError(f"{self._place()} is {what}, which modtree.load() does not read: {try_}")

    # -- values ------------------------------------------------------------------------------------

    def _call(self, name: str, *arguments: Any) -> None:
        self._parts.append(self._memo.name(name) + b"(")
        for argument in arguments:
            self._save(argument)
        self._parts.append(b"tR")

    def _save(self, value: Any) -> None:
        writer = self._writers.get(type(value))
        if writer is not None:
            writer(self, value)
            return
        known = self._memo.get(id(value))
        if known is not None:
            self._parts.append(known)
            return
        kind = type(value)
        writer = _CONTAINERS.get(kind)
        if writer is not None:
            writer(self, value)
        elif kind in self._tensors or kind in self._parameters:
            self._own_tensor(value)
        elif isinstance(value, np.generic):
            self._numpy_scalar(value)
        elif isinstance(value, np.ndarray):
            self._array(value)
        else:
            self._other(value)

    def _int(self, value: int) -> None:
        if value.bit_length() > BITS:
            raise ValueError(
                f"{self._place()} is a number of {value.bit_length()} bits; a file of torch holds "
                f"at most {BITS}"
            )
        self._parts.append(number(value))

    def _text(self, value: str) -> None:
        known = self._memo.get(("text", value))
        if known is None:
            known = text(value) + self._memo.put(("text", value))
        self._parts.append(known)

    def _bytes(self, value: bytes) -> None:
        """As protocols before 3 write them."""
        arguments = text(value.decode("latin1")) + text("latin1") + b"\x86"
        self._parts.append(self._memo.name("_codecs.encode") + arguments + b"R")

    def _complex(self, value: complex) -> None:
        self._call("builtins.complex", value.real, value.imag)

    def _numpy_scalar(self, value: np.generic) -> None:
        plain = value.item()
        if isinstance(value, np.void) or type(plain) not in _WRITERS:
            raise self._wrong(f"a NumPy value of dtype {value.dtype}")
        _WRITERS[type(plain)](self, plain)

    # -- containers --------------------------------------------------------------------------------

    def _list(self, value: list[Any]) -> None:
        self._parts.append(b"]" + self._memo.put(id(value), value))
        if value:
            self._parts.append(b"(")
            for i, item in enumerate(value):
                self._part(f"[{i}]", item)
            self._parts.append(b"e")

    def _tuple(self, value: tuple[Any, ...]) -> None:
        if not value:
            self._parts.append(b")")
            return
        if id(value) in self._open:
            raise ValueError(f"{self._place()} is a tuple that contains itself")
        self._open.add(id(value))
        self._parts.append(b"(")
        for i, item in enumerate(value):
            self._part(f"[{i}]", item)
        self._open.discard(id(value))
        self._parts.append(b"t" + self._memo.put(id(value), value))

    def _items(self, items: Any) -> None:
        self._parts.append(b"(")
        for key, item in items:
            self._part("'s keys", key)
            self._part(f"[{key!r}]", item)
        self._parts.append(b"u")

    def _dict(self, value: dict[Any, Any]) -> None:
        self._parts.append(b"}" + self._memo.put(id(value), value))
        if value:
            self._items(value.items())

    def _ordered(self, value: Any) -> None:
        """State dicts too, whose versions are an attribute."""
        name = self._memo.name("collections.OrderedDict")
        self._parts.append(name + b")R" + self._memo.put(id(value), value))
        if value:
            self._items(value.items())
        getattr(value, "_metadata", None)  # which is made when it is first asked for
        attributes = vars(value)
        if attributes:
            self._parts.append(b"}(")
            for key, item in attributes.items():
                self._text(key)
                self._part(f".{key}", item)
            self._parts.append(b"ub")

    def _counter(self, value: Any) -> None:
        self._parts.append(self._memo.name("collections.Counter"))
        self._dict(dict(value))
        self._parts.append(b"\x85R" + self._memo.put(id(value), value))

    def _set(self, value: set[Any]) -> None:
        self._parts.append(self._memo.name("builtins.set") + b"](")
        for item in value:
            self._part("'s items", item)
        self._parts.append(b"e\x85R" + self._memo.put(id(value), value))

    def _bytearray(self, value: bytearray) -> None:
        self._parts.append(self._memo.name("builtins.bytearray"))
        self._bytes(bytes(value))
        self._parts.append(b"\x85R" + self._memo.put(id(value), value))

    # -- names -------------------------------------------------------------------------------------

    def _dtype(self, value: Any) -> None:
        self._parts.append(self._memo.name(f"torch.{str(value).rpartition('.')[2]}"))

    def _size(self, value: Any) -> None:
        self._parts.append(self._memo.name("torch.Size"))
        self._tuple(tuple(value))
        self._parts.append(b"\x85R")

    def _device(self, value: Any) -> None:
        index = () if value.index is None else (value.index,)
        self._call("torch.device", value.type, *index)

    # -- tensors -----------------------------------------------------------------------------------

    def _array(self, value: np.ndarray) -> None:
        """As a tensor: torch reads no arrays with weights_only."""
        if type(value) not in (np.ndarray, np.memmap) or value.dtype.name not in DTYPES:
            raise self._wrong(f"a NumPy {type(value).__name__} of dtype {value.dtype}")
        self._values(value, value)

    def _values(self, array: np.ndarray, of: Any) -> None:
        self._wait(piece_of_array(array, self._place()), False)
        self._parts.append(self._memo.put(id(of), of))

    def _immutable(self, value: Any, family: Any) -> None:
        """A tensor of another library, which shares memory with no other."""
        dtype = family.dtype_name(value)
        if dtype not in DTYPES or family.is_meta(value):
            what = "without values" if family.is_meta(value) else f"of {dtype}"
            raise self._wrong(f"a tensor of {family.name} {what}")
        try:
            array = np.asarray(family.to_numpy(value))
        except Exception as error:  # tracers, and arrays that were deleted or are elsewhere
            kind = type(value).__qualname__
            raise TypeError(f"{self._place()}: the {kind} cannot be read: {error}") from error
        self._values(array, value)

    def _own_tensor(self, value: Any) -> None:
        if value.is_meta:
            piece = empty_piece(value.dtype.name, value.dtype.itemsize, value.shape, self._place())
        else:
            piece = piece_of_array(value._array, self._place())
        self._with_state(value, piece, type(value) in self._parameters)

    def _record(self, value: TensorRecord) -> None:
        """A tensor of another file, with its values."""
        if value.source is None:
            piece = empty_piece(value.dtype.name, value.dtype.itemsize, value.shape, self._place())
            piece.stride = value.place.stride
        elif isinstance(value.source, Source) and value.nbytes:
            piece = self._late_piece(value, value.source)
        elif isinstance(value.source, Source):
            piece = empty_piece(value.dtype.name, value.dtype.itemsize, value.shape, self._place())
        else:
            piece = piece_of_array(value.source, self._place())
        self._with_state(value, piece, value.is_parameter)

    def _late_piece(self, value: TensorRecord, source: Source) -> Piece:
        """A tensor of values that are read when they are written."""
        address = self._late.get(id(source))
        if address is None:  # views of a tensor come after it, so that this is the whole one
            address = self._late[id(source)] = self._next_address
            self._next_address += -(-value.nbytes // _ALIGNMENT) * _ALIGNMENT
        return piece_of_source(source, value.dtype, value.place, address, self._place())

    def _torch_tensor(self, value: Any, is_parameter: bool) -> None:
        layout, kind = str(value.layout), value.device.type
        if layout != "torch.strided" or value.is_quantized or value.is_nested:
            what = "a quantized" if value.is_quantized else f"a {layout}"
            raise self._wrong(f"{what} tensor", "save it dense")
        dtype = str(value.dtype).rpartition(".")[2]
        if dtype not in DTYPES:
            raise self._not_read(f"a tensor of {dtype}", "convert it first")
        if kind == "meta":
            piece = empty_piece(dtype, value.element_size(), value.shape, self._place())
            piece.stride = tuple(value.stride())
        else:
            piece = piece_of_torch(value, self._moved, self._place())
        self._with_state(value, piece, is_parameter)

    def _with_state(self, value: Any, piece: Piece, is_parameter: bool) -> None:
        """A tensor, in the call that makes it a parameter, with its attributes."""
        is_record = type(value) is TensorRecord
        attributes = value.attributes if is_record else vars(value)
        is_meta = value.source is None if is_record else value.is_meta
        requires_grad = bool(value.requires_grad)
        if is_parameter:
            ending = "_parameter_with_state" if attributes else "_parameter"
            self._parts.append(self._memo.name("torch._utils._rebuild" + ending) + b"(")
            self._wait(piece, False, is_meta)
            flag = b"\x88" if requires_grad else b"\x89"
            self._parts.append(flag + self._memo.name("collections.OrderedDict") + b")R")
        elif attributes:
            self._parts.append(self._memo.name("torch._tensor._rebuild_from_type_v2") + b"(")
            self._wait(piece, requires_grad, is_meta, as_call=False)
        else:
            self._wait(piece, requires_grad, is_meta)
        if attributes:
            self._parts.append(b"}(")
            for key, item in attributes.items():
                self._text(key)
                self._part(f".{key}", item)
            self._parts.append(b"u")
        if is_parameter or attributes:
            self._parts.append(b"tR")
        self._parts.append(self._memo.put(id(value), value))

    def _wait(
        self, piece: Piece, requires_grad: bool, is_meta: bool = False, as_call: bool = True
    ) -> None:
        self._parts.append(LateTensor(piece, requires_grad, is_meta, as_call))

    def _other(self, value: Any) -> None:
        torch = sys.modules.get("torch")
        kind = type(value)
        if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
            self._torch_tensor(value, kind is torch.nn.Parameter)
        elif torch is not None and kind in (torch.dtype, torch.Size, torch.device):
            if kind is torch.device and value.type not in ("cpu", "meta"):
                raise self._not_read(f"the device {value}", "save its name, str(device)")
            {torch.dtype: self._dtype, torch.Size: self._size}.get(kind, self._device)(value)
        else:
            family = family_of(value)
            if family is None or not family.immutable:
                raise self._refused(value)
            self._immutable(value, family)

    def _refused(self, value: Any) -> TypeError:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if is_lazy(value):
            return self._wrong(f"a {kind}", "it has no shape yet: call the model once")
        if isinstance(value, _C.ModuleBase) or hasattr(value, "state_dict"):
            return self._wrong(f"a {kind}", "save its state_dict()")
        if family_of(value) is not None:
            return self._wrong(f"a tensor of class {kind}", "save it as a plain tensor")
        if isinstance(value, (dict, list, tuple)):
            return self._wrong(f"a {kind}", "save it as a plain dict, list or tuple")
        return self._wrong(f"a {kind}")


def _push(code: bytes) -> Callable[[TorchPickler, Any], None]:
    return lambda self, value: self._parts.append(code)


#: Values that need no memo: nobody sees whether two of them are one.
_WRITERS: dict[type, Callable[[TorchPickler, Any], None]] = {
    type(None): _push(b"N"),
    bool: lambda self, value: self._parts.append(b"\x88" if value else b"\x89"),
    int: TorchPickler._int,
    float: lambda self, value: self._parts.append(struct.pack(">cd", b"G", value)),
    complex: TorchPickler._complex,
    str: TorchPickler._text,
    bytes: TorchPickler._bytes,
    _C.dtype: TorchPickler._dtype,
    SizeRecord: TorchPickler._size,
    DeviceRecord: TorchPickler._device,
}
_CONTAINERS: dict[type, Callable[[TorchPickler, Any], None]] = {
    dict: TorchPickler._dict,
    collections.OrderedDict: TorchPickler._ordered,
    StateDict: TorchPickler._ordered,
    collections.Counter: TorchPickler._counter,
    list: TorchPickler._list,
    tuple: TorchPickler._tuple,
    set: TorchPickler._set,
    bytearray: TorchPickler._bytearray,
    TensorRecord: TorchPickler._record,
}


def _classes(module: str, name: str) -> tuple[Any, ...]:
    """A class of the NumPy side, if it was imported."""
    home = sys.modules.get(f"modtree.numpy.tensor.{module}")
    return () if home is None else (getattr(home, name),)


# -- files -----------------------------------------------------------------------------------------

_PIECE = 1 << 24  # bytes that are read at once, of what is not in memory


class _Prepared:
    """An object that can be said in torch's form, ready to be written."""

    def __init__(self, obj: Any) -> None:
        pickler = TorchPickler()
        self._pickled = pickler.dump(obj)
        self._storages = pickler.storages

    def write(self, file: Any) -> None:
        """Writes the archive at the place where the file stands."""
        archive = ArchiveWriter(file)
        archive.add("archive/data.pkl", self._pickled)
        archive.add("archive/byteorder", sys.byteorder.encode())
        for storage in self._storages:
            name, source = f"archive/data/{storage.key}", storage.source
            if source is None:
                archive.add(name, storage.bytes())
            elif sys.byteorder == "big":  # in which the rest of the archive is
                values = np.frombuffer(
                    b"".join(source.pieces(_PIECE)), array_dtype(str(storage.dtype))
                )
                archive.add(name, bytes_of(values.byteswap()))
            else:
                archive.add_pieces(name, storage.nbytes, source.pieces(_PIECE))
        archive.add("archive/version", b"3\n")
        archive.close()


def prepared(obj: Any) -> _Prepared:
    """What is wrong with an object shows here, before a file is touched.

    Raises:
        TypeError, ValueError, RecursionError: It cannot be said in torch's form.
    """
    return _Prepared(obj)
