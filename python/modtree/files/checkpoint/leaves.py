# SPDX-License-Identifier: BSD-3-Clause
"""The entries of a state dict as files take them: tensors as bytes, what shares memory once.

State dicts may have hundreds of thousands of small tensors, whose values take less time to write
than it takes to ask each of them what it is. What is usual is asked in few steps; everything else
goes another way, which knows all cases and has the words for errors.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from modtree import _C
from modtree.core.families import family_of
from modtree.files.checkpoint.base import CheckpointError, View, bytes_of, shortened, tensor_of
from modtree.files.checkpoint.dtypes import BY_NAME, FileDtype
from modtree.files.checkpoint.record import Record

# -- tensors in the same memory: each part of it is written once -----------------------------------

#: Arrays of the values or of their bits by key, or tensors of a library that has them on another
#: device.
Sources = dict[str, Any]
_Tensors = dict[str, tuple[FileDtype, tuple[int, ...]]]


class Spans:
    """Where in memory tensors lie."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._begins: list[int] = []
        self._sizes: list[int] = []
        self._elsewhere: list[str] = []

    def add(self, key: str, begin: int, size: int) -> None:
        """A tensor in main memory; without bytes it shares none."""
        if size:
            self._keys.append(key)
            self._begins.append(begin)
            self._sizes.append(size)

    def add_array(self, key: str, array: np.ndarray) -> None:
        """An array whose elements may lie anywhere."""
        if array.size:
            begin, end = np.lib.array_utils.byte_bounds(array)
            self.add(key, begin, end - begin)

    def add_elsewhere(self, key: str) -> None:
        """A tensor in the memory of another device."""
        self._elsewhere.append(key)

    def overlapping(self) -> list[str]:
        """The tensors that may share memory with another one: few of many."""
        if len(self._keys) < 2:
            return self._elsewhere
        begins = np.array(self._begins, np.uint64)
        order = np.argsort(begins, kind="stable")
        begins = begins[order]
        ends = begins + np.array(self._sizes, np.uint64)[order]
        is_inside = begins[1:] < np.maximum.accumulate(ends)[:-1]
        if not is_inside.any():
            return self._elsewhere
        is_shared = np.zeros(len(order), bool)
        is_shared[1:] |= is_inside
        is_shared[:-1] |= is_inside  # the one before is where a group begins, or within it
        places = np.sort(order[is_shared]).tolist()
        return [self._keys[place] for place in places] + self._elsewhere


def take_shared(keys: Iterable[str], tensors: _Tensors, sources: Sources, record: Record) -> None:
    """Takes out of ``tensors`` and ``sources`` what is written with another one of them, and enters
    it as a tie or a view.

    Args:
        keys: The tensors that may share memory, in their order.
        tensors: dtype and shape of all.
        sources: Their values.
        record: What the ties and views are added to.
    """
    rest = _take_ties(keys, tensors, sources, record)
    _take_views(rest, tensors, sources, record)
    for key, kept in list(record.ties.items()):
        if kept in record.views:  # what is tied to a view is this view, too
            record.views[key] = record.views[kept]
            del record.ties[key]


def _take_ties(
    keys: Iterable[str], tensors: _Tensors, sources: Sources, record: Record
) -> list[str]:
    """Leaves one key of each group with the same elements: the first in the order of their names,
    the choice of ``safetensors.torch``.
    """
    groups: dict[Any, list[str]] = defaultdict(list)
    for key in keys:
        groups[_identity(sources[key]), tensors[key][0]].append(key)
    rest = []
    for group in groups.values():
        kept = min(group)
        rest.append(kept)
        for key in group:
            if key != kept:
                record.ties[key] = kept
                del tensors[key], sources[key]
    return rest


def _identity(source: Any) -> Any:
    """Equal for tensors with the same elements of the same memory."""
    if isinstance(source, np.ndarray):
        return _address(source), source.shape, source.strides
    if hasattr(source, "data_ptr"):
        pointer = source.data_ptr() if source.numel() else id(source)
        return str(source.device), pointer, source.shape, source.stride()
    return id(source)


