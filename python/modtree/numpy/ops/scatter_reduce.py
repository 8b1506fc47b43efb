# SPDX-License-Identifier: BSD-3-Clause
"""scatter_reduce and index_reduce: sums, products, means and extremes of what an index brings
together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, from_array
from modtree.numpy.ops.generic import operation, wrap_dim, zeros
from modtree.numpy.ops.indices import (
    along_axis,
    check_bounds,
    check_index,
    flat_indices,
    scattered,
    sum_at,
)
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

_KERNEL_MODES = {"sum": "add", "prod": "multiply"}
_MODES = ("sum", "prod", "mean", "amax", "amin")


def flat_indices_of(shape: tuple[int, ...], axis: int, index: Any) -> Any:
    """For each element of index the number, in C order, of the element of the result that it
    means.
    """
    wide = tuple(shape) or (1,)
    index = index if index.ndim else index.reshape(1)
    return flat_indices(wide, along_axis(index, axis % len(wide))).reshape(-1)


def corner(source: Any, index: Any) -> Any:
    """The part of source that index covers, as a vector."""
    if index.ndim != source.ndim:  # one of them has no dimensions
        return source.reshape(-1)[: index.size]
    return source[tuple(slice(n) for n in index.shape)].reshape(-1)


def counts(size: int, indices: Any) -> Any:
    """How many values come to each element of the result."""
    return np.bincount(indices, minlength=size)


def _scatter_reduce(
    x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> Any:
    if mode not in _MODES:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {mode}"
        )
    if index.size:
        check_index(index, "scatter_reduce")
    if source.dtype != x.dtype:
        raise RuntimeError(
            f"scatter(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and "
            f"{source.dtype}"
        )
    axis = wrap_dim(axis, x.ndim)
    if not index.size:  # of any number of dimensions
        return x.copy()
    if not max(index.ndim, 1) == max(source.ndim, 1) == max(x.ndim, 1):
        raise RuntimeError(
            "Index tensor must have the same number of dimensions as self and src tensor, got "
            f"{index.ndim}, {x.ndim} and {source.ndim}"
        )
    if index.ndim != x.ndim or source.ndim != x.ndim:  # one of them has no dimensions
        shape = x.shape
        x, index, source = (v.reshape(-1) for v in (x, index, source))
        return _scatter_reduce(x, axis, index, source, mode, include_self).reshape(shape)
    kind = x.dtype.kind
    if kind == "c" and mode in ("amax", "amin") or kind == "b" and mode == "mean":
        raise NotImplementedError(f'"scatter_reduce" by {mode} not implemented for {x.dtype}')
    if any(n > source.shape[i] for i, n in enumerate(index.shape)) or any(
        n > x.shape[i] for i, n in enumerate(index.shape) if i != axis
    ):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart "
            f"from dimension {axis} and to be no larger size than src {list(source.shape)}"
        )
    check_bounds(index, x.shape[axis] if x.ndim else 1, axis)
    if include_self and mode != "mean" and x.ndim:
        quick = scattered(x, axis, index, source, _KERNEL_MODES.get(mode, mode))
        if quick is not None:
            return quick
    indices, values = flat_indices_of(x.shape, axis, index), corner(source, index)
    flat = x.reshape(-1)
    touched = np.zeros(x.size, np.bool_)
    touched[indices] = True
    if mode in ("sum", "mean"):
        total = np.where(touched & (not include_self), x.dtype.type(0), flat)
        if x.dtype.kind in "fc":
            total = total + sum_at(x.size, indices, values)
        else:
            np.add.at(total, indices, values)
        if mode == "mean":
            count = np.maximum(counts(x.size, indices) + include_self * touched, 1)
            total = (total / count if x.dtype.kind in "fc" else total // count).astype(x.dtype)
        return total.reshape(x.shape)
    start = flat.copy()
    if not include_self:
        start[touched] = _neutral(mode, x.dtype)
    {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[mode].at(start, indices, values)
    return start.reshape(x.shape)


def _neutral(mode: str, dtype: Any) -> Any:
    """The value that leaves the others as they are."""
    if mode == "prod":
        return 1
    if dtype.kind == "f":
        return -math.inf if mode == "amax" else math.inf
    if dtype.kind == "b":
        return mode == "amin"
    info = np.iinfo(dtype)
    return info.min if mode == "amax" else info.max


define("scatter_reduce", _scatter_reduce, meta=lambda x, *_: (x.shape, x.dtype))


def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy in which the values of src that index sends to one element are brought together, with
    the element or in its place.

    Args:
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: Does the element itself count as one of the values?
    """
    return ops["scatter_reduce"](input, dim, index, src, reduce, include_self)


