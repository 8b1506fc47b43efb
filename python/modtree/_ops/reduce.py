# SPDX-License-Identifier: BSD-3-Clause
"""sum, mean, var, amax, argmax, norm, cumsum, cumprod, logsumexp, softmax and other reductions and
scans.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from modtree._C import TensorBase, as_dtype, kernels
from modtree._ops.generic import (
    any_of,
    backwards,
    cat,
    conj,
    count,
    expand,
    kept,
    like_first,
    native,
    numbers,
    ones,
    operation,
    pick,
    real_dtype,
    total,
)
from modtree._ops.registry import define, derive, export, not_differentiable, ops

_SCALAR_NAMES = {"b": "Bool", "i": "Long", "u": "Byte"}


def _reduced_shape(x: Any, axis: Any, keepdims: bool) -> tuple[int, ...]:
    if axis is None:
        return (1,) * x.ndim if keepdims else ()
    axes = {a % max(x.ndim, 1) for a in ((axis,) if isinstance(axis, int) else axis)}
    kept = ((1 if i in axes else n) for i, n in enumerate(x.shape) if keepdims or i not in axes)
    return tuple(kept)


def _meta(dtype: Any = None) -> Any:
    """The meta rule of a reduction; dtype is a fixed one, or a function of the array's, or None for
    the same.
    """

    def rule(x: Any, axis: Any = None, keepdims: bool = False, *rest: Any, **kwargs: Any) -> Any:
        rule_of_dtype = callable(dtype) and not isinstance(dtype, type)
        result = dtype(x.dtype) if rule_of_dtype else dtype or x.dtype
        return _reduced_shape(x, axis, keepdims), kwargs.get("dtype") or result

    return rule


def _axis(input: Any, dim: Any) -> Any:
    """NumPy's axis for torch's dim: an empty list means all; a 0-d tensor has the dims 0 and -1."""
    if dim is None:
        return None
    if isinstance(dim, (list, tuple)):
        if len(dim) == 0:
            return None
        dim = tuple(int(d) for d in dim)
        if len({d % max(input.ndim, 1) for d in dim}) < len(dim):
            raise RuntimeError(f"a dim appears multiple times in the list of dims {list(dim)}")
        if input.ndim == 0 and all(d in (0, -1) for d in dim):
            return None
        return dim
    if input.ndim == 0 and dim in (0, -1):
        return None
    return int(dim)


def _integral_to_int64(dtype: Any) -> Any:
    return np.dtype(np.int64) if dtype.kind in "bui" else dtype


_SUMMED_AS_THEY_ARE = frozenset(map(np.dtype, (np.float32, np.float64, np.int64)))


def _accumulate(ufunc: Any) -> Any:
    """sum and prod: integers become int64, float16 adds up in float32."""

    reduce = ufunc.reduce

    def forward(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        if dtype is None and x.dtype in _SUMMED_AS_THEY_ARE:
            return reduce(x, axis, None, None, keepdims)
        target = _integral_to_int64(x.dtype) if dtype is None else dtype
        if x.dtype.kind == "c" and np.dtype(target).kind == "f":
            x = x.real
        wide = np.float32 if target == np.float16 else target
        result = reduce(x, axis, wide, None, keepdims)
        return result if wide is target else result.astype(target)

    return forward


def _require_float(name: str, x: Any) -> None:
    if x.dtype.kind not in "fc":
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating "
            f"point or complex "
            f"dtype. Got: {_SCALAR_NAMES.get(x.dtype.kind, x.dtype)} instead. Pass dtype=, or "
            f"convert with .float()"
        )


def _mean(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    if dtype is not None:
        x = x.astype(dtype)
    _require_float("mean", x)
    if not x.size:
        return _empty_mean(x, axis, keepdims)
    if x.dtype == np.float16:
        return x.mean(axis=axis, keepdims=keepdims)
    # What mean() of an array does, less its Python.
    return np.add.reduce(x, axis, None, None, keepdims) / _count(x, axis)


def _empty_mean(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.full(_reduced_shape(x, axis, keepdims), np.nan, x.dtype)


def _count(x: Any, axis: Any) -> int:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    count = 1
    for a in axes:
        count *= x.shape[a]
    return count


def _var(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 1) -> Any:
    _require_float("var", x)
    n = _count(x, axis)
    work = x.astype(np.float32) if x.dtype == np.float16 else x
    if n == 0:
        return _empty_mean(x, axis, keepdims)
    centred = work - np.add.reduce(work, axis, None, None, True) / n
    squares = (centred * centred.conj()).real if x.dtype.kind == "c" else centred * centred
    total = np.add.reduce(squares, axis, None, None, keepdims)
    divisor = float(max(n - correction, 0))
    if divisor == 0:
        warnings.warn(
            f"var()/std(): degrees of freedom is <= 0 ({n} elements with "
            f"correction={correction}): the result is not a "
            "number; use correction=0 or more elements",
            stacklevel=4,
        )
    result = total / divisor if divisor else total / total.dtype.type(0)
    return result.astype(np.float16) if x.dtype == np.float16 else result


def _std(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 1) -> Any:
    return np.sqrt(_var(x, axis, keepdims, correction))


def _logsumexp(x: Any, axis: Any, keepdims: bool = False) -> Any:
    # Of nothing, the sum is 0 and its logarithm -inf.
    peak = np.maximum.reduce(x, axis, None, None, True, *(() if x.size else (-np.inf,)))
    if not np.isfinite(np.add.reduce(peak, None)):
        peak = np.where(np.isfinite(peak), peak, np.zeros((), x.dtype))
    total = np.log(np.add.reduce(np.exp(x - peak), axis, None, None, keepdims))
    return total + (peak if keepdims else peak.reshape(total.shape))


def _require_size(x: Any, axis: Any) -> None:
    if _count(x, axis) == 0 and axis is not None:
        raise IndexError(
            f"amax()/amin(): Expected reduction dim {axis} to have non-zero size (got shape "
            f"{list(x.shape)})"
        )
    if _count(x, axis) == 0:
        raise RuntimeError(
            "max()/min(): Expected reduction dim to be specified for input.numel() == 0, and to "
            "have a size "
            f"of 1 or more (got shape {list(x.shape)})"
        )


def _extreme(function: Any) -> Any:
    def forward(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        _require_size(x, axis)
        return function(x, axis, None, None, keepdims)

    return forward


def _truth_dtype(dtype: Any) -> Any:
    """all() and any() of uint8 give uint8, from the days when bools were bytes."""
    return dtype if dtype == np.uint8 else np.dtype(np.bool_)


def _truth(function: Any) -> Any:
    def forward(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        result = function(x, axis, None, None, keepdims)
        return result.astype(np.uint8) if x.dtype == np.uint8 else result

    return forward


def _norm(x: Any, axis: Any, keepdims: bool, p: Any) -> Any:
    size = np.abs(x)
    if p == 2 or p == "fro":
        total = np.add.reduce(size * size, axis=axis, keepdims=keepdims)
        return np.sqrt(total)
    if p == float("inf"):
        return np.max(size, axis=axis, keepdims=keepdims, initial=0)
    if p == float("-inf"):
        return np.min(size, axis=axis, keepdims=keepdims)
    if p == 0:
        return np.add.reduce((size != 0).astype(size.dtype), axis=axis, keepdims=keepdims)
    if p == 1:
        return np.add.reduce(size, axis=axis, keepdims=keepdims)
    return np.add.reduce(size**p, axis=axis, keepdims=keepdims) ** (1.0 / p)


def _scan(function: Any, product: bool) -> Any:
    def forward(x: Any, axis: int, dtype: Any = None) -> Any:
        if native(x) and -x.ndim <= axis < x.ndim and (dtype is None or dtype == x.dtype):
            return kernels.scan(x, axis, product)
        target = _integral_to_int64(x.dtype) if dtype is None else np.dtype(dtype)
        return x.astype(target) if x.ndim == 0 else function(x, axis, target)

    return forward


def _scan_meta(x: Any, axis: int, dtype: Any = None) -> Any:
    return x.shape, dtype or _integral_to_int64(x.dtype)


def _along(kernel: Any, otherwise: Any, x: Any, axis: int) -> Any:
    """A kernel along the last axis; along others NumPy's functions, which go through the memory in
    order.
    """
    _require_softmax_float(x)
    if x.dtype == np.float16:
        return _along(kernel, otherwise, x.astype(np.float32), axis).astype(np.float16)
    if x.ndim == 0 or axis in (-1, x.ndim - 1):
        return kernel(x)
    return otherwise(x - np.maximum.reduce(x, axis, None, None, True, -np.inf), axis)


def _normalized_exp(x: Any, axis: int) -> Any:
    np.exp(x, out=x)
    x /= np.add.reduce(x, axis, None, None, True)
    return x


def _less_log_sum_exp(x: Any, axis: int) -> Any:
    x -= np.log(np.add.reduce(np.exp(x), axis, None, None, True))
    return x


def _softmax(x: Any, axis: int) -> Any:
    return _along(kernels.softmax, _normalized_exp, x, axis)


def _log_softmax(x: Any, axis: int) -> Any:
    return _along(kernels.log_softmax, _less_log_sum_exp, x, axis)


def _require_softmax_float(x: Any) -> None:
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f"\"softmax\" not implemented for '{_SCALAR_NAMES.get(x.dtype.kind, x.dtype)}': "
            f"convert with .float()"
        )


define("sum", _accumulate(np.add), meta=_meta(_integral_to_int64))
define("prod", _accumulate(np.multiply), meta=_meta(_integral_to_int64))
define("mean", _mean, meta=_meta())
define("var", _var, meta=_meta(real_dtype))
define("std", _std, meta=_meta(real_dtype))
define("logsumexp", _logsumexp, promote="floating", operands=1, meta=_meta())
define("amax", _extreme(np.maximum.reduce), meta=_meta())
define("amin", _extreme(np.minimum.reduce), meta=_meta())
define("all", _truth(np.logical_and.reduce), meta=_meta(_truth_dtype))
define("any", _truth(np.logical_or.reduce), meta=_meta(_truth_dtype))
define(
    "count_nonzero",
    lambda x, axis=None: np.asarray(np.count_nonzero(x, axis=axis), np.int64),
    meta=_meta(np.int64),
)
define("norm", _norm, meta=_meta(real_dtype))
define("cumsum", _scan(np.add.accumulate, False), meta=_scan_meta)
define("cumprod", _scan(np.multiply.accumulate, True), meta=_scan_meta)
define("softmax", _softmax, meta=like_first)
define("log_softmax", _log_softmax, meta=like_first)


_WHAT = {
    "sum": "The sum",
    "prod": "The product",
    "mean": "The mean",
    "amax": "The largest element",
    "amin": "The smallest element",
    "argmax": "The index of the largest element",
    "argmin": "The index of the smallest element",
    "all": "Whether all elements are nonzero,",
    "any": "Whether any element is nonzero,",
    "logsumexp": "log(sum(exp(x))), computed without overflow,",
}
_ARGS = """over ``dim``, or over all elements{more}.

