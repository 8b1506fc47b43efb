# SPDX-License-Identifier: BSD-3-Clause
"""nansum, aminmax, diff, trapezoid, dist, renorm, quantile: made of other operations."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_dtype
from modtree._ops.generic import like_first, numbers, wrap_dim
from modtree._ops.reduce import axis_of, norm
from modtree._ops.registry import define, derive, export, ops
from modtree._ops.special import written_after

if TYPE_CHECKING:
    from modtree._argument_types import DType, MinMax, Number, Sizes, Tensor

_aminmax_result = namedtuple("aminmax", ["min", "max"])  # type: ignore[name-match]  # noqa: PYI024


define("nan_to_zero", lambda x: np.where(np.isnan(x), x.dtype.type(0), x), meta=like_first)
# A product, so that the mean of nothing but NaN has the gradient NaN.
derive("nan_to_zero", lambda g, _out, x: g * numbers(~np.isnan(x), x))


def nansum(
    input: Tensor,
    dim: int | Sizes | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The sum of what is not NaN.

    Args:
        dim: One or several dimensions; all without.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: The dtype of the result.
    """
    if not input.is_floating_point():
        return input.sum(dim, keepdim, dtype=dtype)
    if dtype is not None and as_dtype(dtype).dtype.kind == "c":
        raise NotImplementedError(f"\"nansum\" not implemented for '{as_dtype(dtype)}'")
    return ops["nan_to_zero"](input).sum(dim, keepdim, dtype=dtype)