def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """scatter_reduce() in place.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: Does the element itself count as one of the values?
    """
    # By way of copies: the derivative needs what self was.
    return self.copy_(ops["scatter_reduce"](self.clone(), dim, index, src, reduce, include_self))


export("scatter_reduce", scatter_reduce)
export("scatter_reduce_", scatter_reduce_, function=False)


# -- derivatives -----------------------------------------------------------------------------------

_gather, _getitem, _pad = operation("gather"), operation("getitem"), operation("pad")


def _array(x: Any) -> Any:
    return x._array if isinstance(x, TensorBase) else x


def _check_factors(*factors: Any) -> None:
    if any((_array(f) == 0).any() for f in factors):
        raise RuntimeError(
            "scatter_reduce(reduce='prod') has no second derivative where a factor is zero: gather "
            "the factors and use prod()"
        )


def _shares(
    out: Any, x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> tuple[Any, Any]:
    """d result / d x, in the shape of x, and d result / d value, in the shape of index."""
    out, x, index, source = (_array(v) for v in (out, x, index, source))
    shape, size = x.shape, x.size
    indices = flat_indices_of(shape, axis, index)
    touched = counts(size, indices) > 0
    # Where x does not count, it still is the result of elements that nothing comes to.
    counted = np.ones(size, bool) if include_self else ~touched
    own, values, result = x.reshape(-1), corner(source, index), out.reshape(-1)
    if mode == "sum":
        of_x, of_values = counted, np.ones(values.size)
    elif mode == "mean":
        share = 1 / np.maximum(counts(size, indices) + counted, 1)
        of_x, of_values = counted * share, share[indices]
    elif mode == "prod":
        of_x, of_values = _of_factors(own, values, indices, counted)
    else:
        hit_x, hit = (own == result) & counted, values == result[indices]
        share = 1 / np.maximum(hit_x + np.bincount(indices, hit, size), 1)
        of_x, of_values = hit_x * share, hit * share[indices]
    return (
        of_x.astype(x.dtype, copy=False).reshape(shape),
        of_values.astype(x.dtype, copy=False).reshape(index.shape),
    )


def _of_factors(own: Any, values: Any, indices: Any, counted: Any) -> tuple[Any, Any]:
    """For each factor the product of the others; zeros among them are counted, not divided by."""
    one = own.dtype.type(1)
    zeros = np.bincount(indices, values == 0, own.size) + ((own == 0) & counted)
    product = np.where((own == 0) | ~counted, one, own)
    np.multiply.at(product, indices, np.where(values == 0, one, values))

    def without(factor: Any, total: Any, others_zero: Any) -> Any:
        rest = total / np.where(factor == 0, one, factor)
        return np.where(others_zero == (factor == 0), rest, 0)

    of_x = np.where(counted, without(np.where(counted, own, one), product, zeros), 0)
    return of_x, without(values, product[indices], zeros[indices])


def _same_kind(g: Any, share: Any) -> Any:
    return from_array(share) if isinstance(g, TensorBase) else share


def _to_self(
    g: Any, out: Any, x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> Any:
    if 0 in index.shape:
        return g
    if mode == "prod" and include_self and isinstance(g, TensorBase):
        _check_factors(x)
        return g * out / x
    share, _ = _shares(out, x, axis, index, source, mode, include_self)
    return g * _same_kind(g, share)


def _to_source(
    g: Any, out: Any, x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> Any:
    if 0 in index.shape:
        return zeros(source)
    if mode == "prod" and isinstance(g, TensorBase):
        _check_factors(source)
        used = tuple(slice(n) for n in index.shape)
        result = _gather(g * out, axis, index) / _getitem(source, used)
    else:
        _, share = _shares(out, x, axis, index, source, mode, include_self)
        result = _gather(g, axis, index) * _same_kind(g, share)
    if len(result.shape) != len(source.shape):  # one of them has no dimensions
        result = result.reshape((1,) * len(source.shape))
    if tuple(result.shape) == tuple(source.shape):
        return result
    widths = [(0, n - m) for n, m in zip(source.shape, result.shape, strict=True)]
    return _pad(result, widths, "constant", 0)


derive("scatter_reduce", _to_self, None, None, _to_source)
