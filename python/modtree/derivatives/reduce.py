# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of reductions, scans and sorting.

amax() and amin() share the gradient between equals, as torch does. norm(), std() and prod() have finite gradients where their formulas divide by
zero: at 0, of a constant, and with zeros among the factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import TensorBase, kernels
from modtree.derivatives.both import (
    any_of,
    backwards,
    cat,
    conj,
    count,
    expand,
    kept,
    numbers,
    ones,
    row,
    total,
    where,
)
from modtree.ops.by_kernel import native
from modtree.ops.table import derive, not_differentiable

_cumprod, _cumsum = row("cumprod"), row("cumsum")
_permute, _sign, _take = row("permute"), row("sgn"), row("take_along_dim")
_add_along = row("add_along_dim")

# -- sums --------------------------------------------------------------------------------------------------------------


def _sum(
    g: Any, _out: Any, x_like: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    return expand(kept(g, axis, keepdims, x_like.ndim), tuple(x_like.shape))


def _mean(
    g: Any, _out: Any, x_like: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    shape = tuple(x_like.shape)
    return expand(kept(g, axis, keepdims, len(shape)) / max(count(shape, axis), 1), shape)


def _var(
    g: Any, _out: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: Any = 1
) -> Any:
    n = count(tuple(x.shape), axis)
    centred = x - total(x, axis) / max(n, 1)
    free = n - correction
    return kept(g, axis, keepdims, x.ndim) * (centred * (2 / free if free else float("inf")))


def _std(
    g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: Any = 1
) -> Any:
    """Of a constant the gradient is 0."""
    flat = out == 0
    return _var(where(flat, 0, g / where(flat, 1, out * 2)), None, x, axis, keepdims, correction)


derive("sum", _sum)
derive("mean", _mean)
derive("var", _var)
derive("std", _std)


def _norm(g: Any, out: Any, x: Any, axis: Any, keepdims: bool, p: Any) -> Any:
    if p == 0:
        return None
    ndim = x.ndim
    g, out = kept(g, axis, keepdims, ndim), kept(out, axis, keepdims, ndim)
    if p == 1:
        return g * _sign(x)
    zero = out == 0
    if p == 2 or p == "fro":
        return g * where(zero, 0, x / where(zero, 1, out))
    size = np.absolute(x)
    if abs(p) == float("inf"):
        equal = numbers(size == out, size)
        return g * _sign(x) * (equal / np.maximum(total(equal, axis), 1))  # 0 equal NaN
    scale = where(zero, 0, g / where(zero, 1, out) ** (p - 1))
    if p < 2:
        # |x| ** (p - 1) is infinite at 0 for p below 1, where torch gives no gradient.
        return scale * _sign(x) * where(size == 0, 0, where(size == 0, 1, size) ** (p - 1))
    return scale * x * size ** (p - 2)


derive("norm", _norm)


def _logsumexp(g: Any, out: Any, x: Any, axis: Any, keepdims: bool = False) -> Any:
    g, out = kept(g, axis, keepdims, x.ndim), kept(out, axis, keepdims, x.ndim)
    return g * np.exp(x - out)


derive("logsumexp", _logsumexp)

# -- products ----------------------------------------------------------------------------------------------------------


def _prod(
    g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    shape, ndim = tuple(x.shape), x.ndim
    g = kept(g, axis, keepdims, ndim)
    if not any_of(x == 0):
        return g * conj(kept(out, axis, keepdims, ndim) / x)
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    last = [a % ndim for a in axes]
    order = [a for a in range(ndim) if a not in last] + last
    moved = _permute(x, order)
    others = _products_of_others(moved.reshape((*moved.shape[: ndim - len(last)], -1)))
    back = [order.index(a) for a in range(ndim)]
    return expand(g, shape) * conj(_permute(others.reshape(moved.shape), back))


def _products_of_others(x: Any) -> Any:
    """For each element the product of the others in its row, without a division."""
    one = ones(x[..., :1])
    before = _cumprod(cat([one, x[..., :-1]], -1), -1)
    after = backwards(_cumprod(cat([one, backwards(x[..., 1:], -1)], -1), -1), -1)
    return before * after


derive("prod", _prod)


def _running_total_from_end(x: Any, axis: int) -> Any:
    return backwards(_cumsum(backwards(x, axis), axis), axis)


def _cumsum_gradient(g: Any, _out: Any, x_like: Any, axis: int, dtype: Any = None) -> Any:
    return g if x_like.ndim == 0 else _running_total_from_end(g, axis)


def _cumprod_gradient(g: Any, out: Any, x: Any, axis: int, dtype: Any = None) -> Any:
    """d out[j] / d x[i] is out[j] / x[i] for j >= i, and by hand for the first zero of a row; after it all is 0."""
    if x.ndim == 0:
        return g
    zero = x == 0
    if not any_of(zero):
        return _running_total_from_end(g * conj(out), axis) / conj(x)
    if isinstance(x, TensorBase):
        return _cumprod_one_by_one(g, x, axis)
    first = zero & (np.cumsum(zero, axis) == 1)
    without = np.cumprod(np.where(first, 1, x), axis)
    at_first = _running_total_from_end(g * conj(without), axis)
    before = _running_total_from_end(g * conj(out), axis) / np.where(zero, 1, conj(x))
    return np.where(first, at_first, before)


def _cumprod_one_by_one(g: Any, x: Any, axis: int) -> Any:
    """The gradient without a division by x, so that its own derivative is right at several zeros too."""
    pieces = []
    for i in range(x.shape[axis]):
        rest = x.shape[axis] - i
        at = x.narrow(axis, i, 1)
        others = cat(
            [x.narrow(axis, 0, i), at.new_ones(at.shape), x.narrow(axis, i + 1, rest - 1)], axis
        )
        products = _cumprod(others, axis).narrow(axis, i, rest)
        pieces.append(total(g.narrow(axis, i, rest) * conj(products), axis))
    return cat(pieces, axis)


derive("cumsum", _cumsum_gradient)
derive("cumprod", _cumprod_gradient)

# -- softmax -----------------------------------------------------------------------------------------------------------


def _softmax(g: Any, out: Any, _x: Any, axis: int) -> Any:
    if native(g, out) and axis in (-1, out.ndim - 1):
        return kernels.softmax_backward(g, out)
    weighted = g * out
    return weighted - out * _along(weighted, axis)


def _log_softmax(g: Any, out: Any, _x: Any, axis: int) -> Any:
    if native(g, out) and axis in (-1, out.ndim - 1):
        return kernels.log_softmax_backward(g, out)
    return g - np.exp(out) * _along(g, axis)


def _along(x: Any, axis: int) -> Any:
    return total(x, axis) if x.ndim else x


derive("softmax", _softmax)
derive("log_softmax", _log_softmax)

# -- extremes, sorting -------------------------------------------------------------------------------------------------


def _extreme(g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    g, out = kept(g, axis, keepdims, x.ndim), kept(out, axis, keepdims, x.ndim)
    equal = numbers(x == out, x)
    return g * (equal / total(equal, axis))


derive("amax", _extreme)
derive("amin", _extreme)


def _evenly(g: Any, out: Any, x: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Shared by all elements that equal the result, which may be NaN."""
    equal = x == out
    if not any_of(equal):
        equal = np.isnan(x)
    equal = numbers(equal, x)
    return g * (equal / total(equal, None))


for _name in ("max_all", "min_all", "median", "nanmedian"):
    derive(_name, _evenly)
derive(
    "take_along_dim",
    lambda g, _out, x_like, index, axis: _add_along(g, index, axis, tuple(x_like.shape)),
)
derive("add_along_dim", lambda g, _out, _source, index, axis, shape: _take(g, index, axis))


def _extreme_at(g: Any, _out: Any, x_like: Any, index: Any, axis: int, keepdims: bool) -> Any:
    shape = tuple(x_like.shape)
    g, index = (kept(v, axis, keepdims, len(shape)) for v in (g, index))
    return _add_along(g, index, axis, shape)


derive("max", _extreme_at)
derive("min", _extreme_at)


def _unique(*_args: Any) -> Any:
    raise NotImplementedError(
        "unique() has no derivative: call it on tensor.detach(), or under modtree.no_grad()"
    )


derive("unique", _unique)
not_differentiable(
    "argmax", "argmin", "argsort", "all", "any", "count_nonzero", "median_place", "topk_places"
)
