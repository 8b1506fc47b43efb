# SPDX-License-Identifier: BSD-3-Clause
"""l1_loss, mse_loss, huber_loss, kl_div, binary_cross_entropy, nll_loss, cross_entropy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import kernels, own_index
from modtree.numpy.ops.generic import (
    Array,
    Spec,
    is_array,
    native,
    need_arrays,
    need_floating,
    operation,
)
from modtree.numpy.ops.registry import define, derive, derive_jointly

_sign = operation("sgn")


def reduced(values: Array, reduction: str) -> Any:
    if reduction == "none":
        return values
    whole = values.dtype.kind in "bui"
    if reduction == "sum":
        return values.sum(dtype=np.int64 if whole else None)
    if whole:
        raise RuntimeError(
            f"mean(): the input must be of a floating or complex dtype, got {values.dtype}"
        )
    return values.mean() if values.size else np.full((), np.nan, values.dtype)


def spread(g: Any, like: Any, reduction: str) -> Any:
    """The gradient of each value, from the gradient of what they were reduced to."""
    return g / max(math.prod(like.shape), 1) if reduction == "mean" else g


def _loss_meta(x: Array, y: Array, reduction: str, *options: Any) -> Spec:
    if reduction != "none":
        return (), x.dtype
    return np.broadcast_shapes(x.shape, y.shape), np.result_type(x, y)


# -- distances of input and target -----------------------------------------------------------------


def _mse(x: Array, y: Array, reduction: str) -> Any:
    need_floating("mse_loss", x)
    return reduced(np.square(x - y), reduction)


def _mse_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str) -> Any:
    d = x - y
    return d * (spread(g, d, reduction) * 2)


def _l1(x: Array, y: Array, reduction: str) -> Any:
    return reduced(np.abs(x - y), reduction)


def _l1_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str) -> Any:
    # Not NumPy's sign: that of NaN is 0, as in torch.
    d = _sign(x - y)
    return d * spread(g, d, reduction)


def _smooth_l1(x: Array, y: Array, reduction: str, beta: float) -> Any:
    if not beta:
        if x.dtype.char == "?":
            raise RuntimeError(
                "smooth_l1_loss: two bools have no difference: convert with .float()"
            )
        return _l1(x, y, reduction)
    if native(x, y) and x.shape == y.shape:
        return reduced(kernels.huber(x, y, beta, beta), reduction)
    need_floating("smooth_l1_loss", x)
    d = np.abs(x - y)
    inner = np.minimum(d, beta)
    return reduced(inner * (d - inner * 0.5) / beta, reduction)


def _smooth_l1_slope(g: Any, _out: Any, x: Any, y: Any, reduction: str, beta: float) -> Any:
    if not beta:
        return _l1_slope(g, None, x, y, reduction)
    d = x - y
    return _within(d / beta, 1) * spread(g, d, reduction)


def _within(d: Any, bound: float) -> Any:
    """d limited to plus or minus the bound; from the bound on without a derivative of its own."""
    if native(d):
        return kernels.clamp(d, -bound, bound)
    if is_array(d):
        return np.minimum(np.maximum(d, -bound), bound)
    return np.where(np.abs(d) < bound, d, np.sign(d) * bound)


def _huber(x: Array, y: Array, reduction: str, delta: float) -> Any:
    if native(x, y) and x.shape == y.shape:
        return reduced(kernels.huber(x, y, delta, 1.0), reduction)
    need_floating("huber_loss", x)
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


mse_loss = define("mse_loss", _mse, promote="arith", operands=2, meta=_loss_meta)
l1_loss = define("l1_loss", _l1, promote="arith", operands=2, no_bool=True, meta=_loss_meta)
smooth_l1_loss = define("smooth_l1_loss", _smooth_l1, promote="arith", operands=2, meta=_loss_meta)
huber_loss = define("huber_loss", _huber, promote="arith", operands=2, meta=_loss_meta)
derive("mse_loss", _mse_slope, _minus(_mse_slope))
derive("l1_loss", _l1_slope, _minus(_l1_slope))
derive("smooth_l1_loss", _smooth_l1_slope, _minus_with_bound(_smooth_l1_slope))
derive("huber_loss", _huber_slope, _minus_with_bound(_huber_slope))

# -- distributions ---------------------------------------------------------------------------------


def _kl_div(x: Array, y: Array, reduction: str, log_target: bool) -> Any:
    if log_target:
        return reduced(np.exp(y) * (y - x), reduction)
    zero = y == 0  # which costs nothing, while a negative one is NaN
    own = np.where(zero, 0, y * np.log(np.where(zero, 1, y)))
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
    return g * (np.where(y == 0, y * 0, np.log(y) + 1) - x)


def _bce(x: Array, y: Array, reduction: str, weight: Array | None) -> Any:
    """Logarithms are cut off at -100, so that a certain and wrong answer costs a finite amount."""
    need_floating("binary_cross_entropy", x)
    for name, values in (("input", x), ("target", y)):
        if values.size and not (values.min() >= 0 and values.max() <= 1):
            raise RuntimeError(
                f"all elements of {name} should be between 0 and 1: binary_cross_entropy takes "
                f"probabilities, got values from {values.min()} to {values.max()}. For logits use "
                "binary_cross_entropy_with_logits"
            )
    loss = (y - 1) * np.maximum(np.log1p(-x), -100) - y * np.maximum(np.log(x), -100)
    if weight is not None:
        loss = (loss * weight).astype(x.dtype, copy=False)
    return reduced(loss, reduction)


def _bce_input(g: Any, _out: Any, x: Any, y: Any, reduction: str, weight: Any) -> Any:
    g = spread(g, x, reduction)
    g = g if weight is None else g * weight
    return g * (x - y) / np.maximum((1 - x) * x, 1e-12)


def _bce_target(g: Any, _out: Any, x: Any, _y: Any, reduction: str, weight: Any) -> Any:
    g = spread(g, x, reduction)
    g = g if weight is None else g * weight
    return g * (np.log1p(-x) - np.log(x))


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


kl_div = define("kl_div", _kl_div, promote="arith", operands=2, meta=_loss_meta)
binary_cross_entropy = define(
    "binary_cross_entropy", _bce, promote="arith", operands=2, meta=_loss_meta
)
binary_cross_entropy_with_logits = define(
    "binary_cross_entropy_with_logits", _bce_logits, promote="arith", operands=2, meta=_loss_meta
)
derive("kl_div", _kl_div_input, _kl_div_target)
derive("binary_cross_entropy", _bce_input, _bce_target)
derive("binary_cross_entropy_with_logits", _bce_logits_input, _bce_logits_target)


def _check(name: str, x: Array, target: Array, weight: Array | None) -> None:
    need_arrays(name, x, target, *(() if weight is None else (weight,)))
    expected = x.shape[:1] + x.shape[2:] if x.ndim > 1 else ()
    if target.shape != expected and not (x.ndim == 1 and target.shape == (1,)):
        raise RuntimeError(
            f"{name}: Expected target size {list(expected)}, got {list(target.shape)} for an input "
            f"of size {list(x.shape)}"
        )
    need_floating(name, x)
    # Bytes are taken for an input (N, C) or (C), and where there are none.
    takes_bytes = x.ndim <= 2 or target.size == 0
    if target.dtype != np.int64 and not (takes_bytes and target.dtype == np.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long{' or Byte' if takes_bytes else ''}, but got "
            f"{target.dtype}: {name} takes class numbers; convert with .long()"
        )
    if weight is not None:
        classes = x.shape[1 if x.ndim > 1 else 0]
        if weight.shape != (classes,):
            raise RuntimeError(
                f"{name}: weight tensor should be defined either for all {classes} classes or no "
                f"classes but got weight tensor of shape: {list(weight.shape)}"
            )
        if weight.dtype != x.dtype:
            raise RuntimeError(
                f"expected scalar type {x.dtype} but found {weight.dtype}: {name}'s weight must be "
                "of the input's dtype"
            )


def _as_matrix(x: Any) -> Any:
    if x.ndim == 2:
        return x
    if x.ndim == 1:
        return x.reshape((1, x.shape[0]))
    rows = x.shape[0] * math.prod(x.shape[2:])
    return np.moveaxis(x, 1, -1).reshape((rows, x.shape[1]))


def _as_input(rows: Any, shape: tuple[int, ...]) -> Any:
    """The inverse of :func:`_as_matrix`."""
    if len(shape) <= 2:
        return rows.reshape(shape)
    return np.moveaxis(rows.reshape((shape[0], *shape[2:], shape[1])), -1, 1)


def _chosen(target: Array, classes: int, ignore: int) -> tuple[Array, Array | None]:
    """Class numbers that can be looked up, and where they count (None: everywhere)."""
    index = own_index(target.reshape(-1))
    if not index.size:
        return index, None
    counts = None
    low, high = index.min(), index.max()
    if low < 0 or high >= classes or low <= ignore <= high:
        counts = index != ignore
        index = np.where(counts, index, 0)
        low, high = index.min(), index.max()
        if low < 0 or high >= classes and counts.any():
            raise IndexError(
                f"Target {low if low < 0 else high} is out of bounds: there are {classes} classes"
            )
    return index, counts


def _weights(index: Array, counts: Array | None, weight: Array | None, dtype: Any) -> Array | None:
    """How much each element counts; None: all 1."""
    if weight is None:
        return None if counts is None else counts.astype(dtype)
    chosen = weight[index] if weight.size else np.zeros(index.shape, dtype)
    return chosen if counts is None else chosen * counts


def _total(weights: Array | None, index: Array, dtype: Any) -> Any:
    return dtype.type(index.size) if weights is None else weights.sum()


def _picked(
    logp: Array,
    index: Array,
    counts: Array | None,
    weights: Array | None,
    shape: tuple[int, ...],
    reduction: str,
) -> tuple[Array, Any]:
    """Minus the value at each element's class, reduced; and what a mean divides by."""
    # Where nothing counts there may be no class to look up.
    loss = -logp[np.arange(index.size), index] if logp.size else np.zeros(index.shape, logp.dtype)
    if weights is not None:
        loss = loss * weights
    if counts is not None:
        loss = np.where(counts, loss, 0)  # what is ignored may be infinite
    total = _total(weights, index, logp.dtype) if reduction == "mean" else None
    if reduction == "none":
        return loss.reshape(shape), total
    return (loss.sum() if total is None else loss.sum() / total), total


