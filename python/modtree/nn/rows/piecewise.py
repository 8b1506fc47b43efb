# SPDX-License-Identifier: BSD-3-Clause
"""Activations made of pieces. At a kink the derivative is torch's choice of one side.

Where the result tells which piece its input was on, the derivative looks at the result: the input can be overwritten, or freed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.table import define, derive
from ._common import Array, Spec, indicator, is_array, need_arrays, need_floating, same_meta


def _hardtanh(x: Array, low: float, high: float) -> Array:
    need_arrays("hardtanh", x)
    if x.dtype.kind in "iu":
        return np.clip(x, int(low), int(high))
    return np.minimum(np.maximum(x, low), high)


def _leaky_relu(x: Array, slope: float) -> Array:
    """``slope`` is not negative, so that the sign of the result is that of x."""
    need_floating("leaky_relu", x)
    return np.maximum(x, x * slope) if slope <= 1 else np.minimum(x, x * slope)


def _leaky_slope(g: Any, out: Any, _x: Any, slope: float) -> Any:
    if not is_array(g):
        return np.where(out > 0, g, g * slope)
    above = indicator(out > 0, out)
    return g * (above + (1 - above) * slope)


def _elu(x: Array, alpha: float, scale: float, input_scale: float) -> Array:
    """``alpha`` is not negative, likewise."""
    need_floating("elu", x)
    return np.maximum(x, 0) * scale + np.expm1(np.minimum(x, 0) * input_scale) * (alpha * scale)


def _elu_slope(g: Any, out: Any, _x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    if is_array(g):
        below = (np.minimum(out, 0) + alpha * scale) * input_scale
        step = scale - alpha * scale * input_scale
        return g * (below + indicator(out > 0, out) * step if step else below)
    # At 0 the second derivative is 0: torch's choice.
    below = (out * (out < 0) + alpha * scale) * input_scale
    return g * np.where(out > 0, below * 0 + scale, below)


def _threshold(x: Array, threshold: float, value: float) -> Array:
    need_arrays("threshold", x)
    return np.where(x > threshold, x, np.asarray(value).astype(x.dtype))


def _hardswish(x: Array) -> Array:
    need_floating("hardswish", x)
    return x * np.minimum(np.maximum(x + 3, 0), 6) / 6


def _hardswish_slope(g: Any, _out: Any, x: Any) -> Any:
    if not is_array(g):
        return g * np.where(x >= 3, x * 0 + 1, (x > -3) * (x / 3 + 0.5))
    inside = np.minimum(np.maximum(x, -3), 3) / 3 + 0.5
    inside *= (x > -3) & (x < 3)
    inside += x >= 3
    return g * inside


def _hardsigmoid(x: Array) -> Array:
    need_floating("hardsigmoid", x)
    return np.minimum(np.maximum(x + 3, 0), 6) / 6


def _hardshrink(x: Array, limit: float) -> Array:
    need_floating("hardshrink", x)
    return x * (np.abs(x) > limit)


def _softshrink(x: Array, limit: float) -> Array:
    need_floating("softshrink", x)
    return x - np.minimum(np.maximum(x, -limit), limit)


def _prelu(x: Array, weight: Array) -> Array:
    """``weight`` broadcasts to x."""
    need_floating("prelu", x)
    return np.maximum(x, 0) + np.minimum(x, 0) * weight


def _prelu_slope(g: Any, _out: Any, x: Any, weight: Any) -> Any:
    if not is_array(g):
        return np.where(x > 0, g, g * weight)
    above = indicator(x > 0, x)
    return g * (above + (1 - above) * weight)


def _prelu_meta(x: Array, weight: Array) -> Spec:
    return x.shape, x.dtype


hardtanh = define("hardtanh", _hardtanh, meta=same_meta)
leaky_relu = define("leaky_relu", _leaky_relu, meta=same_meta)
elu = define("elu", _elu, meta=same_meta)
threshold = define("threshold", _threshold, meta=same_meta)
hardswish = define("hardswish", _hardswish, meta=same_meta)
hardsigmoid = define("hardsigmoid", _hardsigmoid, meta=same_meta)
hardshrink = define("hardshrink", _hardshrink, meta=same_meta)
softshrink = define("softshrink", _softshrink, meta=same_meta)
prelu = define("prelu", _prelu, meta=_prelu_meta)
derive("hardtanh", lambda g, out, _x, low, high: g * ((out > low) & (out < high)))
derive("leaky_relu", _leaky_slope)
derive("elu", _elu_slope)
derive("threshold", lambda g, _out, x, threshold, value: g * (x > threshold))
derive("hardswish", _hardswish_slope)
derive("hardsigmoid", lambda g, out, _x: g * ((out > 0) & (out < 1)) / 6)
derive("hardshrink", lambda g, _out, x, limit: g * (np.abs(x) > limit))
derive("softshrink", lambda g, out, _x, limit: g * (out != 0))
derive(
    "prelu",
    _prelu_slope,
    lambda g, _out, x, _weight: g * np.minimum(x, 0),
)