def _take_views(keys: Iterable[str], tensors: _Tensors, sources: Sources, record: Record) -> None:
    """Takes out tensors that lie in the memory of another one that is written as a whole."""
    spans = [
        (*np.lib.array_utils.byte_bounds(sources[key]), key)
        for key in keys
        if isinstance(sources[key], np.ndarray)
    ]
    spans.sort(key=lambda s: (s[0], -s[1], not sources[s[2]].flags.c_contiguous))
    whole: tuple[int, int, str] | None = None
    for span in spans:
        begin, end, key = span
        if whole is None or begin >= whole[1]:
            whole = span if sources[key].flags.c_contiguous else None
            continue
        if end <= whole[1] and tensors[key][0] is tensors[whole[2]][0]:
            view = _view(whole[2], sources[whole[2]], sources[key])
            if view is not None:
                record.views[key] = view
                del tensors[key], sources[key]


def _view(of: str, whole: np.ndarray, part: np.ndarray) -> View | None:
    size = whole.itemsize
    steps = (_address(part) - _address(whole), *part.strides)
    if any(step < 0 or step % size for step in steps):
        return None
    if part.size > whole.size:  # an expanded one
        return None
    return View(of, part.shape, tuple(step // size for step in steps[1:]), steps[0] // size)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# -- leaves ----------------------------------------------------------------------------------------

#: Bytes of a tensor that is written together with its neighbours, and of what is written at once.
_SMALL = 1 << 16
_PIECE = 1 << 20
#: dtypes of arrays whose memory is what a file has, and which Python takes as bytes.
_AS_IN_FILES = (
    frozenset(map(np.dtype, "?bBhHiIlLqQefdF")) if sys.byteorder == "little" else frozenset()
)


class Leaves:
    """The tensors that a file has to hold.

    Attributes:
        tensors: dtype and shape by key.
        sources: Their values.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, tuple[FileDtype, tuple[int, ...]]] = {}
        self.sources: Sources = {}

    def pieces(self, keys: Sequence[str]) -> Iterator[Any]:
        """The bytes of tensors as a file has them, one after the other. What is copied for it are
        small ones, and those whose elements are not in that order.
        """
        small: list[Any] = []
        count = 0
        for key in keys:
            data = self.sources[key]
            if data.nbytes > _SMALL or not _is_plain(data):
                data = _bytes_of_source(data)
            is_large = data.nbytes > _SMALL
            if not is_large:
                small.append(data)
                count += data.nbytes
            if small and (is_large or count >= _PIECE):
                yield b"".join(small)
                small.clear()
                count = 0
            if is_large:
                yield data
        if small:
            yield b"".join(small)


def _is_plain(source: Any) -> bool:
    """Whether it is an array whose memory is what a file has."""
    return type(source) is np.ndarray and source.dtype in _AS_IN_FILES and source.flags.c_contiguous


def _bytes_of_source(source: Any) -> memoryview:
    array = source if isinstance(source, np.ndarray) else _bits(source.cpu())
    if array.dtype.byteorder == ">" or (sys.byteorder == "big" and array.dtype.isnative):
        array = array.byteswap()
    return bytes_of(array)


def leaves_of(state: Mapping[str, Any], path: str) -> tuple[Leaves, Record]:
    """The tensors of a state dict that a file has to hold, and what else it holds.

    Args:
        state: The state dict.
        path: Of the file to be written, for errors.

    Raises:
        CheckpointError: An entry cannot be written.
    """
    leaves = Leaves()
    tensors, sources = leaves.tensors, leaves.sources
    record = Record(versions=getattr(state, "_metadata", None))
    spans = Spans()
    usual = _Usual()
    dtypes: dict[Any, FileDtype] = {}  # those of the usual tensors
    for place, (key, value) in enumerate(state.items()):
        if type(key) is not str:
            raise CheckpointError(f"keys must be str, got {shortened(key)}", path)
        found = usual.array(value)
        dtype = None if found is None else dtypes.get(value.dtype)
        if found is None or dtype is None:
            other = _read(value, key, path)
            if other is None:
                record.values[key] = value
                record.places[key] = place
                continue
            dtype, source = other
            if found is not None:
                dtypes[value.dtype] = dtype
        if found is not None:
            source = found[0]
            spans.add(key, found[1], source.nbytes)
        elif isinstance(source, np.ndarray):
            spans.add_array(key, source)
        else:
            spans.add_elsewhere(key)
        tensors[key] = dtype, tuple(source.shape)
        sources[key] = source
    shared = spans.overlapping()
    if shared:
        take_shared(shared, tensors, sources, record)
    if record.ties or record.views:
        order = {key: place for place, key in enumerate(state)}
        record.places.update((key, order[key]) for key in (*record.ties, *record.views))
    return leaves, record


class _Usual:
    """Knows the tensors with which nothing is odd: plain ones of modtree and torch in main memory,
    and arrays, whose elements lie in their order.
    """

    def __init__(self) -> None:
        self._plain = _plain_types()
        torch = sys.modules.get("torch")
        self._tensor = getattr(torch, "Tensor", None)
        self._parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
        self._integers = _torch_integers(torch) if self._tensor is not None else {}

    def array(self, value: Any) -> tuple[np.ndarray, int] | None:
        """An array of the values or of their bits, and its address; None of what is not usual."""
        kind = type(value)
        if kind in self._plain:
            if value.is_meta:
                return None
            array = value._array
            return (array, value.data_ptr()) if array.flags.c_contiguous else None
        if kind is np.ndarray:
            return (value, tensor_of(value).data_ptr()) if _is_plain(value) else None
        if kind is not self._tensor and kind is not self._parameter:
            return None
        try:
            plain = value.detach() if value.requires_grad else value
            integers = self._integers.get(value.dtype)
            array = (plain if integers is None else plain.view(integers)).numpy()
        except (RuntimeError, TypeError, NotImplementedError):  # on a device, sparse, conjugated
            return None
        return (array, value.data_ptr()) if array.flags.c_contiguous else None


def _plain_types() -> tuple[type, ...]:
    """The classes of modtree's tensors with nothing to find out about; none before they exist."""
    home = sys.modules.get("modtree.numpy.tensor.parameter")
    return () if home is None else (home.Tensor, home.Parameter)


def _torch_integers(torch: Any) -> dict[Any, Any]:
    """By dtypes of torch that NumPy has not: integers of the size of their elements."""
    integers = {1: torch.uint8, 2: torch.int16}
    return {
        getattr(torch, name): integers[BY_NAME[name].bits // 8]
        for name in _C._stored_dtypes
        if hasattr(torch, name) and name in BY_NAME
    }


def _read(value: Any, key: str, path: str) -> tuple[FileDtype, Any] | None:
    """dtype and values of a tensor of any kind; None of what is none."""
    if type(value) in _plain_types():
        name, source = value.dtype.name, None if value.is_meta else value._array
    elif isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise CheckpointError(
                "safetensors files have no masks: write .data and .mask, or .filled()", path, key
            )
        name, source = value.dtype.name, value
    else:
        family = family_of(value)
        if family is None:
            return None
        if family.is_uninitialized(value):
            raise CheckpointError("the parameter is not initialized: run the model once", path, key)
        name = family.dtype_name(value)
        source = None if family.is_meta(value) else _source(value, family, key, path)
    if source is None:
        raise CheckpointError(
            "the tensor is on the meta device and has no values: give it some first, with "
            "to_empty() or load_state_dict(assign=True)",
            path,
            key,
        )
    dtype = BY_NAME.get(name)
    if dtype is None or dtype.bits < 8:
        raise CheckpointError(
            f"safetensors files have no {name}: convert the tensor, or write with modtree.save()",
            path,
            key,
        )
    return dtype, source


def _source(value: Any, family: Any, key: str, path: str) -> Any:
    """The bits of a tensor of torch, or the tensor where they are on another device; the array of
    a tensor of another library.
    """
    is_of_torch = family.name == "torch"
    if is_of_torch:
        value = value.detach()
        if value.layout is not sys.modules["torch"].strided or value.is_quantized:
            raise CheckpointError(
                f"safetensors files have dense tensors only, and this is one of {value.layout} and "
                f"{value.dtype}: convert it with .to_dense() or .dequantize()",
                path,
                key,
            )
        value = value.resolve_conj().resolve_neg()
    try:
        if not is_of_torch:
            return np.asarray(family.to_numpy(value))
        return _bits(value) if value.is_cpu else value
    except (RuntimeError, TypeError, NotImplementedError, KeyError) as error:
        raise CheckpointError(
            f"the values of the {type(value).__name__} cannot be reached: {error}", path, key
        ) from error


def _bits(value: Any) -> np.ndarray:
    """A tensor of torch in main memory as an array; as integers of the size of its elements where
    NumPy has no such dtype.
    """
    try:
        return value.numpy()
    except TypeError:
        torch = sys.modules["torch"]
        return value.view({1: torch.uint8, 2: torch.int16}[value.element_size()]).numpy()