def _element_gradients(g: Any, total: Any) -> Any:
    """The gradient of each element's loss: a column, or one number for all."""
    if total is not None:
        return g / total
    return g.reshape((-1, 1)) if g.ndim else g


# -- negative log likelihood -----------------------------------------------------------------------


def _nll_recorded(
    x: Array, target: Array, weight: Array | None, ignore: int, reduction: str
) -> tuple[Any, Any]:
    _check("nll_loss", x, target, weight)
    rows = _as_matrix(x)
    index, counts = _chosen(target, rows.shape[1], ignore)
    weights = _weights(index, counts, weight, x.dtype)
    shape = target.shape if x.ndim > 1 else ()
    out, total = _picked(rows, index, counts, weights, shape, reduction)
    return out, (index, counts, weights, total)


def _nll(x: Array, target: Array, weight: Array | None, ignore: int, reduction: str) -> Any:
    return _nll_recorded(x, target, weight, ignore, reduction)[0]


def _nll_backward(
    needs: Any,
    g: Any,
    saved: Any,
    x_like: Any,
    target: Any,
    _weight: Any,
    ignore: int,
    reduction: str,
) -> tuple[Any, ...]:
    index, counts, weights, total = saved
    shape = x_like.shape
    classes = shape[1 if len(shape) > 1 else 0]
    array = is_array(g)
    dtype = x_like.dtype if array else g._array.dtype
    rows = np.zeros((index.size, classes), dtype)
    g = _element_gradients(g, total)
    if array:
        slope = -g.reshape(-1) if weights is None else -g.reshape(-1) * weights
        if counts is not None:
            # Where an element does not count, the gradient is 0 even if the mean over nothing is
            # not a number.
            slope = np.where(counts, slope, 0)
        if rows.size:
            rows[np.arange(index.size), index] = slope
        return (_as_input(rows, shape),)
    if rows.size:
        rows[np.arange(index.size), index] = -1 if weights is None else -weights
    return (_as_input(g * rows, shape),)


