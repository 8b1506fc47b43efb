# SPDX-License-Identifier: BSD-3-Clause
"""Norms of layers and groups, under torch's path."""

from __future__ import annotations

from modtree.nn.normalization import GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]
