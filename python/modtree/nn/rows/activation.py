# SPDX-License-Identifier: BSD-3-Clause
"""Activations."""

from __future__ import annotations

import numpy as np

from ..._C import kernels
from ...ops.table import define, ops
from ._common import Array, in_kernel_dtype, need_floating, same_meta


def _gelu(x: Array, tanh: bool = False) -> Array:
    need_floating("gelu", x)
    return in_kernel_dtype(lambda v: kernels.gelu(v, tanh), x)


def _silu(x: Array) -> Array:
    need_floating("silu", x)
    return x / (1 + np.exp(-x))


gelu = define("gelu", _gelu, meta=same_meta)
silu = define("silu", _silu, meta=same_meta)
relu = ops["relu"]
sigmoid = ops["sigmoid"]
softmax = ops["softmax"]
log_softmax = ops["log_softmax"]
