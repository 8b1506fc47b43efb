# SPDX-License-Identifier: BSD-3-Clause
"""Losses over classes that are given by their number.

Inputs are (classes,), (batch, classes) or (batch, classes, ...), targets the same without the classes. Inside, every input is a matrix
(places, classes) and every target a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._C import kernels
from ...ops.table import define, derive_jointly
from ._common import Array, Spec, is_array, need_arrays, need_floating


def _check(name: str, x: Array, target: Array, weight: Array | None) -> None:
    need_arrays(name, x, target, *(() if weight is None else (weight,)))
    expected = x.shape[:1] + x.shape[2:] if x.ndim > 1 else ()
    if target.shape != expected and not (x.ndim == 1 and target.shape == (1,)):
        raise RuntimeError(
            f"{name}: Expected target size {list(expected)}, got {list(target.shape)} for an input of "
            f"size {list(x.shape)}"
        )
    need_floating(name, x)
    if target.dtype not in (np.int64, np.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {target.dtype}: {name} takes class numbers; "
            "convert with .long()"
        )
    if weight is not None:
        classes = x.shape[1 if x.ndim > 1 else 0]
        if weight.shape != (classes,):
            raise RuntimeError(
                f"{name}: weight tensor should be defined either for all {classes} classes or no classes "
                f"but got weight tensor of shape: {list(weight.shape)}"
            )
        if weight.dtype != x.dtype:
            raise RuntimeError(
                f"expected scalar type {x.dtype} but found {weight.dtype}: {name}'s weight must be of "
                "the input's dtype"
            )


def _as_matrix(x: Any) -> Any:
    if x.ndim <= 2:
        return x.reshape((-1, x.shape[-1]))
    return np.moveaxis(x, 1, -1).reshape((-1, x.shape[1]))


def _as_input(rows: Any, shape: tuple[int, ...]) -> Any:
    """The inverse of :func:`_as_matrix`."""
    if len(shape) <= 2:
        return rows.reshape(shape)
    return np.moveaxis(rows.reshape((shape[0], *shape[2:], shape[1])), -1, 1)


def _chosen(target: Array, classes: int, ignore: int) -> tuple[Array, Array | None]:
    """Class numbers that can be looked up, and where they count (None: everywhere)."""
    index = target.reshape(-1)
    if not index.size:
        return index, None
    counts = None
    low, high = index.min(), index.max()
    if low < 0 or high >= classes or low <= ignore <= high:
        counts = index != ignore
        index = np.where(counts, index, 0)
        low, high = index.min(), index.max()
        if low < 0 or high >= classes:
            raise IndexError(
                f"Target {low if low < 0 else high} is out of bounds: there are {classes} classes"
            )
    return index, counts


def _weights(index: Array, counts: Array | None, weight: Array | None, dtype: Any) -> Array | None:
    """How much each place counts; None: all 1."""
    if weight is None:
        return None if counts is None else counts.astype(dtype)
    chosen = weight[index]
    return chosen if counts is None else chosen * counts


def _total(places: Array | None, index: Array, dtype: Any) -> Any:
    return dtype.type(index.size) if places is None else places.sum()


def _picked(
    logp: Array, index: Array, places: Array | None, shape: tuple[int, ...], reduction: str
) -> tuple[Array, Any]:
    """Minus the value at each place's class, reduced; and what a mean divides by."""
    loss = -logp[np.arange(index.size), index]
    if places is not None:
        loss = np.where(places == 0, 0, loss * places)  # what is ignored may be infinite
    total = _total(places, index, logp.dtype) if reduction == "mean" else None
    if reduction == "none":
        return loss.reshape(shape), total
    return (loss.sum() if total is None else loss.sum() / total), total


def _place_gradients(g: Any, total: Any) -> Any:
    """The gradient of each place's loss: a column, or one number for all."""
    if total is not None:
        return g / total
    return g.reshape((-1, 1)) if g.ndim else g


# -- negative log likelihood ----------------------------------------------------------------------------------------------


def _nll_recorded(
    x: Array, target: Array, weight: Array | None, ignore: int, reduction: str
) -> tuple[Any, Any]:
    _check("nll_loss", x, target, weight)
    rows = _as_matrix(x)
    index, counts = _chosen(target, rows.shape[1], ignore)
    places = _weights(index, counts, weight, x.dtype)
    shape = target.shape if x.ndim > 1 else ()
    out, total = _picked(rows, index, places, shape, reduction)
    return out, (index, places, total)


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
    index, places, total = saved
    shape = x_like.shape
    classes = shape[1 if len(shape) > 1 else 0]
    array = is_array(g)
    dtype = x_like.dtype if array else g._array.dtype
    rows = np.zeros((index.size, classes), dtype)
    g = _place_gradients(g, total)
    if array:
        # Where a place does not count, the gradient is 0 even if the mean over nothing is not a number.
        slope = (
            -g.reshape(-1) if places is None else np.where(places == 0, 0, -g.reshape(-1) * places)
        )
        rows[np.arange(index.size), index] = slope
        return (_as_input(rows, shape),)
    rows[np.arange(index.size), index] = -1 if places is None else -places
    return (_as_input(g * rows, shape),)


def _meta(
    x: Array, target: Array, weight: Array | None, ignore: int, reduction: str, *_: Any
) -> Spec:
    _check("nll_loss", x, target, weight)
    return (target.shape if reduction == "none" and x.ndim > 1 else ()), x.dtype


nll_loss = define("nll_loss", _nll, meta=_meta, record=_nll_recorded)
derive_jointly("nll_loss", _nll_backward, twice=True)

# -- cross entropy: log softmax and negative log likelihood in one -----------------------------------------------------------


def _cross_entropy_recorded(
    x: Array,
    target: Array,
    weight: Array | None,
    ignore: int,
    reduction: str,
    smoothing: float,
) -> tuple[Any, Any]:
    """The loss, and for the derivative: classes, the logarithm of the softmax's denominator, what the mean divides by."""
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
        total = weight[index[counts]].sum()
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
        g = _place_gradients(g, total)
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
    """s such that the loss of each place is -sum(s * log p): its derivative is p * sum(s) - s. It does not depend on the input."""
    classes = shape[1 if len(shape) > 1 else 0]
    each = np.ones(classes, dtype) if weight is None else weight._array
    counts = index != ignore
    share = np.zeros((index.size, classes), dtype)
    places = np.flatnonzero(counts)
    share[places, index[places]] = (1 - smoothing) * each[index[places]]
    return share + counts[:, None] * each * (smoothing / classes)


cross_entropy = define("cross_entropy", _cross_entropy, meta=_meta, record=_cross_entropy_recorded)
derive_jointly("cross_entropy", _cross_entropy_backward, twice=True)
