# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers, where ``from torch.nn.parameter import Parameter`` looks for them."""

from __future__ import annotations

from modtree.core.families import is_lazy
from modtree.numpy.tensor.parameter import Buffer, Parameter
from modtree.numpy.tensor.uninitialized import (
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
)

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]
