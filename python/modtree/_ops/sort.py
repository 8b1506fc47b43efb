# SPDX-License-Identifier: BSD-3-Clause
"""max and min along a dimension, sort, argsort, topk, kthvalue, median, unique, take_along_dim."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from modtree._C import kernels, own_index
from modtree._ops.generic import (
    kept,
    native,
    need_arrays,
    operation,
    shared_evenly,
    wrap_dim,
)
from modtree._ops.indices import scattered
from modtree._ops.reduce import axis_of, meta_of_reduction, reduction, require_size
from modtree._ops.registry import define, derive, export, not_differentiable, ops

if TYPE_CHECKING:
    from modtree._argument_types import Tensor, ValuesIndices


def _arg(function: Any) -> Any:
    def forward(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if x.ndim == 0:
            wrap_dim(axis or 0, 0)
            return np.zeros((), np.int64)
        if axis is None and x.size == 0:
            raise IndexError("Expected reduction dim to be specified for input.numel() == 0")
        require_size(x, axis)
        return function(x, axis, None, keepdims=keepdims).astype(np.int64, copy=False)

    return forward


def _argsort(x: Any, axis: int, descending: bool) -> Any:
    if x.ndim == 0:
        wrap_dim(axis, 0)
        return np.zeros((), np.int64)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable").astype(np.int64)
    # Stable and descending: sort the reversed array and count from the end.
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - order, axis).astype(np.int64)


def _take_along(x: Any, index: Any, axis: int) -> Any:
    if x.ndim == 0:
        return x.reshape(index.shape)
    if x.dtype.kind in "?biufc" and index.dtype.kind in "iu" and _fits(x, index, axis):
        result = kernels.gather(x, axis, index)
        if result is not None:
            return result
    return np.take_along_axis(x, own_index(index), axis)


def _fits(x: Any, index: Any, axis: int) -> bool:
    """Are the shapes the same, except for the axis?"""
    if x.ndim != index.ndim or not -x.ndim <= axis < x.ndim:
        return False
    axis = axis % x.ndim  # not in place: it may be a tensor
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    return rest == index.shape[:axis] + index.shape[axis + 1 :]


def _take_along_meta(x: Any, index: Any, axis: int) -> Any:
    shape = list(np.broadcast_shapes(*(_without(a.shape, axis) for a in (x, index))))
    if x.ndim:
        shape[axis] = index.shape[axis]
    return shape, x.dtype


def _without(shape: tuple[int, ...], axis: int) -> list[int]:
    sizes = list(shape)
    if sizes:
        sizes[axis] = 1
    return sizes


def _add_along(source: Any, index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Zeros of that shape with source added at the indices that take_along_dim takes from."""
    if not shape:
        return source.reshape(())
    if source.shape == index.shape and _fits(source, np.empty(shape, np.bool_), axis):
        summed = np.zeros(shape, source.dtype)
        if scattered(summed, axis % len(shape), index, source, "add", True) is not None:
            return summed
    size = math.prod(shape)
    result = np.zeros(size, source.dtype)
    indices = np.arange(size).reshape(shape)
    indices = _take_along(indices, index, axis).reshape(-1)
    np.add.at(result, indices, source.reshape(-1))
    return result.reshape(shape)


