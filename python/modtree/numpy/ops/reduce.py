# SPDX-License-Identifier: BSD-3-Clause
"""Reductions: sum, prod, mean, amax, amin, all, any, count_nonzero, norm, logsumexp."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_dtype
from modtree._C import _promote_types as promote_types
from modtree.numpy.ops.generic import (
    any_of,
    backwards,
    cat,
    conj,
    count,
    expand,
    kept,
    numbers,
    ones,
    operation,
    pick,
    real_dtype,
    total,
    wrap_dim,
)
from modtree.numpy.ops.registry import define, derive, export, not_differentiable, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import DType, Number, Sizes, Tensor

SCALAR_NAMES = {"b": "Bool", "i": "Long", "u": "Byte"}


def _reduced_shape(x: Any, axis: Any, keepdims: bool) -> tuple[int, ...]:
    if axis is None:
        return (1,) * x.ndim if keepdims else ()
    axes = {wrap_dim(a, x.ndim) for a in ((axis,) if isinstance(axis, int) else axis)}
    kept = ((1 if i in axes else n) for i, n in enumerate(x.shape) if keepdims or i not in axes)
    return tuple(kept)


def meta_of_reduction(dtype: Any = None) -> Any:
    """The meta rule of a reduction; dtype is a fixed one, or a function of the array's, or None for
    the same.
    """

    def rule(x: Any, axis: Any = None, keepdims: bool = False, *rest: Any, **kwargs: Any) -> Any:
        rule_of_dtype = callable(dtype) and not isinstance(dtype, type)
        result = dtype(x.dtype) if rule_of_dtype else dtype or x.dtype
        return _reduced_shape(x, axis, keepdims), kwargs.get("dtype") or result

    return rule


def axis_of(input: Any, dim: Any) -> Any:
    """NumPy's axis for torch's dim: an empty list means all; a 0-d tensor has the dims 0 and -1."""
    if dim is None:
        return None
    if isinstance(dim, (list, tuple)):
        if len(dim) == 0:
            return None
        dim = tuple(int(d) for d in dim)
        if len({wrap_dim(d, input.ndim) for d in dim}) < len(dim):
            raise RuntimeError(f"a dim appears multiple times in the list of dims {list(dim)}")
        if input.ndim == 0 and all(d in (0, -1) for d in dim):
            return None
        return dim
    if input.ndim == 0 and dim in (0, -1):
        return None
    return int(dim)


def integral_to_int64(dtype: Any) -> Any:
    return np.dtype(np.int64) if dtype.kind in "bui" else dtype


_SUMMED_AS_THEY_ARE = frozenset(map(np.dtype, (np.float32, np.float64, np.int64)))


def _accumulate(ufunc: Any) -> Any:
    """sum and prod: integers become int64, float16 adds up in float32."""

    reduce = ufunc.reduce

    def forward(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        if dtype is None and x.dtype in _SUMMED_AS_THEY_ARE:
            return reduce(x, axis, None, None, keepdims)
        target = integral_to_int64(x.dtype) if dtype is None else dtype
        if x.dtype.kind == "c" and np.dtype(target).kind == "f":
            x = x.real
        wide = np.float32 if target == np.float16 else target
        result = reduce(x, axis, wide, None, keepdims)
        return result if wide is target else result.astype(target)

    return forward


def require_float(name: str, x: Any) -> None:
    if x.dtype.kind not in "fc":
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point "
            f"or complex dtype. Got: {SCALAR_NAMES.get(x.dtype.kind, x.dtype)} instead. Pass "
            "dtype=, or convert with .float()"
        )


def _mean(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    if dtype is not None:
        x = x.astype(dtype)
    require_float("mean", x)
    if not x.size:
        return mean_of_nothing(x, axis, keepdims)
    if x.dtype == np.float16:
        return x.mean(axis=axis, keepdims=keepdims)
    # What mean() of an array does, less its Python.
    return np.add.reduce(x, axis, None, None, keepdims) / count(x.shape, axis)


def mean_of_nothing(x: Any, axis: Any, keepdims: bool) -> Any:
    nan = complex(np.nan, np.nan) if x.dtype.kind == "c" else np.nan
    return np.full(_reduced_shape(x, axis, keepdims), nan, x.dtype)


def _logsumexp(x: Any, axis: Any, keepdims: bool = False) -> Any:
    # Of nothing, the sum is 0 and its logarithm -inf.
    # The phase of complex numbers stays in the sum, so that its logarithm is the principal one.
    peak = np.maximum.reduce(x.real, axis, None, None, True, *(() if x.size else (-np.inf,)))
    if not np.isfinite(np.add.reduce(peak, None)):
        peak = np.where(np.isfinite(peak), peak, np.zeros((), peak.dtype))
    total = np.log(np.add.reduce(np.exp(x - peak), axis, None, None, keepdims))
    return total + (peak if keepdims else peak.reshape(total.shape))


def require_size(x: Any, axis: Any) -> None:
    if count(x.shape, axis) == 0 and axis is not None:
        raise IndexError(
            f"amax()/amin(): Expected reduction dim {axis} to have non-zero size (got shape "
            f"{list(x.shape)})"
        )
    if count(x.shape, axis) == 0:
        raise RuntimeError(
            "max()/min(): Expected reduction dim to be specified for input.numel() == 0, and to "
            f"have a size of 1 or more (got shape {list(x.shape)})"
        )


def _extreme(function: Any) -> Any:
    def forward(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        require_size(x, axis)
        return function(x, axis, None, None, keepdims)

    return forward


def _truth_dtype(dtype: Any) -> Any:
    """all() and any() of uint8 give uint8, from the days when bools were bytes."""
    return dtype if dtype == np.uint8 else np.dtype(np.bool_)


def _truth(function: Any) -> Any:
    def forward(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        # Over no dimension each element stays alone.
        result = x != 0 if axis == () else function(x, axis, None, None, keepdims)
        return result.astype(np.uint8) if x.dtype == np.uint8 else result

    return forward


def _norm(x: Any, axis: Any, keepdims: bool, p: Any) -> Any:
    if x.dtype == np.float16:  # whose squares overflow from 256 on
        return _norm(x.astype(np.float32), axis, keepdims, p).astype(np.float16)
    size = np.abs(x)
    if p == 2 or p == "fro":
        total = np.add.reduce(size * size, axis=axis, keepdims=keepdims)
        if np.size(total) == x.size:  # of one element each, whose square may overflow
            return np.add.reduce(size, axis=axis, keepdims=keepdims)
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


define("sum", _accumulate(np.add), meta=meta_of_reduction(integral_to_int64))
define("prod", _accumulate(np.multiply), meta=meta_of_reduction(integral_to_int64))
define("mean", _mean, meta=meta_of_reduction())
define("logsumexp", _logsumexp, promote="floating", operands=1, meta=meta_of_reduction())
define("amax", _extreme(np.maximum.reduce), meta=meta_of_reduction())
define("amin", _extreme(np.minimum.reduce), meta=meta_of_reduction())
define("all", _truth(np.logical_and.reduce), meta=meta_of_reduction(_truth_dtype))
define("any", _truth(np.logical_or.reduce), meta=meta_of_reduction(_truth_dtype))
define(
    "count_nonzero",
    lambda x, axis=None: np.asarray(np.count_nonzero(x, axis=axis), np.int64),
    meta=meta_of_reduction(np.int64),
)
define("norm", _norm, meta=meta_of_reduction(real_dtype))


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
OVER_DIM = """over ``dim``, or over all elements{more}.

