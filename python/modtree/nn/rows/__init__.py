# SPDX-License-Identifier: BSD-3-Clause
"""The rows that :mod:`modtree.nn.functional` adds to the table of operations, one file per kind.

A file holds the function on arrays, its rule for tensors without values (``<name>_meta``: the same arguments, giving ``(shape, dtype)``), its
derivative, and the row made of them.
"""

from __future__ import annotations

from .activation import gelu, log_softmax, relu, sigmoid, silu, softmax
from .attention import attention
from .embedding import embedding
from .layer_norm import layer_norm
from .linear import linear

__all__ = [
    "attention",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
]