def _median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    flat = np.sort(x, axis=None)
    if not flat.size:
        return np.full((), np.nan, x.dtype)
    return flat[-1] if flat[-1] != flat[-1] else flat[(flat.size - 1) // 2]


define("argmax", _arg(np.ndarray.argmax), meta=meta_of_reduction(np.int64))
define("argmin", _arg(np.ndarray.argmin), meta=meta_of_reduction(np.int64))
define("argsort", _argsort, meta=lambda x, axis, descending: (x.shape, np.int64))
define("take_along_dim", _take_along, meta=_take_along_meta)
define("add_along_dim", _add_along, meta=lambda source, index, axis, shape: (shape, source.dtype))


def _topk_indices(x: Any, k: int, axis: int, largest: bool) -> Any:
    """Where the k largest (or smallest) along an axis are, in order; NaN counts as the largest."""
    if x.ndim == 0:
        return np.zeros((), np.int64)
    if native(x):
        if x.flags.f_contiguous and x.ndim > 1:  # as it lies in memory
            places = kernels.top_indices(x.T, k, x.ndim - 1 - axis % x.ndim, largest)
            return np.ascontiguousarray(places.T)
        return kernels.top_indices(x, k, axis, largest)
    size = x.shape[axis]
    if 0 < k < size // 8:
        # Split first, then sort the few.
        split = np.argpartition(x, size - k if largest else k - 1, axis)
        split = np.take(split, range(size - k, size) if largest else range(k), axis)
        split.sort(axis)
        order = _argsort(np.take_along_axis(x, split, axis), axis, largest)
        return np.take_along_axis(split, order, axis).astype(np.int64, copy=False)
    return np.take(_argsort(x, axis, largest), range(k), axis)


def _topk_meta(x: Any, k: int, axis: int, largest: bool) -> Any:
    shape = list(x.shape)
    if shape:
        shape[axis] = k
    return shape, np.int64


define("topk_indices", _topk_indices, meta=_topk_meta)


def _median_index(x: Any, axis: int) -> Any:
    """Where the median along an axis is, kept as 1; the first NaN where there is one."""
    if x.ndim == 0:
        return np.zeros((), np.int64)
    if native(x) and x.shape[axis]:
        return kernels.kth_index(x, (x.shape[axis] - 1) // 2, axis, True)
    order = np.argsort(x, axis, kind="stable")
    place = np.take(order, [(x.shape[axis] - 1) // 2], axis)
    if x.dtype.kind == "f":
        missing = np.isnan(x)
        if missing.any():
            first = missing.argmax(axis, keepdims=True)
            place = np.where(missing.any(axis, keepdims=True), first, place)
    return place.astype(np.int64, copy=False)


def _one_kept(x: Any, axis: int) -> Any:
    shape = list(x.shape)
    if shape:
        shape[axis] = 1
    return shape, np.int64


def _kth_index(x: Any, k: int, axis: int) -> Any:
    """Where the element with k smaller ones along an axis is, kept as 1."""
    size = x.shape[axis] if x.ndim else 1
    if not size:
        raise IndexError(f"kthvalue(): Expected reduction dim {axis} to have non-zero size.")
    if not 0 <= k < size:
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {axis}: k = {k + 1}, of "
            f"{size} elements"
        )
    if x.ndim == 0:
        return np.zeros((), np.int64)
    if native(x):
        return kernels.kth_index(x, k, axis)
    return np.take(np.argsort(x, axis, kind="stable"), [k], axis)


define("kth_index", _kth_index, meta=lambda x, k, axis: _one_kept(x, axis))
define("median_index", _median_index, meta=_one_kept)
# Of all elements: NaN is equal to NaN when the gradient is shared, which amax() does not know.
define("max_all", ops["amax"].forward, meta=meta_of_reduction())
define("min_all", ops["amin"].forward, meta=meta_of_reduction())
# Extremes whose gradient goes to one element, the index that is reported, where amax() shares it.
define(
    "max",
    lambda x, index, axis, keepdims: np.maximum.reduce(x, axis, None, None, keepdims),
    meta=lambda x, index, axis, keepdims: (index.shape, x.dtype),
)
define(
    "min",
    lambda x, index, axis, keepdims: np.minimum.reduce(x, axis, None, None, keepdims),
    meta=lambda x, index, axis, keepdims: (index.shape, x.dtype),
)
define("median", _median, meta=meta_of_reduction())
for _name in ("argmax", "argmin"):
    export(_name, reduction(_name))


def _return_type(name: str) -> Any:
    return namedtuple(name, ["values", "indices"])  # noqa: PYI024


_max_result = _return_type("max")
_min_result = _return_type("min")
_sort_result = _return_type("sort")
_topk_result = _return_type("topk")
_median_result = _return_type("median")
_kthvalue_result = _return_type("kthvalue")


def _extreme_function(name: str, result_type: Any, binary: str) -> Any:
    arg, amount = ops["arg" + name], ops[name + "_all"]

    @overload
    def extreme(
        input: Tensor, dim: None = None, keepdim: bool = False, *, other: None = None
    ) -> Tensor: ...
    @overload
    def extreme(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
    @overload
    def extreme(input: Tensor, dim: Tensor) -> Tensor: ...
    @overload
    def extreme(input: Tensor, *, other: Tensor) -> Tensor: ...
    def extreme(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if other is not None or (dim is not None and not isinstance(dim, int)):
            return ops[binary](input, dim if other is None else other)
        if dim is None:
            return amount(input)
        axis = axis_of(input, dim)
        if axis is None:
            return result_type(amount(input), arg(input))
        indices = arg(input, axis=axis, keepdims=keepdim)
        return result_type(ops[name](input, indices, axis, keepdim), indices)

    extreme.__name__ = extreme.__qualname__ = name
    extreme.__doc__ = (
        f"The {name} of all elements; (values, indices) along dim; or element-wise with a tensor.\n"
        "\n"
        "Args:\n"
        "    dim: A dimension; or a tensor, which means ``other``.\n"
        "    keepdim: Leave the dimension in the result, with size 1.\n"
        "    other: A tensor that broadcasts with ``input``.\n"
    )
    return extreme


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesIndices:
    """Sorted values and their indices along dim.

    Args:
        dim: The dimension; may count from the end.
        descending: The largest first.
        stable: Equal elements keep their order; they always do.
    """
    try:
        order = ops["argsort"](input, dim, descending)
    except AttributeError:
        need_arrays("sort", input)
        raise
    return _sort_result(ops["take_along_dim"](input, order, dim), order)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Indices that sort along dim.

    Args:
        dim: The dimension; may count from the end.
        descending: The largest first.
        stable: Equal elements keep their order; they always do.
    """
    return ops["argsort"](input, dim, descending)


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The k largest (or smallest) values and their indices along dim.

    Args:
        k: How many.
        dim: The dimension; may count from the end.
        largest: The largest; else the smallest.
        sorted: In order; they always are.
    """
    dim = wrap_dim(dim, input.ndim)
    size = input.size(dim) if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: k = {k} for a dimension of size {size}")
    order = ops["topk_indices"](input, k, dim, largest)
    return _topk_result(ops["take_along_dim"](input, order, dim), order)


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest value along dim (k from 1) and its index.

    Args:
        k: Which one, from 1.
        dim: The dimension; may count from the end.
        keepdim: Leave the dimension in the result, with size 1.
    """
    dim = wrap_dim(dim, input.ndim)
    order = ops["kth_index"](input, k - 1, dim)
    values = ops["take_along_dim"](input, order, dim)
    if keepdim:
        return _kthvalue_result(values, order)
    return _kthvalue_result(values.squeeze(dim), order.squeeze(dim))


def refuse_keepdim(name: str, keepdim: bool | None) -> None:
    """Where all elements are meant there is no dimension to keep."""
    if keepdim is not None:
        raise TypeError(f"{name}(): keepdim needs a dim, which is missing")


@overload
def median(input: Tensor, dim: None = None, keepdim: None = None) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool | None = None) -> ValuesIndices: ...
def median(input: Tensor, dim: int | None = None, keepdim: bool | None = None) -> Any:
    """The median (the lower one of two); with dim also its index.

    Args:
        dim: The dimension; all elements without.
        keepdim: Leave the dimension in the result, with size 1; only with dim.
    """
    if dim is None:
        refuse_keepdim("median", keepdim)
        return ops["median"](input)
    if input.ndim == 0:
        wrap_dim(dim, 0)
    elif input.size(dim) == 0:
        raise IndexError(f"median(): Expected reduction dim {dim} to have non-zero size.")
    indices = ops["median_index"](input, dim)
    values = ops["take_along_dim"](input, indices, dim)
    if keepdim or input.ndim == 0:
        return _median_result(values, indices)
    return _median_result(values.squeeze(dim), indices.squeeze(dim))


@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    *,
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    *,
    return_inverse: Literal[True],
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    *,
    return_inverse: Literal[True],
    return_counts: Literal[True],
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any: ...
def unique(
    input: Tensor,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct values, sorted.

    Args:
        sorted: Accepted; the values are always sorted.
        return_inverse: Also the index into the result for each element.
        return_counts: Also how often each value occurs.
        dim: The dimension whose slices are compared; all elements without.
    """
    if dim is not None:
        check_slices(input, wrap_dim(dim, input.ndim))
    return ops["unique"](input, return_inverse, return_counts, dim)


def check_slices(x: Any, dim: int) -> None:
    """Slices without elements cannot be compared."""
    if any(n == 0 for i, n in enumerate(x.shape) if i != dim):
        raise RuntimeError(
            f"There are 0 sized dimensions, and they aren't selected, so unique cannot be applied: "
            f"got shape {list(x.shape)} and dim {dim}"
        )


def _unique(x: Any, inverse: bool, counts: bool, axis: Any) -> Any:
    result = np.unique(x, return_inverse=inverse, return_counts=counts, axis=axis)
    if not isinstance(result, tuple):
        return result
    values, *rest = result
    if inverse and axis is None:
        rest[0] = rest[0].reshape(x.shape)
    return (values, *rest)


define("unique", _unique)

export("max", _extreme_function("max", _max_result, "maximum"))
export("min", _extreme_function("min", _min_result, "minimum"))
for _function in (sort, argsort, topk, kthvalue, median, unique):
    export(_function.__name__, _function)

# -- derivatives -----------------------------------------------------------------------------------

_add_along_op = operation("add_along_dim")

_take = operation("take_along_dim")

derive(
    "take_along_dim",
    lambda g, _out, x_like, index, axis: _add_along_op(g, index, axis, tuple(x_like.shape)),
)

derive("add_along_dim", lambda g, _out, _source, index, axis, shape: _take(g, index, axis))


def _extreme_at(g: Any, _out: Any, x_like: Any, index: Any, axis: int, keepdims: bool) -> Any:
    shape = tuple(x_like.shape)
    g, index = (kept(v, axis, keepdims, len(shape)) for v in (g, index))
    return _add_along_op(g, index, axis, shape)


derive("max", _extreme_at)

derive("min", _extreme_at)


def _unique_refused(*_args: Any) -> Any:
    raise NotImplementedError(
        "unique() has no derivative: call it on tensor.detach(), or under modtree.no_grad()"
    )


derive("unique", _unique_refused)

not_differentiable("argmax", "argmin", "argsort", "kth_index", "median_index", "topk_indices")
derive("max_all", shared_evenly)
derive("min_all", shared_evenly)
derive("median", shared_evenly)