Args:
    dim: One or several dimensions; may count from the end.
    keepdim: Leave the dimensions in the result, with size 1.
"""
_AXIS = "    axis: NumPy's name of ``dim``.\n"


def reduction(name: str) -> Any:
    op = ops[name]
    is_arg, is_truth = name.startswith("arg"), name in ("all", "any")
    has_dtype = name in ("sum", "prod", "mean")

    if has_dtype:

        def reduce(
            input: Tensor,
            dim: int | Sizes | None = None,
            keepdim: bool = False,
            *,
            dtype: DType | None = None,
            axis: int | Sizes | None = None,
        ) -> Tensor:
            dim = axis if dim is None else dim
            if dim is None and dtype is None and not keepdim:
                return op(input)
            if dtype is not None:
                wanted = as_dtype(dtype)
                if name == "prod" and input.is_complex() and not wanted.is_complex:
                    input = input.to(wanted)  # whose factors the gradient multiplies
                dtype = wanted.dtype
            return op(input, axis=axis_of(input, dim), keepdims=keepdim, dtype=dtype)

    else:

        def reduce(  # type: ignore[misc]
            input: Tensor,
            dim: int | Sizes | None = None,
            keepdim: bool = False,
            *,
            axis: int | Sizes | None = None,
        ) -> Tensor:
            dim = axis if dim is None else dim
            if is_arg and input._array.dtype.kind == "b":
                raise RuntimeError(f"{name}(): does not support bool input: convert with .int()")
            if is_truth and isinstance(dim, (list, tuple)) and not dim:
                return op(input, axis=())
            return op(input, axis=axis_of(input, dim), keepdims=keepdim)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{_WHAT[name]} {OVER_DIM.format(more='')}{_AXIS}"
    if has_dtype:
        reduce.__doc__ += "    dtype: Convert to this dtype first.\n"
    return reduce


for _name in ("sum", "prod", "mean", "amax", "amin", "all", "any", "logsumexp"):
    export(_name, reduction(_name))


def norm(
    input: Tensor,
    p: Number | str | None = "fro",
    dim: int | Sizes | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The p-norm over dim, or of all elements as one vector.

    Args:
        p: A number, inf or -inf; ``"fro"`` and None mean 2.
        dim: One or several dimensions; all elements without.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: Convert to this dtype first.
    """
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{str(input.dtype).rpartition('.')[2]}; convert with .float()"
        )
    if not isinstance(p, (int, float, str)) and p is not None:
        p = _order_of(p)
    if dtype is not None:
        check_norm_dtype("linalg.vector_norm", input, dtype)
        input = input.to(dtype)
    axis = axis_of(input, dim)
    if not input.numel() and isinstance(p, (int, float)) and (p < 0 or p == math.inf):
        _need_identity(input, axis, p)
    if isinstance(p, (int, float)) and p not in (0, 2) and input.numel() and _of_one(input, axis):
        p = 1  # whose powers are exact
    return ops["norm"](input, axis, keepdim, 2 if p is None else p)


