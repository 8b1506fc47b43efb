# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers, where ``from torch.nn.parameter import Parameter`` looks for them."""

from __future__ import annotations

from modtree._tensor.parameter import Buffer, Parameter
from modtree._tensor.uninitialized import (
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
)
from modtree.core.families import is_lazy

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]
