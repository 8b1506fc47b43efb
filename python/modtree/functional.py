# SPDX-License-Identifier: BSD-3-Clause
"""Operations under the path of torch's file for those that are written in Python."""

from __future__ import annotations

from modtree import _imports
from modtree._ops.functions import (
    broadcast_shapes,
    broadcast_tensors,
    cdist,
    einsum,
    meshgrid,
    norm,
    split,
    tensordot,
)

__all__ = [
    "broadcast_shapes",
    "broadcast_tensors",
    "cdist",
    "einsum",
    "meshgrid",
    "norm",
    "split",
    "tensordot",
]

_imports.answer_for_missing(__name__)
