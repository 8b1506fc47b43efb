# SPDX-License-Identifier: BSD-3-Clause
"""Instance norms, under torch's path."""

from __future__ import annotations

from modtree.nn.batchnorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "_InstanceNorm"]
