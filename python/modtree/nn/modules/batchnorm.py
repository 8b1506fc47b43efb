# SPDX-License-Identifier: BSD-3-Clause
"""Batch norms, under torch's path."""

from __future__ import annotations

from modtree.nn.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    SyncBatchNorm,
    _BatchNorm,
    _NormBase,
)
from modtree.nn.lazy_layers import LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "_BatchNorm",
    "_NormBase",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]
