# SPDX-License-Identifier: BSD-3-Clause
"""relu, gelu, silu, softplus, softmax, elu, hardtanh, leaky_relu and other activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree._C import TensorBase, as_dtype, kernels
from modtree.numpy.ops.generic import (
    Array,
    Spec,
    as_dtype_of,
    conj,
    into_in_kernel_dtype,
    is_array,
    is_complex,
    native,
    need_arrays,
    need_floating,
    operation,
    same_meta,
    select,
    slope_in_kernel_dtype,
    steady,
)
from modtree.numpy.ops.registry import define, derive, ops

_SQRT_HALF = math.sqrt(0.5)
_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
# Constants of the approximation of GELU by tanh (Hendrycks and Gimpel, 2016).
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715

relu = ops["relu"]
sigmoid = ops["sigmoid"]
softmax = ops["softmax"]
log_softmax = ops["log_softmax"]


def _sigmoid(x: Any) -> Any:
    """Of a tensor, or of an array, which NumPy makes a number of when it has no dimensions."""
    return sigmoid(x) if isinstance(x, TensorBase) else sigmoid.forward(np.asarray(x))


def _in_single(function: Callable[..., Array], *arguments: Any) -> Array:
    """What there is no kernel for, float16, is computed in float32."""
    wide = (x.astype(np.float32) if isinstance(x, np.ndarray) else x for x in arguments)
    return function(*wide).astype(np.float16)


def _passed(mask: Any, g: Any, x: Any) -> Any:
    """g where the mask holds, else 0: not a product with the mask, which is NaN for an infinite
    g.
    """
    return steady(select(mask, g), x)


def _need_ordered(name: str, x: Array) -> None:
    """For what compares numbers, integers too."""
    need_arrays(name, x)
    if x.dtype.kind not in "fiu":
        raise NotImplementedError(f'"{name}" not implemented for {x.dtype}')


def _gelu(x: Array, tanh: bool = False) -> Array:
    need_floating("gelu", x)
    return into_in_kernel_dtype(kernels.gelu, x, tanh, out=None)


def _gelu_slope(g: Any, _out: Any, x: Any, tanh: bool = False) -> Any:
    if is_array(g):
        return slope_in_kernel_dtype(kernels.gelu_backward, g, x, tanh)
    if tanh:
        t = np.tanh((x * x * _TANH_CUBIC + 1) * x * _TANH_SCALE)
        inner = (x * x * (3 * _TANH_CUBIC) + 1) * _TANH_SCALE
        return g * ((t + 1) * 0.5 + x * 0.5 * (1 - t * t) * inner)
    density = np.exp(x * x * -0.5) * _DENSITY_AT_0
    return g * (((x * _SQRT_HALF).erf() + 1) * 0.5 + x * density)


def _silu(x: Array, out: Array | None = None) -> Array:
    need_floating("silu", x)
    return into_in_kernel_dtype(kernels.silu, x, out=out)


def _silu_slope(g: Any, _out: Any, x: Any) -> Any:
    if is_array(g):
        return slope_in_kernel_dtype(kernels.silu_backward, g, x)
    s = _sigmoid(x)
    return g * (s * (x * (1 - s) + 1))


def _mish_parts(x: Any) -> tuple[Any, Any]:
    """exp(x), and n such that tanh(softplus(x)) = n / (n + 2). From 20 on that is 1 in every
    dtype.
    """
    e = np.exp(np.minimum(x, 20))
    return e, e * (e + 2)


def _mish(x: Array) -> Array:
    need_floating("mish", x)
    if x.dtype == np.float16:
        return _in_single(_mish, x)
    _, n = _mish_parts(x)
    return x * (n / (n + 2))


def _mish_slope(g: Any, out: Any, x: Any) -> Any:
    if is_array(g):
        if g.dtype == np.float16:
            return _in_single(_mish_slope, g, out, x)
    elif x.dtype == as_dtype("float16"):
        return _mish_slope(g.float(), None, x.float()).half()
    e, n = _mish_parts(x)
    t = n / (n + 2)
    return g * (t + x * (1 - t) * (1 + t) * (e / (e + 1)))


def _softplus(x: Array, beta: float, threshold: float) -> Array:
    need_floating("softplus", x)
    if native(x):
        return kernels.softplus(x, beta, threshold)
    return _in_single(kernels.softplus, x, beta, threshold)


def _softplus_slope(g: Any, _out: Any, x: Any, beta: float, threshold: float) -> Any:
    if native(g, x):
        return kernels.softplus_backward(g, x, beta, threshold)
    if is_array(g):
        return _in_single(kernels.softplus_backward, g, x, beta, threshold)
    z = x * beta
    return np.where(z > threshold, g, g * _sigmoid(z))


def _logsigmoid(x: Array) -> Array:
    need_floating("logsigmoid", x)
    if x.dtype == np.float16:
        return _in_single(_logsigmoid, x)
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _softsign(x: Array) -> Array:
    return x / (np.abs(x) + 1)


_sgn = operation("sgn")

gelu = define("gelu", _gelu, meta=same_meta)
silu = define("silu", _silu, meta=same_meta, writes_into=True)
mish = define("mish", _mish, meta=same_meta)
softplus = define("softplus", _softplus, meta=same_meta)
logsigmoid = define("logsigmoid", _logsigmoid, meta=same_meta)
softsign = define("softsign", _softsign, promote="floating", operands=1)
derive("gelu", _gelu_slope)
derive("silu", _silu_slope)
derive("mish", _mish_slope)
derive("softplus", _softplus_slope)
derive("logsigmoid", lambda g, _out, x: g * _sigmoid(-x))


def _softsign_slope(g: Any, _out: Any, x: Any) -> Any:
    size = np.abs(x)
    slope = g / np.square(size + 1)
    if not is_complex(x):
        return slope
    # Along x the slope is 1 / (1 + |x|)^2, across it 1 / (1 + |x|).
    return (slope * (size + 2) - conj(slope) * x * _sgn(x)) / 2


derive("softsign", _softsign_slope)


def _hardtanh(x: Array, low: float, high: float, out: Array | None = None) -> Array:
    if native(x) and low <= high:
        return kernels.clamp(x, low, high, out)
    need_arrays("hardtanh", x)
    kind = x.dtype.kind
    if kind == "b":
        raise RuntimeError("Bool inputs not supported for hardtanh: convert with .float()")
    if kind == "c":
        raise NotImplementedError("hardtanh is not supported for complex types")
    if kind == "f":
        return np.minimum(np.maximum(x, low), high)
    if kind == "u" and min(int(low), int(high)) < 0:
        raise RuntimeError(
            f"cannot do hardtanh on an unsigned type with negative limits, got {low} and {high}"
        )
    return np.minimum(np.maximum(x, as_dtype_of(x, int(low))), as_dtype_of(x, int(high)))


def _leaky_relu(x: Array, slope: float, out: Array | None = None) -> Array:
    """``slope`` is not negative, so that the sign of the result is that of x."""
    need_floating("leaky_relu", x)
    if native(x):
        return kernels.leaky_relu(x, slope, out=out)
    return _in_single(kernels.leaky_relu, x, slope)


def _leaky_slope(g: Any, out: Any, _x: Any, slope: float) -> Any:
    if native(g, out):
        return kernels.leaky_relu_backward(g, out, slope)
    return steady(np.where(out > 0, g, g * slope), out)


def _elu(x: Array, alpha: float, scale: float, input_scale: float) -> Array:
    """``alpha`` is not negative, likewise."""
    need_floating("elu", x)
    if x.dtype == np.float16:
        return _in_single(_elu, x, alpha, scale, input_scale)
    below = np.expm1(np.minimum(x, 0) * input_scale) * (alpha * scale)
    return np.where(x < 0, below, x * scale)


def _elu_slope(g: Any, _out: Any, x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    # Of x: near to its limit the result has few digits left of it, of float16 next to none.
    if is_array(g):
        if g.dtype == np.float16:
            return _in_single(_elu_slope, g, None, x, alpha, scale, input_scale)
    elif x.dtype == as_dtype("float16"):
        return _elu_slope(g.float(), None, x.float(), alpha, scale, input_scale).half()
    # At 0 the second derivative is 0, and NaN is above 0: torch's choices.
    below = np.exp(select(x < 0, x) * input_scale) * (alpha * scale * input_scale)
    return g * np.where(x <= 0, below, scale)


def _threshold(x: Array, threshold: float, value: float, out: Array | None = None) -> Array:
    if native(x):
        return kernels.threshold(x, threshold, value, out)
    _need_ordered("threshold", x)
    return np.where(x <= as_dtype_of(x, threshold), as_dtype_of(x, value), x)


def _hardswish(x: Array, out: Array | None = None) -> Array:
    need_floating("hardswish", x)
    if native(x):
        return kernels.hardswish(x, out=out)
    return _in_single(kernels.hardswish, x)


def _hardswish_slope(g: Any, _out: Any, x: Any) -> Any:
    if native(g, x):
        return kernels.hardswish_backward(g, x)
    if is_array(g):
        return _in_single(kernels.hardswish_backward, g, x)
    inside = np.where(x < 3, g * (select(x < 3, x) / 3 + 0.5), g)
    return select(~(x <= -3), inside)


def _hardsigmoid(x: Array, out: Array | None = None) -> Array:
    need_floating("hardsigmoid", x)
    if native(x):
        return kernels.hardsigmoid(x, out=out)
    return _in_single(kernels.hardsigmoid, x)


def _hardshrink(x: Array, limit: float) -> Array:
    need_floating("hardshrink", x)
    if native(x):
        return kernels.hardshrink(x, limit)
    return _in_single(kernels.hardshrink, x, limit)


def _softshrink(x: Array, limit: float) -> Array:
    need_floating("softshrink", x)
    if native(x):
        return kernels.softshrink(x, limit)
    return _in_single(kernels.softshrink, x, limit)


def _prelu(x: Array, weight: Array) -> Array:
    """``weight`` broadcasts to x."""
    need_floating("prelu", x)
    return np.where(x > 0, x, x * weight)


def _prelu_slope(g: Any, _out: Any, x: Any, weight: Any) -> Any:
    return steady(np.where(x > 0, g, g * weight), x)


def _prelu_meta(x: Array, weight: Array) -> Spec:
    return x.shape, x.dtype


def _hardtanh_slope(g: Any, out: Any, _x: Any, low: float, high: float) -> Any:
    if native(g, out):
        return kernels.between(g, out, low, high)
    return _passed(~((out <= low) | (out >= high)), g, out)


def _threshold_slope(g: Any, _out: Any, x: Any, threshold: float, value: float) -> Any:
    if native(g, x):
        return kernels.threshold_backward(g, x, threshold)
    return _passed(~(x <= threshold), g, x)


def _hardsigmoid_slope(g: Any, out: Any, _x: Any) -> Any:
    if native(g, out):
        return kernels.hardsigmoid_backward(g, out)
    return _passed((out > 0) & (out < 1), g / 6, out)


def _hardshrink_slope(g: Any, _out: Any, x: Any, limit: float) -> Any:
    if native(g, x):
        return kernels.shrink_backward(g, x, limit)
    return _passed(~((x >= -limit) & (x <= limit)), g, x)


def _softshrink_slope(g: Any, out: Any, _x: Any, limit: float) -> Any:
    if native(g, out):
        return kernels.shrink_backward(g, out)
    return _passed(out != 0, g, out)


hardtanh = define("hardtanh", _hardtanh, meta=same_meta, writes_into=True)
leaky_relu = define("leaky_relu", _leaky_relu, meta=same_meta, writes_into=True)
elu = define("elu", _elu, meta=same_meta)
threshold = define("threshold", _threshold, meta=same_meta, writes_into=True)
hardswish = define("hardswish", _hardswish, meta=same_meta, writes_into=True)
hardsigmoid = define("hardsigmoid", _hardsigmoid, meta=same_meta, writes_into=True)
hardshrink = define("hardshrink", _hardshrink, meta=same_meta)
softshrink = define("softshrink", _softshrink, meta=same_meta)
prelu = define("prelu", _prelu, meta=_prelu_meta)
derive("hardtanh", _hardtanh_slope)
derive("leaky_relu", _leaky_slope)
derive("elu", _elu_slope)
derive("threshold", _threshold_slope)
derive("hardswish", _hardswish_slope)
derive("hardsigmoid", _hardsigmoid_slope)
derive("hardshrink", _hardshrink_slope)
derive("softshrink", _softshrink_slope)
derive(
    "prelu",
    _prelu_slope,
    lambda g, _out, x, _weight: select(~(x > 0), g * x),
)
