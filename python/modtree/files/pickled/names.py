# SPDX-License-Identifier: BSD-3-Clause
"""What a file may name without weights_only=False, and the functions that make objects of its
arguments after checking them.
"""

from __future__ import annotations

import collections
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree._tensor.devices import as_device, device
from modtree._tensor.parameter import Buffer, Parameter, _rebuild_parameter
from modtree._tensor.tensor import Size, Tensor, _rebuild, _rebuild_meta
from modtree._tensor.uninitialized import (
    UninitializedBuffer,
    UninitializedParameter,
    _rebuild_uninitialized,
)
from modtree.files.pickled.unpickle import Unfinished, Unpickler, UnpicklingError

__all__ = [
    "BUILDERS",
    "MAKERS",
    "NAMES",
    "check_bools",
    "check_sizes",
    "make_device",
    "make_size",
    "safe_unpickler",
    "set_attributes",
]


def _require(condition: Any, what: str) -> None:
    if not condition:
        raise UnpicklingError(f"the file is damaged: {what}")


def check_sizes(sizes: Any, itemsize: int) -> int:
    """The number of elements of an array of these sizes, which a process could address."""
    _require(type(sizes) in (tuple, Size), f"{sizes!r:.80} where sizes belong")
    count, reached = 1, itemsize
    for size in sizes:
        _require(type(size) is int and size >= 0, f"{sizes!r:.80} where sizes belong")
        count *= size
        reached *= max(size, 1)
        _require(reached < 1 << 63, "an array that no memory could hold")
    return count


def check_bools(data: Any) -> None:
    """NumPy writes beyond its memory when a byte of a bool array is neither 0 nor 1."""
    numbers = np.frombuffer(data, np.uint8)
    _require(not numbers.size or numbers.max() <= 1, "a bool that is neither True nor False")


# -- dtypes ----------------------------------------------------------------------------------------