def _order_of(p: Any) -> Any:
    if isinstance(p, complex):
        raise RuntimeError(
            f"linalg.vector_norm: Expected a non-complex scalar as the order of norm, got {p}"
        )
    return p.item() if isinstance(p, TensorBase) else p


def check_norm_dtype(name: str, input: Any, dtype: Any) -> None:
    """The dtype in which a norm is computed: of the input's kind, and not narrower."""
    kind = as_dtype(dtype)
    for given, word in ((input.is_complex(), "complex"), (not input.is_complex(), "real")):
        if given and (kind.is_complex if word == "real" else not kind.is_complex):
            raise RuntimeError(f"{name}: dtype should be {word} for {word} inputs, but got {kind}")
    if not (kind.is_floating_point or kind.is_complex):
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {kind}")
    if promote_types(input.dtype, kind) != kind:
        raise RuntimeError(
            f"{name}: the dtype of the input ({input.dtype}) should be convertible without "
            f"narrowing to the specified dtype ({kind})"
        )


def _of_one(input: Any, axis: Any) -> bool:
    """Whether there is one element to reduce."""
    axes = range(input.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return all(input.shape[a] == 1 for a in axes)


def _need_identity(input: Any, axis: Any, p: float) -> None:
    """The largest or smallest of no values, and negative powers of their sum, are nothing."""
    axes = range(input.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    if axis is None or any(input.shape[a] == 0 for a in axes):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {p} norm of no elements, because the operation "
            f"does not have an identity: got shape {list(input.shape)}"
        )


def count_nonzero(input: Tensor, dim: int | Sizes | None = None) -> Tensor:
    """How many elements are not zero."""
    return ops["count_nonzero"](input, axis=axis_of(input, dim))


export("norm", norm)
export("count_nonzero", count_nonzero)


# -- derivatives -----------------------------------------------------------------------------------

_cumprod, _permute, _sign = operation("cumprod"), operation("permute"), operation("sgn")

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


derive("sum", _sum)
derive("mean", _mean_vjp)


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
    return g * conj(np.exp(x - out))


derive("logsumexp", _logsumexp_vjp)

# -- products --------------------------------------------------------------------------------------


def _prod(
    g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    shape, ndim = tuple(x.shape), x.ndim
    g = kept(g, axis, keepdims, ndim)
    if ndim == 0:
        return g
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


# -- extremes --------------------------------------------------------------------------------------


def _extreme_vjp(g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    g, out = kept(g, axis, keepdims, x.ndim), kept(out, axis, keepdims, x.ndim)
    equal = numbers(x == out, x)
    return g * (equal / total(equal, axis))


derive("amax", _extreme_vjp)
derive("amin", _extreme_vjp)


not_differentiable("all", "any", "count_nonzero")