def _class_loss_meta(
    x: Array, target: Array, weight: Array | None, ignore: int, reduction: str, *_: Any
) -> Spec:
    _check("nll_loss", x, target, weight)
    return (target.shape if reduction == "none" and x.ndim > 1 else ()), x.dtype


nll_loss = define("nll_loss", _nll, meta=_class_loss_meta, record=_nll_recorded)
derive_jointly("nll_loss", _nll_backward, double_backward=True)

# -- cross entropy: log softmax and negative log likelihood in one ---------------------------------


def _cross_entropy_recorded(
    x: Array,
    target: Array,
    weight: Array | None,
    ignore: int,
    reduction: str,
    smoothing: float,
) -> tuple[Any, Any]:
    """The loss, and for the derivative: classes, the logarithm of the softmax's denominator, what
    the mean divides by.
    """
    _check("cross_entropy", x, target, weight)
    if x.dtype == np.float16:
        weight = None if weight is None else weight.astype(np.float32)
        out, saved = _cross_entropy_recorded(
            x.astype(np.float32), target, weight, ignore, reduction, smoothing
        )
        return out.astype(np.float16), saved
    logits = _as_matrix(x)
    index = target.reshape(-1)
    if index.dtype != np.int64:
        index = index.astype(np.int64)
    losses, denominator = kernels.cross_entropy(logits, index, weight, ignore, smoothing)
    if reduction == "none":
        return losses.reshape(target.shape if x.ndim > 1 else ()), (index, denominator, None)
    if reduction == "sum":
        return losses.sum(), (index, denominator, None)
    counts = index != ignore
    if weight is None:
        total = losses.dtype.type(np.count_nonzero(counts))
    else:
        total = weight[index[counts]].sum() if weight.size else weight.sum()
    return losses.sum() / total, (index, denominator, total)


