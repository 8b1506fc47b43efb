# SPDX-License-Identifier: BSD-3-Clause
"""Linear maps, under torch's path."""

from __future__ import annotations

from modtree.nn.lazy_layers import LazyLinear
from modtree.nn.linear import Bilinear, Identity, Linear, NonDynamicallyQuantizableLinear

__all__ = ["Bilinear", "Identity", "Linear", "NonDynamicallyQuantizableLinear", "LazyLinear"]
