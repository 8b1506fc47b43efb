# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of which a file says where they are: the record that every reader makes first, and which
a builder makes a tensor of.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from modtree.core.strides import contiguous, reach
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.pickled.plain import check_bools, check_sizes, require
from modtree.files.pickled.stand_in import StandIn
from modtree.files.pickled.unpickle import Refused, UnpicklingError
from modtree.files.torch.sources import Source
from modtree.files.torch.storages import BYTES, Memory, Storage

#: NumPy's number for the first dtype of another package: those have no buffers.
_FIRST_OF_OTHERS = 256


class Layout(NamedTuple):
    """Where in a storage a tensor lies, in elements."""

    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def check_layout(
    count: int, itemsize: int, offset: Any, size: Any, stride: Any, requires_grad: Any
) -> Layout:
    """The place of a tensor, which lies in its storage.

    Args:
        count: The values of the storage.
        itemsize: The bytes of each.
        offset: The first element.
        size: The sizes of the dimensions.
        stride: Elements from one index to the next, for each dimension.
        requires_grad: Checked as well.

    Raises:
        UnpicklingError: It does not, or an argument is of another type.
    """
    require(type(requires_grad) is bool, "requires_grad is no bool")
    check_sizes(size, itemsize)
    numbers = (offset, *stride) if type(stride) is tuple else (None,)
    if len(numbers) != len(size) + 1 or not all(type(n) is int for n in numbers):
        raise UnpicklingError("the file is damaged: the strides of a tensor")
    if min(numbers) < 0 or offset + reach(size, stride) > count:
        raise UnpicklingError(
            f"a tensor of size {tuple(size)} and strides {tuple(stride)} at {offset} does not "
            f"fit the {count} values it is to be made of"
        )
    return Layout(offset, tuple(size), stride)


def check_gradient(dtype: Any, requires_grad: bool) -> None:
    """Refuses integers that require gradients: no library makes them."""
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise UnpicklingError(f"the file is damaged: a tensor of {dtype} that requires gradients")


ARRAY = "numpy.ndarray"
_NO_ATTRIBUTES: dict[str, Any] = {}  # which nobody changes


class TensorRecord:
    """A tensor of which nothing was read yet.

    Attributes:
        source: Its storage; the array itself where a pickle holds that; what reads it from several
            places; None on meta.
        dtype: Its dtype, an object with ``name`` and ``itemsize``.
        place: Where in the storage it lies.
        requires_grad: Its flag.
        noted: What torch notes of it: {"conj": True} and the like, or None.
        is_parameter: Whether it is a parameter.
        kind: The class that the file names, "" for a plain tensor, ``ARRAY`` for one of NumPy.
        attributes: What the file sets as its attributes.
    """

    __slots__ = (
        "attributes",
        "dtype",
        "is_parameter",
        "kind",
        "noted",
        "place",
        "requires_grad",
        "source",
    )
    shown_as = "Tensor"

    def __init__(
        self, source: Any, dtype: Any, place: Layout, requires_grad: bool, noted: Any = None
    ) -> None:
        self.source = source
        self.dtype = dtype
        self.place = place
        self.requires_grad = requires_grad
        self.noted = noted
        self.is_parameter = False
        self.kind = ""
        self.attributes = _NO_ATTRIBUTES

    def __repr__(self) -> str:
        return f"tensor of {self.dtype.name} {list(self.place.size)}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.place.size

    @property
    def storage(self) -> Storage | None:
        """The storage, where it lies in one."""
        return self.source if type(self.source) is Storage else None

    @property
    def nbytes(self) -> int:
        """The bytes of its elements; none on meta."""
        return 0 if self.source is None else math.prod(self.place.size) * self.dtype.itemsize

    @property
    def reach(self) -> int:
        """The elements of its storage from the first to the last that it uses."""
        return reach(self.place.size, self.place.stride)

    @property
    def is_plain(self) -> bool:
        """Whether its elements are in the file one after the other, as they are, or come so."""
        if isinstance(self.source, Source):
            return True
        step = 1
        for n, stride in zip(reversed(self.place.size), reversed(self.place.stride), strict=True):
            if n != 1 and stride != step:
                return False
            step *= n
        return self.storage is not None and not self.noted

    def array(self, storages: Any) -> np.ndarray:
        """Its values, over the memory of its storage.

        Args:
            storages: Gives the memory of a storage.

        Raises:
            UnpicklingError: It has none, or none that NumPy knows.
        """
        if self.source is None:
            raise UnpicklingError("it is on meta: the file has no values")
        if isinstance(self.source, Source):
            return self.source.array()
        if type(self.source) is not Storage:
            return self.source
        memory = storages.memory(self.source)
        if self.source.kind is BYTES:
            memory = _typed(memory, self.dtype)
        offset, size, stride = self.place
        # Where there is no step, its length means nothing, but NumPy computes with it.
        steps = [
            s * memory.itemsize if 0 not in size and (n > 1 or s <= memory.size) else 0
            for n, s in zip(size, stride, strict=True)
        ]
        view = _view(memory.view(np.ndarray), offset, size, steps)
        return _carried_out(view, self.noted or {}, memory)

    def with_source(self, source: np.ndarray | Source) -> TensorRecord:
        """The same with values, or with what reads them, which needs no storages any more."""
        made = copy.copy(self)
        made.source, made.noted, made.place = source, None, _natural(self.shape)
        return made

    def as_parameter(self, requires_grad: bool) -> TensorRecord:
        """A parameter over the same memory."""
        made = copy.copy(self)
        made.is_parameter, made.requires_grad = True, requires_grad
        made.attributes = _NO_ATTRIBUTES
        return made

    def pieces(self, storages: Any, size: int) -> Iterator[Any]:
        """The bytes of a plain one, about ``size`` at once."""
        if isinstance(self.source, Source):
            return self.source.pieces(size)
        at = self.place.offset * self.dtype.itemsize
        return storages.pieces(self.source, at, self.nbytes, size)


