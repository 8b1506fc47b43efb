# SPDX-License-Identifier: BSD-3-Clause
"""Shuffling of channels, under torch's path."""

from __future__ import annotations

from modtree.nn.vision import ChannelShuffle

__all__ = ["ChannelShuffle"]
