# SPDX-License-Identifier: BSD-3-Clause
"""Channels into pixels and back, under torch's path."""

from __future__ import annotations

from modtree.nn.vision import PixelShuffle, PixelUnshuffle

__all__ = ["PixelShuffle", "PixelUnshuffle"]
