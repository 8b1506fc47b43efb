# SPDX-License-Identifier: BSD-3-Clause
"""Losses that compare element by element, with their reduction in the same row.

``reduction`` is "none", "mean" or "sum". Input and target broadcast; their derivatives come out in the broadcast shape.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops.table import define, derive
from ._common import Array, Spec, is_array, need_floating


def reduced(values: Array, reduction: str) -> Any:
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    return values.mean() if values.size else np.full((), np.nan, values.dtype)


def spread(g: Any, like: Any, reduction: str) -> Any:
    """The gradient of each value, from the gradient of what they were reduced to."""
    return g / max(math.prod(like.shape), 1) if reduction == "mean" else g


def _meta(x: Array, y: Array, reduction: str, *options: Any) -> Spec:
    if reduction != "none":
        return (), x.dtype
    return np.broadcast_shapes(x.shape, y.shape), np.result_type(x, y)


# -- distances of input and target --------------------------------------------------------------------------------------


def _mse(x: Array, y: Array, reduction: str) -> Any:
    if x.dtype.kind != "c":
        need_floating("mse_loss", x)
    return reduced(np.square(x - y), reduction)


def _mse_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str) -> Any:
    d = x - y
    return d * (spread(g, d, reduction) * 2)


def _l1(x: Array, y: Array, reduction: str) -> Any:
    return reduced(np.abs(x - y), reduction)


def _l1_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str) -> Any:
    d = np.sign(x - y)
    return d * spread(g, d, reduction)


def _smooth_l1(x: Array, y: Array, reduction: str, beta: float) -> Any:
    d = np.abs(x - y)
    if beta:
        inner = np.minimum(d, beta)
        d = inner * (d - inner * 0.5) / beta
    return reduced(d, reduction)


def _smooth_l1_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str, beta: float) -> Any:
    if not beta:
        return _l1_slope(g, None, x, y, reduction)
    d = x - y
    return _within(d / beta, 1) * spread(g, d, reduction)


def _within(d: Any, bound: float) -> Any:
    """d limited to plus or minus the bound; from the bound on without a derivative of its own."""
    if is_array(d):
        return np.minimum(np.maximum(d, -bound), bound)
    return np.where(np.abs(d) < bound, d, np.sign(d) * bound)


def _huber(x: Array, y: Array, reduction: str, delta: float) -> Any:
    d = np.abs(x - y)
    inner = np.minimum(d, delta)
    return reduced(inner * (d - inner * 0.5), reduction)


def _huber_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str, delta: float) -> Any:
    d = x - y
    return _within(d, delta) * spread(g, d, reduction)


def _minus(slope: Any) -> Any:
    """The derivative in the target, of a loss of input minus target."""
    return lambda g, _out, x, y, reduction: -slope(g, None, x, y, reduction)


def _minus_with_bound(slope: Any) -> Any:
    return lambda g, _out, x, y, reduction, bound: -slope(g, None, x, y, reduction, bound)


mse_loss = define("mse_loss", _mse, promote="arith", operands=2, meta=_meta)
l1_loss = define("l1_loss", _l1, promote="arith", operands=2, meta=_meta)
smooth_l1_loss = define("smooth_l1_loss", _smooth_l1, promote="arith", operands=2, meta=_meta)
huber_loss = define("huber_loss", _huber, promote="arith", operands=2, meta=_meta)
derive("mse_loss", _mse_slope, _minus(_mse_slope))
derive("l1_loss", _l1_slope, _minus(_l1_slope))
derive("smooth_l1_loss", _smooth_l1_slope, _minus_with_bound(_smooth_l1_slope))
derive("huber_loss", _huber_slope, _minus_with_bound(_huber_slope))

# -- distributions -------------------------------------------------------------------------------------------------------


def _kl_div(x: Array, y: Array, reduction: str, log_target: bool) -> Any:
    if log_target:
        return reduced(np.exp(y) * (y - x), reduction)
    positive = y > 0
    own = np.where(positive | np.isnan(y), y * np.log(np.where(positive, y, 1)), 0)
    return reduced(own - y * x, reduction)


def _kl_div_input(g: Any, _out: Any, x_like: Any, y: Any, reduction: str, log_target: bool) -> Any:
    shape, on_arrays = np.broadcast_shapes(x_like.shape, y.shape), is_array(g)
    if reduction == "mean":
        g = g / max(math.prod(shape), 1)
    slope = g * -(np.exp(y) if log_target else y)
    if slope.shape == shape:
        return slope
    return np.broadcast_to(slope, shape) if on_arrays else slope.expand(shape)


def _kl_div_target(g: Any, _out: Any, x: Any, y: Any, reduction: str, log_target: bool) -> Any:
    d = y - x
    g = spread(g, d, reduction)
    if log_target:
        return g * (np.exp(y) * (d + 1))
    # At 0, y log y counts as 0, with derivative 0.
    return g * (np.where(y > 0, np.log(y) + 1, y * 0) - x)


def _bce(x: Array, y: Array, reduction: str, weight: Array | None) -> Any:
    """Logarithms are cut off at -100, so that a certain and wrong answer costs a finite amount."""
    need_floating("binary_cross_entropy", x)
    if x.size and not (x.min() >= 0 and x.max() <= 1):
        raise RuntimeError(
            "all elements of input should be between 0 and 1: binary_cross_entropy takes "
            f"probabilities, got values from {x.min()} to {x.max()}. For logits use "
            "binary_cross_entropy_with_logits"
        )
    loss = (y - 1) * np.maximum(np.log1p(-x), -100) - y * np.maximum(np.log(x), -100)
    return reduced(loss if weight is None else loss * weight, reduction)


def _bce_input(g: Any, _out: Any, x: Any, y: Any, reduction: str, weight: Any) -> Any:
    g = spread(g, x, reduction)
    g = g if weight is None else g * weight
    return g * (x - y) / np.maximum((1 - x) * x, 1e-12)


def _bce_target(g: Any, _out: Any, x: Any, _y: Any, reduction: str, weight: Any) -> Any:
    g = spread(g, x, reduction)
    g = g if weight is None else g * weight
    return g * (np.maximum(np.log1p(-x), -100) - np.maximum(np.log(x), -100))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _bce_logits(
    x: Array, y: Array, reduction: str, weight: Array | None, pos_weight: Array | None
) -> Any:
    need_floating("binary_cross_entropy_with_logits", x)
    wrong = _softplus(-x)
    if pos_weight is not None:
        wrong = wrong * (y * (pos_weight - 1) + 1)
    loss = (1 - y) * x + wrong
    return reduced(loss if weight is None else loss * weight, reduction)


def _bce_logits_input(
    g: Any, _out: Any, x: Any, y: Any, reduction: str, weight: Any, pos_weight: Any
) -> Any:
    g = spread(g, x, reduction)
    g = g if weight is None else g * weight
    s = 1 / (1 + np.exp(-x))
    if pos_weight is None:
        return g * (s - y)
    return g * (1 - y - (y * (pos_weight - 1) + 1) * (1 - s))


def _bce_logits_target(
    g: Any, _out: Any, x: Any, _y: Any, reduction: str, weight: Any, pos_weight: Any
) -> Any:
    g = spread(g, x, reduction)
    g = g if weight is None else g * weight
    return g * (-x if pos_weight is None else _softplus(-x) * (pos_weight - 1) - x)


kl_div = define("kl_div", _kl_div, promote="arith", operands=2, meta=_meta)
binary_cross_entropy = define("binary_cross_entropy", _bce, promote="arith", operands=2, meta=_meta)
binary_cross_entropy_with_logits = define(
    "binary_cross_entropy_with_logits", _bce_logits, promote="arith", operands=2, meta=_meta
)
derive("kl_div", _kl_div_input, _kl_div_target)
derive("binary_cross_entropy", _bce_input, _bce_target)
derive("binary_cross_entropy_with_logits", _bce_logits_input, _bce_logits_target)
