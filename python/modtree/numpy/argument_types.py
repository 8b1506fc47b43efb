# SPDX-License-Identifier: BSD-3-Clause
"""The types that annotations of tensors' functions name.

Modules that are above the tensor import this file, and those below it only for type checkers:
``numpy.complete`` gives them its names, which typing.get_type_hints() looks for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import EllipsisType
from typing import IO, Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from modtree._C import dtype
from modtree.numpy.tensor.devices import device
from modtree.numpy.tensor.layouts import layout, memory_format
from modtree.numpy.tensor.random import Generator
from modtree.numpy.tensor.size import Size
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "DType",
    "Device",
    "FileLike",
    "Generator",
    "Index",
    "Ints",
    "Number",
    "Operand",
    "SignLog",
    "Size",
    "Sizes",
    "Tensor",
    "Tensors",
    "ValuesIndices",
    "device",
    "dtype",
    "layout",
    "memory_format",
]

Number: TypeAlias = int | float | complex | bool | np.number[Any] | np.bool_
Operand: TypeAlias = Tensor | Number | np.ndarray[Any, Any]
Sizes: TypeAlias = Sequence[int]
Ints: TypeAlias = int | Sequence[int]
Tensors: TypeAlias = Sequence[Tensor]
DType: TypeAlias = dtype | np.dtype[Any] | type[Any] | str
Device: TypeAlias = device | str
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]

_IndexItem: TypeAlias = (
    None | SupportsIndex | slice | EllipsisType | Tensor | np.ndarray[Any, Any] | Sequence[Any]
)
Index: TypeAlias = _IndexItem | tuple[_IndexItem, ...]


class ValuesIndices(NamedTuple):
    values: Tensor
    indices: Tensor


class SignLog(NamedTuple):
    sign: Tensor
    logabsdet: Tensor
