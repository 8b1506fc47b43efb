# SPDX-License-Identifier: BSD-3-Clause
"""Flattening, under torch's path."""

from __future__ import annotations

from modtree.nn.flatten import Flatten, Unflatten

__all__ = ["Flatten", "Unflatten"]
