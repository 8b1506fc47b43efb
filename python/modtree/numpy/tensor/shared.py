# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in memory that child processes share."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from modtree import _C


def _mapping(array: np.ndarray) -> Any:
    base = _C.owner_of(array).base
    return base.obj if isinstance(base, memoryview) else base


def is_shared(tensor: Any) -> bool:
    """Is the tensor's memory an anonymous shared mapping? Private ones, such as those of files,
    have a class of their own.
    """
    return type(_mapping(tensor._array)) is mmap.mmap


def share(tensor: Any) -> None:
    """Moves the values into an anonymous mapping, which processes forked later share."""
    if tensor.is_meta or is_shared(tensor):
        return
    array = tensor._array
    memory = mmap.mmap(-1, max(array.nbytes, 1))
    moved = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    moved[...] = array
    tensor.data = _C.own_array(moved)
