# SPDX-License-Identifier: BSD-3-Clause
"""Windows and back, under torch's path."""

from __future__ import annotations

from modtree.nn.vision import Fold, Unfold

__all__ = ["Fold", "Unfold"]