def _cross_entropy(
    x: Array,
    target: Array,
    weight: Array | None,
    ignore: int,
    reduction: str,
    smoothing: float,
) -> Any:
    return _cross_entropy_recorded(x, target, weight, ignore, reduction, smoothing)[0]


def _cross_entropy_backward(
    needs: Any,
    g: Any,
    saved: Any,
    x: Any,
    target: Any,
    weight: Any,
    ignore: int,
    reduction: str,
    smoothing: float,
) -> tuple[Any, ...]:
    index, denominator, total = saved
    if not is_array(g):
        g = _element_gradients(g, total)
        share = _shares(index, x.shape, weight, ignore, smoothing, denominator.dtype)
        p = _as_matrix(x).softmax(-1)
        rows = g * (p * share.sum(1, keepdims=True) - share)
        return (_as_input(rows, x.shape),)
    if x.dtype == np.float16:
        x, g = x.astype(np.float32), g.astype(np.float32)
        weight = None if weight is None else weight.astype(np.float32)
    each = np.empty(index.shape, denominator.dtype)
    each[...] = g.reshape(-1) if total is None else g / total
    rows = kernels.cross_entropy_backward(
        each, _as_matrix(x), index, denominator, weight, ignore, smoothing
    )
    return (_as_input(rows, x.shape),)


def _shares(
    index: Array,
    shape: tuple[int, ...],
    weight: Any,
    ignore: int,
    smoothing: float,
    dtype: Any,
) -> Array:
    """s such that the loss of each element is -sum(s * log p): its derivative is p * sum(s) - s. It
    does not depend on the input.
    """
    classes = shape[1 if len(shape) > 1 else 0]
    each = np.ones(classes, dtype) if weight is None else weight._array
    counts = index != ignore
    share = np.zeros((index.size, classes), dtype)
    kept = np.flatnonzero(counts)
    share[kept, index[kept]] = (1 - smoothing) * each[index[kept]]
    return share + counts[:, None] * each * (smoothing / max(classes, 1))


cross_entropy = define(
    "cross_entropy", _cross_entropy, meta=_class_loss_meta, record=_cross_entropy_recorded
)
derive_jointly("cross_entropy", _cross_entropy_backward, double_backward=True)
