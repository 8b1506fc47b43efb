# SPDX-License-Identifier: BSD-3-Clause
"""Types of elements, under torch's names: ``modtree.float32``, ``modtree.long``, ..."""

from __future__ import annotations

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


def finfo(type: Any = None) -> np.finfo:  # noqa: A002
    """Limits of a floating dtype (the default one when left out)."""
    return np.finfo(as_dtype(get_default_dtype() if type is None else type).dtype)


def iinfo(type: Any) -> np.iinfo:  # noqa: A002
    """Limits of an integer dtype."""
    return np.iinfo(as_dtype(type).dtype)


def _dtype_by_name(name: str) -> dtype:
    """Where a pickled dtype comes back."""
    return _C._dtypes[name]
