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

__all__ = [
    "as_dtype",
    "dtype",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "set_default_dtype",
    *_C._dtypes,
]


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
        return type(self), (_C._dtypes[self.dtype],)


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

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
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
        kind = as_dtype(type).dtype
        if kind.kind not in "iu":
            raise TypeError(
                f"modtree.iinfo() requires an integer input type, got {kind}. Use modtree.finfo "
                f"for floating point types"
            )
        limits = np.iinfo(kind)
        self._set(bits=limits.bits, dtype=kind.name, min=limits.min, max=limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def _dtype_by_name(name: str) -> dtype:
    """Where a pickled dtype comes back."""
    return _C._dtypes[name]


_C._install(dtype_by_name=_dtype_by_name)
