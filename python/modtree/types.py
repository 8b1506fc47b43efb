# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments, for annotations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from modtree import _imports
from modtree._C import dtype as _dtype  # noqa: F401
from modtree._tensor.devices import device as _device
from modtree._tensor.layouts import layout as _layout  # noqa: F401
from modtree._tensor.tensor import Size, Tensor

__all__ = ["Device", "FileLike", "Number", "Size", "Tensor"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]

_Number = (int, float, bool)
_int, _float, _bool, _str, _bytes, _complex = int, float, bool, str, bytes, complex
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrOptionalTensors: TypeAlias = Tensor | Sequence[Tensor | None]
_TensorOrTensorsOrGradEdge: TypeAlias = Tensor | Sequence[Tensor] | Any

_imports.answer_for_missing(__name__)
