# SPDX-License-Identifier: BSD-3-Clause
"""What is plain in a pickle: numbers, text, containers, NumPy's arrays and dtypes. The functions
make objects of a file's arguments after checking them.
"""

from __future__ import annotations

import collections
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.pickled.unpickle import Refused, Unfinished, Unpickler, UnpicklingError


def require(condition: Any, what: str) -> None:
    """Says that the file is damaged unless the condition holds."""
    if not condition:
        raise UnpicklingError(f"the file is damaged: {what}")


def check_sizes(sizes: Any, itemsize: int) -> int:
    """The number of elements of an array of these sizes, which a process could address."""
    require(isinstance(sizes, tuple), f"{sizes!r:.80} where sizes belong")
    count, reached = 1, itemsize
    for size in sizes:
        require(type(size) is int and size >= 0, f"{sizes!r:.80} where sizes belong")
        count *= size
        reached *= max(size, 1)
        require(reached < 1 << 63, "an array that no memory could hold")
    return count


def check_bools(data: Any) -> None:
    """NumPy writes beyond its memory when a byte of a bool array is neither 0 nor 1."""
    numbers = np.frombuffer(data, np.uint8)
    require(not numbers.size or numbers.max() <= 1, "a bool that is neither True nor False")


# -- dtypes ----------------------------------------------------------------------------------------