def record_of_source(source: Source, dtype: Any, shape: tuple[int, ...]) -> TensorRecord:
    """The record of a tensor whose values are read from several places."""
    return TensorRecord(source, dtype, _natural(shape), False)


def record_of_array(array: np.ndarray, requires_grad: bool = False) -> TensorRecord:
    """The record of a tensor with these values.

    Raises:
        UnpicklingError: Tensors of this dtype do not exist.
    """
    name = array.dtype.name
    dtype = DTYPES.get(name)
    if dtype is None:
        raise UnpicklingError(f"the file is damaged: a tensor of {name}")
    check_gradient(dtype, requires_grad)
    return TensorRecord(array, dtype, _natural(array.shape), requires_grad)


def _natural(shape: tuple[int, ...]) -> Layout:
    return Layout(0, tuple(shape), contiguous(shape))


def _typed(memory: Memory, dtype: Any) -> Memory:
    """Bytes as numbers of a dtype that has no storage of its own."""
    try:
        kind = dtype.dtype
    except TypeError as error:
        raise UnpicklingError(f"the file contains numbers of {dtype.name}: {error}") from None
    copies_left = memory.copies_left
    if kind.kind == "b":
        if memory.is_mapped:  # NumPy relies on what a bool is, and a file may change
            memory.copies_left = copies_left = copies_left - memory.size
            if copies_left < 0:
                raise UnpicklingError("the file has too many tensors of bools in one storage")
            swapped, memory = memory.is_swapped, memory.copy()
            memory.is_swapped = swapped
        check_bools(memory.view(np.ndarray).data)
    if kind.itemsize > 1 and memory.is_swapped:
        raise UnpicklingError(f"the file has numbers of {dtype} in another byte order")
    typed: Any = memory[: memory.size // kind.itemsize * kind.itemsize].view(kind)
    typed.copies_left = copies_left
    return typed


def _view(flat: np.ndarray, offset: int, size: Any, steps: list[int]) -> np.ndarray:
    """A view that knows whose memory it is; NumPy checks once more that it fits."""
    plain: Any = flat.view(f"u{flat.itemsize}") if flat.dtype.num >= _FIRST_OF_OTHERS else flat
    try:
        view: np.ndarray = np.ndarray(size, plain.dtype, plain, offset * flat.itemsize, steps)
    except ValueError as error:  # too many dimensions
        raise UnpicklingError(f"the file is damaged: ValueError: {error}") from None
    return view.view(flat.dtype)


def _carried_out(view: np.ndarray, noted: dict[str, Any], memory: Memory) -> np.ndarray:
    """Carries out what torch only notes: that a tensor is to be read conjugated, or negated."""
    if not noted:
        return view
    memory.copies_left -= view.size
    if memory.copies_left < 0:
        raise UnpicklingError("the file has too many conjugated tensors of one storage")
    view = view.conj() if "conj" in noted else view
    return np.negative(view) if "neg" in noted else view


# -- what is not a tensor --------------------------------------------------------------------------


class SizeRecord(tuple[int, ...]):
    """A size, as a file has it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Size({list(self)})"


@dataclass(frozen=True, repr=False)
class DeviceRecord:
    """A device, as a file names it: it need not be there."""

    type: str
    index: int | None = None

    def __repr__(self) -> str:
        at = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{at})"


class UninitializedRecord(NamedTuple):
    """A parameter or buffer without a shape."""

    kind: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return f"‹{self.kind}›"


_RECORDS = (TensorRecord, SizeRecord, DeviceRecord, UninitializedRecord)


def replaced(
    value: Any,
    replace: Callable[[Any], Any],
    done: dict[int, Any],
    kinds: tuple[type, ...] = _RECORDS,
) -> Any:
    """A value with something else in the place of records.

    Args:
        value: What a file holds.
        replace: What to make of a record.
        done: What became of containers and records before.
        kinds: The types of what is replaced, if not records.
    """
    if id(value) in done:
        return done[id(value)]
    kind = type(value)
    if kind in kinds:
        result = replace(value)
    elif isinstance(value, dict):
        result = copy.copy(value)
        done[id(value)] = result
        for key, item in value.items():
            result[key] = replaced(item, replace, done, kinds)
    elif kind is list:
        result = done[id(value)] = []
        result.extend(replaced(item, replace, done, kinds) for item in value)
    elif kind is tuple:
        result = tuple([replaced(item, replace, done, kinds) for item in value])
    elif kind is StandIn:
        result = done[id(value)] = copy.copy(value)
        for name in ("args", "state", "items", "pairs"):
            setattr(result, name, replaced(getattr(value, name), replace, done, kinds))
    else:
        return value
    done[id(value)] = result
    return result


def set_attributes_of_record(record: TensorRecord, state: Any) -> None:
    """Notes attributes; whether a tensor may have them shows when it is made."""
    require(type(state) is dict, "a state of a tensor")
    for name in state:
        if type(name) is not str or name[:2] == "__":
            raise Refused(
                f"Weights only load failed: the file sets the attribute {name!r:.80} of a tensor"
            )
    record.attributes = {**record.attributes, **state}