Args:
    dim: One or several dimensions; may count from the end.
    keepdim: Leave the dimensions in the result, with size 1.
"""
_AXIS = "    axis: NumPy's name of ``dim``.\n"


def _reduction(name: str) -> Any:
    op = ops[name]
    is_arg = name.startswith("arg")
    has_dtype = name in ("sum", "prod", "mean")

    if has_dtype:

        def reduce(
            input: Any,
            dim: Any = None,
            keepdim: bool = False,
            *,
            dtype: Any = None,
            axis: Any = None,
        ) -> Any:
            dim = axis if dim is None else dim
            if dim is None and dtype is None and not keepdim:
                return op(input)
            if dtype is not None:
                dtype = as_dtype(dtype).dtype
            return op(input, axis=_axis(input, dim), keepdims=keepdim, dtype=dtype)

    else:

        def reduce(input: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None) -> Any:  # type: ignore[misc]
            dim = axis if dim is None else dim
            if is_arg and input._array.dtype.kind == "b":
                raise RuntimeError(f"{name}(): does not support bool input: convert with .int()")
            return op(input, axis=_axis(input, dim), keepdims=keepdim)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{_WHAT[name]} {_ARGS.format(more='')}{_AXIS}"
    if has_dtype:
        reduce.__doc__ += "    dtype: Convert to this dtype first.\n"
    return reduce


for _name in ("sum", "prod", "mean", "amax", "amin", "all", "any", "logsumexp"):
    export(_name, _reduction(_name))


def _moment(name: str) -> Any:
    op = ops[name]

    def reduce(
        input: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):  # var(unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return op(input, axis=_axis(input, dim), keepdims=keepdim, correction=correction)

    reduce.__name__ = reduce.__qualname__ = name
    what = "The variance" if name == "var" else "The standard deviation"
    reduce.__doc__ = (
        f"{what} {_ARGS.format(more='; n - correction is the divisor')}"
        "    unbiased: Divide by n - 1, which is the default, or else by n.\n"
        "    correction: Divide by n - correction.\n"
    )
    return reduce


var = _moment("var")
std = _moment("std")
export("var", var)
export("std", std)


def var_mean(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    """Variance and mean.

    Args:
        dim: One or several dimensions; all without.
        unbiased: Divide by n - 1; the default.
        keepdim: Leave the dimension in the result, with size 1.
        kwargs: ``correction``: divide by n - correction.
    """
    mean = ops["mean"](
        input, axis=_axis(input, None if isinstance(dim, bool) else dim), keepdims=keepdim
    )
    return var(input, dim, unbiased, keepdim, correction=correction), mean


export("var_mean", var_mean, method=False)


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """The p-norm over dim, or of all elements as one vector.

    Args:
        p: A number, inf or -inf; ``"fro"`` and None mean 2.
        dim: One or several dimensions; all elements without.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: Convert to this dtype first.
    """
    if dtype is not None:
        input = input.to(dtype)
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{str(input.dtype).rpartition('.')[2]}; convert with .float()"
        )
    return ops["norm"](input, _axis(input, dim), keepdim, 2 if p is None else p)


def count_nonzero(input: Any, dim: Any = None) -> Any:
    """How many elements are not zero."""
    return ops["count_nonzero"](input, axis=_axis(input, dim))


def cumsum(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Running sum along dim.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["cumsum"](input, dim, dtype=None if dtype is None else as_dtype(dtype).dtype)


def cumprod(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Running product along dim.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["cumprod"](input, dim, dtype=None if dtype is None else as_dtype(dtype).dtype)


def softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along dim.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["softmax"](input if dtype is None else input.to(dtype), dim)


def log_softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """log(softmax(x)) along dim, computed without overflow.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["log_softmax"](input if dtype is None else input.to(dtype), dim)


