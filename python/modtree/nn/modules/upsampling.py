# SPDX-License-Identifier: BSD-3-Clause
"""Upsampling, under torch's path."""

from __future__ import annotations

from modtree.nn.vision import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]
