# SPDX-License-Identifier: BSD-3-Clause
"""Smooth activations, and the rows of :mod:`modtree.ops` that are activations too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._C import kernels
from ...ops.table import define, derive, ops
from ._common import (
    Array,
    in_kernel_dtype,
    indicator,
    is_array,
    need_floating,
    same_meta,
    slope_in_kernel_dtype,
)

_SQRT_HALF = math.sqrt(0.5)
_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
# Constants of the approximation of GELU by tanh (Hendrycks and Gimpel, 2016).
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _gelu(x: Array, tanh: bool = False) -> Array:
    need_floating("gelu", x)
    return in_kernel_dtype(lambda v: kernels.gelu(v, tanh), x)


def _gelu_slope(g: Any, _out: Any, x: Any, tanh: bool = False) -> Any:
    if is_array(g):
        return slope_in_kernel_dtype(kernels.gelu_backward, g, x, tanh)
    if tanh:
        t = np.tanh((x * x * _TANH_CUBIC + 1) * x * _TANH_SCALE)
        inner = (x * x * (3 * _TANH_CUBIC) + 1) * _TANH_SCALE
        return g * ((t + 1) * 0.5 + x * 0.5 * (1 - t * t) * inner)
    density = np.exp(x * x * -0.5) * _DENSITY_AT_0
    return g * (((x * _SQRT_HALF).erf() + 1) * 0.5 + x * density)


def _silu(x: Array) -> Array:
    need_floating("silu", x)
    return in_kernel_dtype(kernels.silu, x)


def _silu_slope(g: Any, _out: Any, x: Any) -> Any:
    if is_array(g):
        return slope_in_kernel_dtype(kernels.silu_backward, g, x)
    s = 1 / (1 + np.exp(-x))
    return g * (s * (x * (1 - s) + 1))


def _mish_parts(x: Any) -> tuple[Any, Any]:
    """exp(x), and n such that tanh(softplus(x)) = n / (n + 2). From 20 on that is 1 in every dtype."""
    e = np.exp(np.minimum(x, 20))
    return e, e * (e + 2)


def _mish(x: Array) -> Array:
    need_floating("mish", x)
    _, n = _mish_parts(x)
    return x * (n / (n + 2))


def _mish_slope(g: Any, _out: Any, x: Any) -> Any:
    e, n = _mish_parts(x)
    t = n / (n + 2)
    return g * (t + x * (1 - t) * (1 + t) * (e / (e + 1)))


def _softplus(x: Array, beta: float, threshold: float) -> Array:
    need_floating("softplus", x)
    z = x * beta
    tail = np.log1p(np.exp(-np.abs(z))) * (z <= threshold)
    return (np.maximum(z, 0) + tail) / beta


def _softplus_slope(g: Any, _out: Any, x: Any, beta: float, threshold: float) -> Any:
    z = x * beta
    s = 1 / (1 + np.exp(-z))
    if not is_array(g):
        return np.where(z > threshold, g, g * s)
    above = indicator(z > threshold, x)
    return g * (above + (1 - above) * s)


def _logsigmoid(x: Array) -> Array:
    need_floating("logsigmoid", x)
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _softsign(x: Array) -> Array:
    return x / (np.abs(x) + 1)


gelu = define("gelu", _gelu, meta=same_meta)
silu = define("silu", _silu, meta=same_meta)
mish = define("mish", _mish, meta=same_meta)
softplus = define("softplus", _softplus, meta=same_meta)
logsigmoid = define("logsigmoid", _logsigmoid, meta=same_meta)
softsign = define("softsign", _softsign, promote="floating", operands=1)
derive("gelu", _gelu_slope)
derive("silu", _silu_slope)
derive("mish", _mish_slope)
derive("softplus", _softplus_slope)
derive("logsigmoid", lambda g, _out, x: g / (1 + np.exp(x)))
derive("softsign", lambda g, _out, x: g / np.square(np.abs(x) + 1))

relu = ops["relu"]
sigmoid = ops["sigmoid"]
softmax = ops["softmax"]
log_softmax = ops["log_softmax"]