_CODE = re.compile(
    r"b1|[iu][1248]|f2|f4|f8|c8|c16|f12|f16|c24|c32|[SU](0|[1-9]\d{0,9})|[mM]8", re.ASCII
)
_UNITS = frozenset(
    (b"generic", b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as")
)


def _dtype(code: Any, align: Any = False, copy: Any = True) -> Unfinished:
    if isinstance(code, _C.dtype):  # what the names of ml_dtypes are here
        stored = _stored_dtype(code)
        return Unfinished(lambda state: _checked_stored(stored, state))
    plain = type(code) is str and _CODE.fullmatch(code)
    if not plain:
        raise UnpicklingError(
            f"Weights only load failed: the file contains an array of dtype {code!r:.80}; arrays "
            f"of numbers, text and times can be read"
        )
    return Unfinished(lambda state: _dtype_of(code, state))


def _stored_dtype(known: Any) -> np.dtype:
    try:
        return known.dtype
    except TypeError as error:
        raise UnpicklingError(f"the file contains numbers of {known.name}: {error}") from None


def _checked_stored(dtype: np.dtype, state: Any) -> np.dtype:
    _require(type(state) is tuple and len(state) in (8, 9), "the state of a dtype")
    _require(state[1] in ("<", ">", "|", "="), "the state of a dtype")
    swapped = ">" if sys.byteorder == "little" else "<"
    _require(dtype.itemsize == 1 or state[1] != swapped, "a dtype in another byte order")
    return dtype


def _dtype_of(code: str, state: Any) -> np.dtype:
    _require(type(state) is tuple and len(state) in (8, 9), "the state of a dtype")
    version, order, *nested, itemsize, _, _ = state[:8]
    _require(version in (3, 4) and order in ("<", ">", "|", "="), "the state of a dtype")
    _require(nested == [None, None, None], "a dtype with parts")
    unit = ""
    if code in ("m8", "M8"):
        unit = _unit_of(state[8] if len(state) == 9 else None)
    result = np.dtype(code + unit)
    if not result.newbyteorder(order).isnative:
        result = result.newbyteorder(order)
    _require(itemsize in (-1, result.itemsize), "the size of a dtype")
    return result


def _unit_of(metadata: Any) -> str:
    _require(type(metadata) is tuple and len(metadata) == 2, "the unit of a time")
    unit = metadata[1]
    _require(type(unit) is tuple and len(unit) == 4 and unit[0] in _UNITS, "the unit of a time")
    count = unit[1]
    _require(type(count) is int and 0 < count < 1 << 31 and unit[2:] == (1, 1), "a unit of time")
    return "" if unit[0] == b"generic" else f"[{count}{unit[0].decode()}]"


# -- arrays ----------------------------------------------------------------------------------------


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over the memory of data."""
    _require(isinstance(dtype, np.dtype) and dtype.itemsize, "an array without a dtype")
    _require(type(data) in (bytes, bytearray), "an array that is not made of bytes")
    count = check_sizes(shape, dtype.itemsize)
    if count * dtype.itemsize != len(data):
        raise UnpicklingError(
            f"the file is damaged: an array of shape {tuple(shape)} and dtype {dtype} does not "
            f"have {len(data)} bytes"
        )
    if dtype.kind == "b":
        check_bools(data)
    if not len(data):
        return np.zeros(shape, dtype, order)
    flat: Any = np.frombuffer(data, dtype)
    if dtype.kind == "U":
        points = flat.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        _require(points.max() <= 0x10FFFF, "text with a character that there is not")
    return flat.reshape(shape, order=order)


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
    _require(order in ("C", "F", "K"), "the order of an array")
    if order != "K":
        return _array(data, dtype, shape, order)
    _require(type(axes) is tuple and all(type(n) is int for n in axes), "the order of an array")
    return _array(data, dtype, shape, "C").transpose(axes)


def _reconstruct(kind: Any, shape: Any, code: Any) -> Unfinished:
    _require(kind is np.ndarray and shape == (0,) and code in (b"b", "b"), "the start of an array")
    return Unfinished(_array_of)


def _array_of(state: Any) -> np.ndarray:
    _require(type(state) is tuple and len(state) == 5 and state[0] == 1, "the state of an array")
    _, shape, dtype, is_fortran, data = state
    return _array(data, dtype, shape, "F" if is_fortran else "C").copy(order="K")


def _scalar(dtype: Any, data: Any) -> Any:
    if isinstance(dtype, np.dtype) and not dtype.itemsize and data == b"":
        return dtype.type()
    return _array(data, dtype, (), "C")[()]


# -- tensors ---------------------------------------------------------------------------------------


def _check_kind(kind: Any, requires_grad: Any) -> None:
    _require(kind is Tensor or kind is Parameter, "a class that is no class of tensors")
    _require(type(requires_grad) is bool, "requires_grad is no bool")


def _tensor(kind: Any, array: Any, requires_grad: Any) -> Any:
    _check_kind(kind, requires_grad)
    _require(type(array) is np.ndarray, "a tensor that is not made of an array")
    # An array over bytes, which never change.
    return _rebuild(kind, array if array.flags.writeable else array.copy(order="K"), requires_grad)


def _meta_tensor(kind: Any, sizes: Any, dtype: Any, requires_grad: Any) -> Any:
    _check_kind(kind, requires_grad)
    _require(isinstance(dtype, _C.dtype), "a tensor without a dtype")
    check_sizes(sizes, dtype.itemsize)
    return _rebuild_meta(kind, sizes, dtype, requires_grad)


def _parameter(data: Any, requires_grad: Any) -> Any:
    _check_kind(type(data), requires_grad)
    return _rebuild_parameter(data, requires_grad)


def _parameter_of_bytes(data: Any, dtype: Any, shape: Any, requires_grad: Any) -> Any:
    kind = _dtype_by_name(dtype).dtype
    return _tensor(Parameter, _array(data, kind, shape, "C"), requires_grad)


def _uninitialized(kind: Any, arguments: Any) -> Any:
    _require(kind in (UninitializedBuffer, UninitializedParameter), "a class without a shape")
    _require(type(arguments) is dict, "arguments of a class without a shape")
    known = {"requires_grad": bool, "device": device, "dtype": _C.dtype, "persistent": bool}
    for name, value in arguments.items():
        fits = name in known and isinstance(value, known[name])
        _require(fits, "an argument of a class without a shape")
    _require(kind is UninitializedBuffer or "persistent" not in arguments, "a persistent parameter")
    return _rebuild_uninitialized(kind, arguments)


def _dtype_by_name(name: Any) -> Any:
    known = {**_C._dtypes, **_C._stored_dtypes}
    _require(type(name) is str and name in known, "the name of a dtype")
    return known[name]


def make_device(name: Any, index: Any = None) -> Any:
    """A device for its name."""
    _require(type(name) is str and len(name) < 100, "the name of a device")
    _require(index is None or type(index) is int, "the index of a device")
    return as_device(name if index is None else f"{name}:{index}")


def make_size(sizes: Any = ()) -> Any:
    """A Size for a tuple."""
    _require(type(sizes) is tuple and all(type(n) is int for n in sizes), "sizes")
    return Size(sizes)


# -- plain values ----------------------------------------------------------------------------------


def _is_small(value: Any) -> bool:
    return value is None or (type(value) is int and value.bit_length() <= 4096)


def _range(*numbers: Any) -> range:
    _require(all(map(_is_small, numbers)), "a range")
    return range(*numbers)


def _slice(*numbers: Any) -> slice:
    _require(all(map(_is_small, numbers)), "a slice")
    return slice(*numbers)


def _complex(real: Any, imag: Any) -> complex:
    _require(type(real) in (int, float) and type(imag) in (int, float), "a complex number")
    return complex(real, imag)


def _encode(text: Any, encoding: Any) -> bytes:
    """How protocols before 3 write bytes."""
    _require(type(text) is str and encoding in ("latin1", "latin-1"), "encoded bytes")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """How protocols before 3 write empty bytes."""
    return b""


def _bytearray(data: Any = b"", encoding: Any = "latin-1") -> bytearray:
    if type(data) is str:
        data = _encode(data, encoding)
    _require(type(data) is bytes, "a bytearray")
    return bytearray(data)


def _deque(items: Any = (), maxlen: Any = None) -> Any:
    _require(type(items) in (list, tuple), "a deque")
    _require(maxlen is None or type(maxlen) is int, "the length of a deque")
    return collections.deque(items, maxlen)


def _defaultdict(factory: Any = None) -> Any:
    _require(factory is None or isinstance(factory, type), "a defaultdict")
    return collections.defaultdict(factory)


def _counter(counts: Any = None) -> Any:
    _require(counts is None or type(counts) is dict, "a Counter")
    return collections.Counter(counts)


# -- attributes ------------------------------------------------------------------------------------


def set_attributes(target: Any, state: Any) -> None:
    """Only additional ones: what a class defines stays what it is."""
    _require(type(state) is dict, f"a state of {type(target).__name__}")
    for name in state:
        if type(name) is not str or name[:2] == "__" or hasattr(type(target), name):
            raise UnpicklingError(
                f"Weights only load failed: the file sets the attribute {name!r:.80} of "
                f"{type(target).__name__}"
            )
    target.__dict__.update(state)


def _set_metadata(target: Any, state: Any) -> None:
    set_attributes(target, state)
    _require(isinstance(state.get("_metadata", {}), dict), "_metadata that is no dict")


# -- tables ----------------------------------------------------------------------------------------

_PLAIN = {
    "bytearray": bytearray,
    "bytes": bytes,
    "complex": complex,
    "frozenset": frozenset,
    "range": range,
    "set": set,
    "slice": slice,
}
_PARAMETER = ("modtree._tensor.parameter", "modtree._module.parameter")
_LAZY = ("modtree._tensor.uninitialized", "modtree._module.uninitialized")
_OWN: tuple[tuple[tuple[str, ...], str, Any], ...] = (
    # The first is today's name; files of earlier versions hold the others.
    (("modtree", "modtree.devices"), "device", device),
    (("modtree._tensor.dtypes", "modtree.dtypes"), "_dtype_by_name", _dtype_by_name),
    (("modtree.nn.parameter", "modtree.parameter"), "Buffer", Buffer),
    (("modtree.nn.parameter", "modtree.parameter"), "Parameter", Parameter),
    ((*_PARAMETER, "modtree.parameter"), "_rebuild_parameter", _parameter),
    (_PARAMETER, "_parameter_of_bytes", _parameter_of_bytes),
    (_LAZY, "_rebuild_uninitialized", _uninitialized),
    (("modtree.nn.parameter",), "UninitializedBuffer", UninitializedBuffer),
    (("modtree.nn.parameter",), "UninitializedParameter", UninitializedParameter),
    (("modtree", "modtree.tensor"), "Size", Size),
    (("modtree", "modtree.tensor"), "Tensor", Tensor),
    (("modtree._tensor.tensor", "modtree.tensor"), "_rebuild", _tensor),
    (("modtree._tensor.tensor", "modtree.tensor"), "_rebuild_meta", _meta_tensor),
)
NAMES: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    **{
        (module, name): kind
        for module in ("builtins", "__builtin__")
        for name, kind in _PLAIN.items()
    },
    ("__builtin__", "xrange"): range,
    ("collections", "Counter"): collections.Counter,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "deque"): collections.deque,
    **{(module, name): kind for modules, name, kind in _OWN for module in modules},
    **{("ml_dtypes", name): dtype for name, dtype in _C._stored_dtypes.items()},
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
}
for _core in ("numpy._core", "numpy.core"):
    NAMES[f"{_core}.multiarray", "_reconstruct"] = _reconstruct
    NAMES[f"{_core}.multiarray", "scalar"] = _scalar
    NAMES[f"{_core}.numeric", "_frombuffer"] = _frombuffer

#: What each of them makes of its arguments, after a look at them.
MAKERS: dict[Any, Callable[..., Any]] = {
    bytearray: _bytearray,
    bytes: _no_bytes,
    complex: _complex,
    range: _range,
    slice: _slice,
    collections.Counter: _counter,
    collections.defaultdict: _defaultdict,
    collections.deque: _deque,
    device: make_device,
    np.dtype: _dtype,
    Size: make_size,
    **{
        make: make
        for make in (
            _encode,
            _dtype_by_name,
            _parameter,
            _parameter_of_bytes,
            _uninitialized,
            _tensor,
            _meta_tensor,
            _reconstruct,
            _scalar,
            _frombuffer,
        )
    },
}

#: What takes a state.
BUILDERS: dict[Any, Callable[[Any, Any], None]] = {
    collections.OrderedDict: _set_metadata,
    Tensor: set_attributes,
    Parameter: set_attributes,
    UninitializedBuffer: set_attributes,
    UninitializedParameter: set_attributes,
}


def safe_unpickler(
    file: Any,
    options: dict[str, Any],
    names: dict[tuple[str, str], Any] | None = None,
    makers: dict[Any, Any] | None = None,
    persistent_load: Callable[[Any], Any] | None = None,
) -> Unpickler:
    """An unpickler for what modtree's and NumPy's objects need, and what is given besides."""
    return Unpickler(
        file,
        {**NAMES, **(names or {})},
        {**MAKERS, **(makers or {})},
        BUILDERS,
        persistent_load,
        **options,
    )
