# SPDX-License-Identifier: BSD-3-Clause
"""Batch norms, under torch's path."""

from __future__ import annotations

from modtree.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm, _NormBase

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "_BatchNorm", "_NormBase"]
