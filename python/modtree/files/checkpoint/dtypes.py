# SPDX-License-Identifier: BSD-3-Clause
"""The names that the safetensors format has for dtypes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from modtree import _C


class FileDtype(NamedTuple):
    """A dtype of the format.

    Attributes:
        code: Its name in a file.
        name: torch's name.
        bits: The bits of an element.
    """

    code: str
    name: str
    bits: int


_ALL = (
    FileDtype("BOOL", "bool", 8),
    FileDtype("U8", "uint8", 8),
    FileDtype("I8", "int8", 8),
    FileDtype("I16", "int16", 16),
    FileDtype("U16", "uint16", 16),
    FileDtype("F16", "float16", 16),
    FileDtype("BF16", "bfloat16", 16),
    FileDtype("I32", "int32", 32),
    FileDtype("U32", "uint32", 32),
    FileDtype("F32", "float32", 32),
    FileDtype("F64", "float64", 64),
    FileDtype("I64", "int64", 64),
    FileDtype("U64", "uint64", 64),
    FileDtype("C64", "complex64", 64),
    FileDtype("F8_E5M2", "float8_e5m2", 8),
    FileDtype("F8_E4M3", "float8_e4m3fn", 8),
    FileDtype("F8_E5M2FNUZ", "float8_e5m2fnuz", 8),
    FileDtype("F8_E4M3FNUZ", "float8_e4m3fnuz", 8),
    FileDtype("F8_E8M0", "float8_e8m0fnu", 8),
    # Several elements in a byte: their bytes are passed on, but no tensor is made of them.
    FileDtype("F4", "float4_e2m1fn", 4),
    FileDtype("F6_E2M3", "float6_e2m3fn", 6),
    FileDtype("F6_E3M2", "float6_e3m2fn", 6),
)
BY_CODE = {dtype.code: dtype for dtype in _ALL}
BY_NAME = {dtype.name: dtype for dtype in _ALL}


def is_floating(name: str) -> bool:
    return name.startswith(("float", "bfloat"))


MOST_DIMENSIONS = 64  # NumPy's
#: The dtypes of modtree by torch's names: those of tensors, and those that are only stored.
DTYPES: dict[str, Any] = {**_C._dtypes, **_C._stored_dtypes}


def known_dtype(name: str) -> Any:
    """The dtype of modtree with this name.

    Raises:
        TypeError: there is none.
    """
    known = DTYPES.get(name)
    if known is None:
        raise TypeError(f"tensors of {name} are not supported; pass such entries over")
    return known


def array_dtype(name: str) -> np.dtype:
    """NumPy's dtype of the values as they stand in a file.

    Raises:
        TypeError: NumPy has no such dtype, or not without the package ml_dtypes.
    """
    dtype: np.dtype = known_dtype(name).dtype
    return dtype if dtype.itemsize == 1 or name in _C._stored_dtypes else dtype.newbyteorder("<")


def widened(halves: np.ndarray) -> np.ndarray:
    """bfloat16 numbers, the upper halves of float32 numbers, as those: for want of ml_dtypes."""
    # An array of no dimensions comes out of << as a number.
    return np.asarray(halves.astype(np.uint32) << 16).view(np.float32)