def nanmean(
    input: Tensor,
    dim: int | Sizes | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The mean of what is not NaN.

    Args:
        dim: One or several dimensions; all without.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: The dtype of the result.
    """
    kind = (input.dtype if dtype is None else as_dtype(dtype)).dtype.kind
    if kind not in "fc" or input.dtype.dtype.kind not in "fc":
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype}: convert with .float()"
        )
    count = input.isnan().logical_not().sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest value, of all elements or along dim.

    Args:
        dim: The dimension; all elements without.
        keepdim: Leave the dimension in the result, with size 1.
    """
    axis = axis_of(input, dim)
    result: Any = _aminmax_result(
        ops["amin"](input, axis=axis, keepdims=keepdim),
        ops["amax"](input, axis=axis, keepdims=keepdim),
    )
    return result


# -- differences -----------------------------------------------------------------------------------


def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along dim, n times over.

    Args:
        n: How many times.
        dim: The dimension; may count from the end.
        prepend: Values in front of ``input`` along ``dim``.
        append: Values behind it.
    """
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0 and prepend is None and append is None:
        return input.clone()
    dim = wrap_dim(dim, input.ndim)
    for part in (prepend, append):
        if part is None:
            continue
        if part.ndim != input.ndim:
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input, got "
                f"{part.ndim} and {input.ndim} dimensions"
            )
        if any(i != dim and n != input.shape[i] for i, n in enumerate(part.shape)):
            raise RuntimeError(
                f"diff expects prepend or append to have the shape of input but for dimension "
                f"{dim}, got {list(part.shape)} and {list(input.shape)}"
            )
    if n == 0:
        return input.clone()
    parts = [part for part in (prepend, input, append) if part is not None]
    x = ops["cat"](parts, dim) if len(parts) > 1 else input
    for _ in range(min(n, x.size(dim))):
        size = max(x.size(dim) - 1, 0)
        later, earlier = x.narrow(dim, x.size(dim) - size, size), x.narrow(dim, 0, size)
        x = later.logical_xor(earlier) if x.dtype.name == "bool" else later - earlier
    return x


def _check_step(dx: Any) -> None:
    of_tensor = isinstance(dx, TensorBase) and (dx.dtype.name == "bool" or dx.is_complex())
    if of_tensor or isinstance(dx, (bool, complex)):
        raise RuntimeError(f"trapezoid: only real numbers are supported as dx, got {dx}")


def _slabs(y: Any, x: Any, dx: Any, dim: int) -> Any:
    """The areas between neighbours along dim."""
    if y.dtype.dtype.kind in "iu":
        y = y.to(as_dtype("int64"))  # the sum of two neighbours may not fit
    size = y.size(dim) - 1
    _check_step(dx)
    dim = wrap_dim(dim, y.ndim)
    if x is not None:
        if x.ndim == 1:
            if x.size(0) != size + 1:
                raise RuntimeError(
                    f"trapezoid: There must be one `x` value for each sample point, got "
                    f"{x.size(0)} for {size + 1}"
                )
            shape = [1] * y.ndim
            shape[dim] = -1
            x = x.reshape(shape)
        elif x.ndim < y.ndim:
            x = x.reshape((1,) * (y.ndim - x.ndim) + tuple(x.shape))
        steps = max(x.size(dim) - 1, 0)
        dx = x.narrow(dim, x.size(dim) - steps, steps) - x.narrow(dim, 0, steps)
    if size < 0:
        return y.narrow(dim, 0, 0)
    return (y.narrow(dim, 0, size) + y.narrow(dim, 1, size)) * dx / 2


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1) -> Tensor:
    """The integral along dim by the trapezoidal rule, at points x or with steps dx.

    Args:
        y: Values of the function.
        x: The points; evenly spaced without.
        dx: Their distance.
        dim: The dimension; may count from the end.
    """
    if x is None and y.ndim and y.size(dim) == 1:
        _check_step(dx)
        # Of one point the integral is 0, and NaN where the value is not finite.
        return ((y - y) * dx / 2).sum(dim)
    return _slabs(y, x, dx, dim).sum(dim)


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1
) -> Tensor:
    """The running integral along dim by the trapezoidal rule.

    Args:
        y: Values of the function.
        x: The points; evenly spaced without.
        dx: Their distance.
        dim: The dimension; may count from the end.
    """
    return _slabs(y, x, dx, dim).cumsum(dim)


# -- distances -------------------------------------------------------------------------------------


def dist(input: Tensor, other: Tensor, p: Number = 2) -> Tensor:
    """The p-norm of input - other.

    Args:
        other: A tensor that broadcasts with ``input``.
        p: A number, inf or -inf.
    """
    return norm(input - other, p)


def renorm(input: Tensor, p: Number, dim: int, maxnorm: Number) -> Tensor:
    """input with each of its slices along dim scaled down where its p-norm is above maxnorm.

    Args:
        p: The order of the norm.
        dim: The dimension; may count from the end.
        maxnorm: The largest norm allowed.
    """
    if isinstance(p, complex) or not p > 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if isinstance(maxnorm, complex):
        raise RuntimeError(f"renorm: maxnorm must be real-valued, got {maxnorm}")
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    if not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    dim = wrap_dim(dim, input.ndim)
    if maxnorm == math.inf and (input.is_floating_point() or input.is_complex()):
        return input.clone()
    if input.dtype.name == "float16":
        return renorm(input.float(), p, dim, maxnorm).to(input.dtype)
    others, where = [d for d in range(input.ndim) if d != dim], ops["where"]
    above = norm(input.detach(), p, others, True) > maxnorm
    # Slices that stay have no part in what is derived: their norm may be NaN.
    scaled = where(above, input, 1.0)
    sizes = norm(scaled, p, others, True)
    return where(above, scaled * (maxnorm / (sizes + 1e-7)), input)


# -- order -----------------------------------------------------------------------------------------


def quantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Quantiles q (a number, or a tensor with one dimension, which comes first in the result), of
    all or along dim.

    Args:
        q: Numbers from 0 to 1.
        dim: The dimension; all elements without.
        keepdim: Leave the dimension in the result, with size 1.
        interpolation: Between two elements: "linear" (the seventh definition of Hyndman and Fan,
            1996), "lower", "higher", "midpoint" or "nearest".

    Shape:
        - input: any.
        - q: (), or (Q).
        - output: that of the input without ``dim``, or () of all; behind Q where q has a dimension.
    """
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            "but got "
            f"{interpolation!r}"
        )
    if input.dtype.name not in ("float32", "float64"):
        raise RuntimeError(
            f"quantile() input tensor must be either float or double dtype, got {input.dtype}"
        )
    if not input.numel():
        raise RuntimeError("quantile() input tensor must be non-empty")
    if isinstance(q, TensorBase) and q.ndim > 1:
        raise RuntimeError(f"quantile() q must be a scalar or 1D tensor, got {q.ndim}D")
    if isinstance(q, TensorBase) and q.dtype is not input.dtype:
        raise RuntimeError(
            f"quantile() q tensor must be same dtype as the input tensor, got {q.dtype} and "
            f"{input.dtype}"
        )
    if isinstance(q, (int, float)) and not 0 <= q <= 1:
        raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}")
    if dim is not None:
        dim = wrap_dim(dim, input.ndim)
    wanted = np.atleast_1d(q._array if isinstance(q, TensorBase) else np.float64(q))
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise RuntimeError("quantile() q values must be in the range [0, 1]")
    ndim = input.ndim
    x = input.reshape(-1) if dim is None or not ndim else input.movedim(dim, -1)
    x = ops["take_along_dim"](x, ops["argsort"](x, -1, False), -1)
    ranks = wanted.astype(input.dtype.dtype) * (x.size(-1) - 1)
    if interpolation == "nearest":
        ranks = np.round(ranks)
    low, high = np.floor(ranks).astype(np.int64), np.ceil(ranks).astype(np.int64)
    own = None  # a q that needs a gradient weighs the two neighbours itself
    if interpolation == "linear" and isinstance(q, TensorBase) and q.requires_grad:
        own = q.reshape(-1) * (x.size(-1) - 1)
    results = []
    for i, (place, below, above) in enumerate(zip(ranks, low, high, strict=True)):
        a, b = x.select(-1, int(below)), x.select(-1, int(above))
        weight = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5}.get(interpolation, place - below)
        if own is not None:
            value = ops["lerp"](a, b, own[i].to(a.dtype) - float(below))
        else:
            # Between two elements that are one, too: between infinities there is no number.
            between = interpolation in ("linear", "midpoint")
            chosen = b if interpolation == "higher" else a
            value = ops["lerp"](a, b, float(weight)) if between else chosen
        # NaN sorts last: a row with one has no quantiles.
        last = x.select(-1, -1)
        results.append(ops["where"](last.isnan(), last, value))
    result = ops["stack"](results, 0) if results else x.select(-1, 0).unsqueeze(0)[:0]
    if not results and own is not None:
        result = result + own.sum()
    if keepdim:
        shape = [1] * ndim if dim is None else list(input.shape)
        if dim is not None and ndim:
            shape[dim] = 1
        result = result.reshape((len(results), *shape))
    scalar = not isinstance(q, TensorBase) or q.ndim == 0
    return result.squeeze(0) if scalar else result


_function: Any  # of one type after another
for _function in (
    nansum,
    nanmean,
    aminmax,
    diff,
    dist,
    renorm,
    quantile,
):
    export(_function.__name__, _function)
for _function in (trapezoid, cumulative_trapezoid):
    export(_function.__name__, _function, method=False)
export("trapz", trapezoid, method=False)


def msort(input: Tensor) -> Tensor:
    """Sorts along the first dimension."""
    return ops["take_along_dim"](input, ops["argsort"](input, 0, False), 0)


export("msort", msort)
export("renorm_", written_after("renorm_", renorm), function=False)
