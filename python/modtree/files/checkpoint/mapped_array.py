# SPDX-License-Identifier: BSD-3-Clause
"""Arrays over the memory of a mapped file."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.dtypes import array_dtype

__all__ = ["mapped_array"]


def mapped_array(
    memory: Any, at: int, name: str, shape: tuple[int, ...], path: str, key: str
) -> np.ndarray:
    """The values of a tensor that lie one after the other in a file.

    Args:
        memory: The map of the file.
        at: Where they begin.
        name: torch's name of their dtype.
        shape: Their shape.
        path: The file, for errors.
        key: The key of the tensor, for errors.

    Raises:
        CheckpointError: The file does not have them, a bool is neither 0 nor 1, or NumPy does not
            have the dtype.
    """
    is_widened = False
    try:
        dtype = array_dtype(name)
    except TypeError as error:
        if name != "bfloat16":
            raise CheckpointError(str(error), path, key) from None
        dtype, is_widened = np.dtype("<u2"), True
    if 0 in shape:
        return np.empty(shape, "float32" if is_widened else dtype.newbyteorder("="))
    try:
        array: np.ndarray = np.ndarray(shape, dtype, memory, at)
    except (TypeError, ValueError) as error:
        # Of a file that was cut off after its header was read.
        raise CheckpointError(f"its values are not there: {error}", path, key) from None
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise CheckpointError("a bool is neither 0 nor 1", path, key)
    if at % dtype.itemsize:  # native code computes on aligned memory
        array = array.copy()
    array = array if array.dtype.isnative else array.astype(dtype.newbyteorder("="))
    return _widened(array) if is_widened else array


def _widened(halves: np.ndarray) -> np.ndarray:
    """bfloat16 numbers, the upper halves of float32 numbers, as those: for want of ml_dtypes."""
    # An array of no dimensions comes out of << as a number.
    return np.asarray(halves.astype(np.uint32) << 16).view(np.float32)
