# SPDX-License-Identifier: BSD-3-Clause
"""max and min along a dimension, sort, argsort, topk, take_along_dim."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from modtree._C import kernels, own_index
from modtree.numpy.ops.generic import (
    kept,
    native,
    need_arrays,
    operation,
    shared_evenly,
    wrap_dim,
)
from modtree.numpy.ops.indices import scattered
from modtree.numpy.ops.reduce import axis_of, meta_of_reduction, reduction, require_size
from modtree.numpy.ops.registry import define, derive, export, not_differentiable, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor, ValuesIndices


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
    """Whether the shapes are the same, except for the axis."""
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
for _name in ("argmax", "argmin"):
    export(_name, reduction(_name))


def _return_type(name: str) -> Any:
    return namedtuple(name, ["values", "indices"])  # noqa: PYI024


_max_result = _return_type("max")
_min_result = _return_type("min")
_sort_result = _return_type("sort")
_topk_result = _return_type("topk")


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


export("max", _extreme_function("max", _max_result, "maximum"))
export("min", _extreme_function("min", _min_result, "minimum"))
for _function in (sort, argsort, topk):
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


not_differentiable("argmax", "argmin", "argsort", "topk_indices")
derive("max_all", shared_evenly)
derive("min_all", shared_evenly)