for _function in (norm, count_nonzero, cumsum, cumprod, softmax, log_softmax):
    export(_function.__name__, _function)


# -- derivatives -----------------------------------------------------------------------------------

_cumprod, _cumsum = operation("cumprod"), operation("cumsum")
_permute, _sign, _take = operation("permute"), operation("sgn"), operation("take_along_dim")
_add_along = operation("add_along_dim")

# -- sums ------------------------------------------------------------------------------------------


def _sum(
    g: Any, _out: Any, x_like: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    return expand(kept(g, axis, keepdims, x_like.ndim), tuple(x_like.shape))


def _mean_vjp(
    g: Any, _out: Any, x_like: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    shape = tuple(x_like.shape)
    return expand(kept(g, axis, keepdims, len(shape)) / max(count(shape, axis), 1), shape)


def _var_vjp(
    g: Any, _out: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: Any = 1
) -> Any:
    n = count(tuple(x.shape), axis)
    centred = x - total(x, axis) / max(n, 1)
    free = n - correction
    return kept(g, axis, keepdims, x.ndim) * (centred * (2 / free if free else float("inf")))


def _std_vjp(
    g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: Any = 1
) -> Any:
    """Of a constant the gradient is 0."""
    flat = out == 0
    return _var_vjp(pick(flat, 0, g / pick(flat, 1, out * 2)), None, x, axis, keepdims, correction)


derive("sum", _sum)
derive("mean", _mean_vjp)
derive("var", _var_vjp)
derive("std", _std_vjp)


def _norm_vjp(g: Any, out: Any, x: Any, axis: Any, keepdims: bool, p: Any) -> Any:
    if p == 0:
        return None
    ndim = x.ndim
    g, out = kept(g, axis, keepdims, ndim), kept(out, axis, keepdims, ndim)
    if p == 1:
        return g * _sign(x)
    zero = out == 0
    if p == 2 or p == "fro":
        return g * pick(zero, 0, x / pick(zero, 1, out))
    size = np.absolute(x)
    if abs(p) == float("inf"):
        equal = numbers(size == out, size)
        return g * _sign(x) * (equal / np.maximum(total(equal, axis), 1))  # 0 equal NaN
    scale = pick(zero, 0, g / pick(zero, 1, out) ** (p - 1))
    if p < 2:
        # |x| ** (p - 1) is infinite at 0 for p below 1, where torch gives no gradient.
        return scale * _sign(x) * pick(size == 0, 0, pick(size == 0, 1, size) ** (p - 1))
    return scale * x * size ** (p - 2)


derive("norm", _norm_vjp)


def _logsumexp_vjp(g: Any, out: Any, x: Any, axis: Any, keepdims: bool = False) -> Any:
    g, out = kept(g, axis, keepdims, x.ndim), kept(out, axis, keepdims, x.ndim)
    return g * np.exp(x - out)


derive("logsumexp", _logsumexp_vjp)

# -- products --------------------------------------------------------------------------------------


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
    if native(x):
        return kernels.scan(x, axis, False, True)
    return backwards(_cumsum(backwards(x, axis), axis), axis)


def _cumsum_gradient(g: Any, _out: Any, x_like: Any, axis: int, dtype: Any = None) -> Any:
    return g if x_like.ndim == 0 else _running_total_from_end(g, axis)


def _cumprod_gradient(g: Any, out: Any, x: Any, axis: int, dtype: Any = None) -> Any:
    """d out[j] / d x[i] is out[j] / x[i] for j >= i, and by hand for the first zero of a row; after
    it all is 0.
    """
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
    """The gradient without a division by x, so that its own derivative is right at several zeros
    too.
    """
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

# -- softmax ---------------------------------------------------------------------------------------


def _softmax_vjp(g: Any, out: Any, _x: Any, axis: int) -> Any:
    if native(g, out) and axis in (-1, out.ndim - 1):
        return kernels.softmax_backward(g, out)
    weighted = g * out
    return weighted - out * _along_vjp(weighted, axis)


def _log_softmax_vjp(g: Any, out: Any, _x: Any, axis: int) -> Any:
    if native(g, out) and axis in (-1, out.ndim - 1):
        return kernels.log_softmax_backward(g, out)
    return g - np.exp(out) * _along_vjp(g, axis)


def _along_vjp(x: Any, axis: int) -> Any:
    return total(x, axis) if x.ndim else x


derive("softmax", _softmax_vjp)
derive("log_softmax", _log_softmax_vjp)

# -- extremes, sorting -----------------------------------------------------------------------------


def _extreme_vjp(g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    g, out = kept(g, axis, keepdims, x.ndim), kept(out, axis, keepdims, x.ndim)
    equal = numbers(x == out, x)
    return g * (equal / total(equal, axis))


derive("amax", _extreme_vjp)
derive("amin", _extreme_vjp)


not_differentiable("all", "any", "count_nonzero")
