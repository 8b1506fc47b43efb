# SPDX-License-Identifier: BSD-3-Clause
"""Types of elements, under torch's names: ``modtree.float32``, ``modtree.long``, ..."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from modtree import _C
from modtree._C import as_dtype, dtype, get_default_dtype, set_default_dtype

float16 = half = _C._dtypes["float16"]
float32 = float = _C._dtypes["float32"]  # noqa: A001
float64 = double = _C._dtypes["float64"]
complex64 = cfloat = _C._dtypes["complex64"]
complex128 = cdouble = _C._dtypes["complex128"]
int8 = _C._dtypes["int8"]
int16 = short = _C._dtypes["int16"]
int32 = int = _C._dtypes["int32"]  # noqa: A001
int64 = long = _C._dtypes["int64"]
uint8 = _C._dtypes["uint8"]
uint16 = _C._dtypes["uint16"]
uint32 = _C._dtypes["uint32"]
uint64 = _C._dtypes["uint64"]
bool = _C._dtypes["bool"]  # noqa: A001

# For storing only, by the package ml_dtypes: csrc/numpy/tensor/dtype.cpp.
bfloat16 = _C._stored_dtypes["bfloat16"]
float8_e4m3fn = _C._stored_dtypes["float8_e4m3fn"]
float8_e4m3fnuz = _C._stored_dtypes["float8_e4m3fnuz"]
float8_e5m2 = _C._stored_dtypes["float8_e5m2"]
float8_e5m2fnuz = _C._stored_dtypes["float8_e5m2fnuz"]
float8_e8m0fnu = _C._stored_dtypes["float8_e8m0fnu"]

__all__ = [
    "as_dtype",
    "dtype",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "set_default_dtype",
    *_C._dtypes,
    *_C._stored_dtypes,
]

#: (bits of the mantissa, exponent of the least normal number, greatest number, resolution)
_STORED_LIMITS: dict[str, tuple[builtins.int, builtins.int, builtins.float, builtins.float]] = {
    "bfloat16": (7, -126, (2 - 2**-7) * 2.0**127, 0.01),
    "float8_e4m3fn": (3, -6, 448.0, 1.0),
    "float8_e4m3fnuz": (3, -7, 240.0, 1.0),
    "float8_e5m2": (2, -14, 57344.0, 1.0),
    "float8_e5m2fnuz": (2, -15, 57344.0, 1.0),
    "float8_e8m0fnu": (0, -127, 2.0**127, 1.0),
}


class _Limits:
    """Limits of a dtype; plain Python numbers, under torch's names."""

    __slots__ = ("bits", "dtype", "max", "min")
    bits: builtins.int
    dtype: str
    max: Any
    min: Any

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute '{name}' of {type(self).__name__} is not writable")

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> Any:
        return self.dtype == other.dtype if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return type(self), (_dtype_by_name(self.dtype),)


class finfo(_Limits):  # noqa: N801
    """Limits of a floating dtype (the default one when left out); of a complex one, those of its
    parts.

    Attributes:
        bits: The bits of an element.
        dtype: Its name.
        min: The least number.
        max: The greatest.
        eps: The distance from 1 to the next number.
        smallest_normal: The least positive number in full precision; ``tiny`` is the same.
        resolution: The decimal resolution.
    """

    __slots__ = ("eps", "resolution", "smallest_normal", "tiny")
    eps: builtins.float
    resolution: builtins.float
    smallest_normal: builtins.float
    tiny: builtins.float

    def __init__(self, type: Any = None) -> None:  # noqa: A002
        if isinstance(type, dtype) and type.name in _STORED_LIMITS:
            self._set_stored(type)
            return
        kind = as_dtype(get_default_dtype() if type is None else type).dtype
        if kind.kind not in "fc":
            raise TypeError(
                f"modtree.finfo() requires a floating point input type, got {kind}. Use "
                f"modtree.iinfo for integers"
            )
        limits = np.finfo(kind)
        names = ("min", "max", "eps", "smallest_normal", "tiny")
        self._set(
            bits=limits.bits,
            dtype=limits.dtype.name,
            resolution=np.float64(str(limits.resolution)).item(),
            **{name: getattr(limits, name).item() for name in names},
        )

    def _set_stored(self, kind: dtype) -> None:
        mantissa, exponent, greatest, resolution = _STORED_LIMITS[kind.name]
        least = 2.0**exponent
        self._set(
            bits=8 * kind.itemsize,
            dtype=kind.name,
            min=-greatest if kind.is_signed else least,
            max=greatest,
            eps=2.0**-mantissa,
            smallest_normal=least,
            tiny=least,
            resolution=resolution,
        )

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo(_Limits):  # noqa: N801
    """Limits of an integer dtype.

    Attributes:
        bits: The bits of an element.
        dtype: Its name.
        min: The least number.
        max: The greatest.
    """

    __slots__ = ()

    def __init__(self, type: Any) -> None:  # noqa: A002
        known = type if isinstance(type, dtype) else as_dtype(type)
        if known.name in _STORED_LIMITS or known.dtype.kind not in "iu":
            raise TypeError(
                f"modtree.iinfo() requires an integer input type, got {known.name}. Use "
                f"modtree.finfo for floating point types"
            )
        kind = known.dtype
        limits = np.iinfo(kind)
        self._set(bits=limits.bits, dtype=kind.name, min=limits.min, max=limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def _dtype_by_name(name: str) -> dtype:
    """Where a pickled dtype comes back."""
    return _C._dtypes[name] if name in _C._dtypes else _C._stored_dtypes[name]


_C._install(dtype_by_name=_dtype_by_name)