_CODE = re.compile(
    r"b1|[iu][1248]|f2|f4|f8|c8|c16|f12|f16|c24|c32|[SU](0|[1-9]\d{0,9})|[mM]8", re.ASCII
)
_UNITS = frozenset(
    (b"generic", b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as")
)


#: Numbers of the package ml_dtypes that tensors do not have, and arrays do.
_OF_ARRAYS = frozenset(
    ("int1", "int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn")
) | {"float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"}


def class_of_ml_dtypes(name: str) -> type:
    """The class of such numbers.

    Raises:
        KeyError: There is none, or the package is not installed.
    """
    if name not in _OF_ARRAYS:
        raise KeyError(name)
    try:
        return getattr(importlib.import_module("ml_dtypes"), name)
    except (ImportError, AttributeError):
        raise KeyError(name) from None


def _dtype(code: Any, align: Any = False, copy: Any = True) -> Unfinished:
    if type(code) is type and code.__module__ == "ml_dtypes":
        of_package = np.dtype(code)
        return Unfinished(lambda state: _checked_stored(of_package, state))
    if isinstance(code, _C.dtype):  # what the names of ml_dtypes are here
        stored = _stored_dtype(code)
        return Unfinished(lambda state: _checked_stored(stored, state))
    plain = type(code) is str and _CODE.fullmatch(code)
    if not plain:
        raise Refused(
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
    require(type(state) is tuple and len(state) in (8, 9), "the state of a dtype")
    require(state[1] in ("<", ">", "|", "="), "the state of a dtype")
    swapped = ">" if sys.byteorder == "little" else "<"
    require(dtype.itemsize == 1 or state[1] != swapped, "a dtype in another byte order")
    return dtype


def _dtype_of(code: str, state: Any) -> np.dtype:
    require(type(state) is tuple and len(state) in (8, 9), "the state of a dtype")
    version, order, *nested, itemsize, _, _ = state[:8]
    require(version in (3, 4) and order in ("<", ">", "|", "="), "the state of a dtype")
    require(nested == [None, None, None], "a dtype with parts")
    unit = ""
    if code in ("m8", "M8"):
        unit = _unit_of(state[8] if len(state) == 9 else None)
    result = np.dtype(code + unit)
    if not result.newbyteorder(order).isnative:
        result = result.newbyteorder(order)
    require(itemsize in (-1, result.itemsize), "the size of a dtype")
    return result


def _unit_of(metadata: Any) -> str:
    require(type(metadata) is tuple and len(metadata) == 2, "the unit of a time")
    unit = metadata[1]
    require(type(unit) is tuple and len(unit) == 4 and unit[0] in _UNITS, "the unit of a time")
    count = unit[1]
    require(type(count) is int and 0 < count < 1 << 31 and unit[2:] == (1, 1), "a unit of time")
    return "" if unit[0] == b"generic" else f"[{count}{unit[0].decode()}]"


# -- arrays ----------------------------------------------------------------------------------------


def array_over(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over the memory of data."""
    require(isinstance(dtype, np.dtype) and dtype.itemsize, "an array without a dtype")
    require(type(data) in (bytes, bytearray), "an array that is not made of bytes")
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
        require(points.max() <= 0x10FFFF, "text with a character that there is not")
    return flat.reshape(shape, order=order)


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
    require(order in ("C", "F", "K"), "the order of an array")
    if order != "K":
        return array_over(data, dtype, shape, order)
    require(type(axes) is tuple and all(type(n) is int for n in axes), "the order of an array")
    return array_over(data, dtype, shape, "C").transpose(axes)


def reconstruct(kind: Any, shape: Any, code: Any) -> Unfinished:
    """How NumPy's pickles begin an array."""
    require(kind is np.ndarray and shape == (0,) and code in (b"b", "b"), "the start of an array")
    return Unfinished(array_of_state)


def array_of_state(state: Any) -> np.ndarray:
    """What NumPy's pickles give to an array that :func:`reconstruct` began."""
    require(type(state) is tuple and len(state) == 5 and state[0] == 1, "the state of an array")
    _, shape, dtype, is_fortran, data = state
    return array_over(data, dtype, shape, "F" if is_fortran else "C").copy(order="K")


def _scalar(dtype: Any, data: Any) -> Any:
    if isinstance(dtype, np.dtype) and not dtype.itemsize and data == b"":
        return dtype.type()
    return array_over(data, dtype, (), "C")[()]


def known_dtype(name: Any) -> Any:
    """The dtype of this name."""
    require(type(name) is str and name in DTYPES, "the name of a dtype")
    return DTYPES[name]


# -- plain values ----------------------------------------------------------------------------------


def _is_small(value: Any) -> bool:
    return value is None or (type(value) is int and value.bit_length() <= 4096)


def _range(*numbers: Any) -> range:
    require(all(map(_is_small, numbers)), "a range")
    return range(*numbers)


def _slice(*numbers: Any) -> slice:
    require(all(map(_is_small, numbers)), "a slice")
    return slice(*numbers)


def _complex(real: Any, imag: Any) -> complex:
    require(type(real) in (int, float) and type(imag) in (int, float), "a complex number")
    return complex(real, imag)


def _encode(text: Any, encoding: Any) -> bytes:
    """How protocols before 3 write bytes."""
    require(type(text) is str and encoding in ("latin1", "latin-1"), "encoded bytes")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """How protocols before 3 write empty bytes."""
    return b""


def _bytearray(data: Any = b"", encoding: Any = "latin-1") -> bytearray:
    if type(data) is str:
        data = _encode(data, encoding)
    require(type(data) is bytes, "a bytearray")
    return bytearray(data)


def _deque(items: Any = (), maxlen: Any = None) -> Any:
    require(type(items) in (list, tuple), "a deque")
    require(maxlen is None or type(maxlen) is int, "the length of a deque")
    return collections.deque(items, maxlen)


def _defaultdict(factory: Any = None) -> Any:
    require(factory is None or isinstance(factory, type), "a defaultdict")
    return collections.defaultdict(factory)


def _counter(counts: Any = None) -> Any:
    require(counts is None or type(counts) is dict, "a Counter")
    return collections.Counter(counts)


# -- attributes ------------------------------------------------------------------------------------


def set_attributes(target: Any, state: Any) -> None:
    """Only additional ones: what a class defines stays what it is."""
    require(type(state) is dict, f"a state of {type(target).__name__}")
    for name in state:
        if type(name) is not str or name[:2] == "__" or hasattr(type(target), name):
            raise Refused(
                f"Weights only load failed: the file sets the attribute {name!r:.80} of "
                f"{type(target).__name__}"
            )
    target.__dict__.update(state)


def _set_metadata(target: Any, state: Any) -> None:
    set_attributes(target, state)
    require(isinstance(state.get("_metadata", {}), dict), "_metadata that is no dict")


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
    **{("ml_dtypes", name): dtype for name, dtype in _C._stored_dtypes.items()},
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
}
for _core in ("numpy._core", "numpy.core"):
    NAMES[f"{_core}.multiarray", "_reconstruct"] = reconstruct
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
    np.dtype: _dtype,
    **{
        make: make
        for make in (
            _encode,
            reconstruct,
            _scalar,
            _frombuffer,
        )
    },
}

#: What takes a state.
BUILDERS: dict[Any, Callable[[Any, Any], None]] = {
    collections.OrderedDict: _set_metadata,
}


def plain_unpickler(file: Any) -> Unpickler:
    """An unpickler for what is plain, and nothing else."""
    return Unpickler(file, NAMES, MAKERS, BUILDERS)
