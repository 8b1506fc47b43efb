# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers, where ``from torch.nn.parameter import Parameter`` looks for them."""

from __future__ import annotations

from modtree._module.parameter import Buffer, Parameter, is_lazy
from modtree._module.uninitialized import (
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
