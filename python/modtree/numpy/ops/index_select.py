# SPDX-License-Identifier: BSD-3-Clause
"""index_select, index_add, index_copy, index_fill: slices of one dimension that a vector of indices
names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, fitted_number, from_array, own_index
from modtree.numpy.ops.generic import like_first, operation, wrap_dim
from modtree.numpy.ops.indices import (
    at_least_1d,
    check_bounds,
    check_index,
    check_long,
    shape_given,
    slices,
    sum_slices,
)
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Tensor


def _index_select(x: Any, axis: int, index: Any) -> Any:
    check_index(index, "index_select")
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    wide, index_1d = at_least_1d(x), at_least_1d(index)
    if x.ndim == 0 and index.size > 1:
        raise RuntimeError(
            f"index_select(): Index to scalar can have only 1 value, got {index.size} value(s)"
        )
    if index.size and (index.min() < 0 or index.max() >= wide.shape[axis]):
        raise IndexError("index out of range in self")
    result = np.take(wide, index_1d, axis=axis)
    return result.reshape(()) if x.ndim == 0 and index.size == 1 else result


def _index_select_meta(x: Any, axis: int, index: Any) -> Any:
    shape = list(x.shape)
    if shape:
        shape[axis] = index.size
    return shape, x.dtype


def _index_select_backward(g: Any, shape: tuple[int, ...], axis: int, index: Any) -> Any:
    """Zeros of a shape with each slice of g added where index_select() picked it."""
    if not shape:
        return g.sum(dtype=g.dtype).reshape(())
    return sum_slices(g, shape[axis], axis, index.reshape(-1))


def _index_add(x: Any, axis: int, index: Any, source: Any, alpha: Any) -> Any:
    if index.ndim > 1:
        raise IndexError(
            f"index_add_(): Index is supposed to be a vector, but got dim: {index.ndim}"
        )
    check_index(index, "index_add")
    if source.dtype != x.dtype:
        raise RuntimeError(
            f"index_add_(): self ({x.dtype}) and source ({source.dtype}) must have the same scalar "
            f"type"
        )
    result = x.copy()
    wide, index = at_least_1d(result), index.reshape(-1)
    axis = wrap_dim(axis, wide.ndim)
    expected = (*wide.shape[:axis], index.size, *wide.shape[axis + 1 :])
    one_scalar = (source.ndim == 0) != (x.ndim == 0)
    source = at_least_1d(source)
    if source.shape != expected or one_scalar:
        raise RuntimeError(
            f"index_add(): source of shape {list(source.shape)} does not match {list(expected)}: "
            f"self's shape with the {index.size} indices in dimension {axis}"
        )
    if not x.size and x.ndim > 1:
        return result
    check_bounds(index, wide.shape[axis], axis, IndexError if x.ndim < 2 else RuntimeError)
    factor = fitted_number(alpha, x.dtype)
    rows = source if factor == 1 else source * x.dtype.type(factor)
    wide += sum_slices(rows, wide.shape[axis], axis, index)
    return result


def _index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    if index.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    check_long(index, "index_copy")
    if isinstance(source, np.ndarray) and source.dtype != x.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{x.dtype} and (source) {source.dtype}"
        )
    result = x.copy()
    wide, index = at_least_1d(result), own_index(index.reshape(-1))
    axis = wrap_dim(axis, wide.ndim)
    copies = isinstance(source, np.ndarray) and source.ndim > 0
    if copies and x.ndim and source.ndim != x.ndim:
        raise IndexError(
            f"index_copy_(): When source and destination are not scalars, their dimensionality "
            f"must match, but got {source.ndim} and {x.ndim} dimensions"
        )
    if copies:
        given, shape = list(source.shape), list(wide.shape)
        count = given.pop(axis) if x.ndim else given.pop(0)
        del shape[axis]
        if given != shape:
            raise RuntimeError(
                f"index_copy_(): Source/destination tensor must have same slice shapes, got "
                f"{shape} and {given}"
            )
        if count != index.size:
            raise IndexError(
                f"index_copy_(): Number of indices ({index.size}) should be equal to "
                f"source.size(dim) ({count})"
            )
    if copies and not source.size:
        return result
    size = wide.shape[axis]
    lowest = 0 if copies else -size  # index_fill() counts from the end too
    if index.size and (index.min() < lowest or index.max() >= size):
        raise IndexError(
            f"index_copy_(): an index is out of range for dimension {axis} of size {size}"
        )
    wide[slices(axis, index)] = source
    return result


define("index_select", _index_select, meta=_index_select_meta)
define("index_select_backward", _index_select_backward, meta=shape_given)

define("index_add", _index_add, meta=like_first)
define("index_copy", _index_copy, meta=like_first)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a dimension that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
    """
    return ops["index_select"](input, dim, index)


def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1
) -> Tensor:
    """A copy with slices of source added to the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
        alpha: A factor of ``source``.
    """
    return ops["index_add"](input, dim, index, source, alpha)


def index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1
) -> Tensor:
    """Adds slices of source to the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
        alpha: A factor of ``source``.
    """
    return ops["index_add"].inplace(self, dim, index, source, alpha)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with other slices where index says.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
    """
    return ops["index_copy"](input, dim, index, _not_scalar(input, index, source))


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Replaces the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
    """
    return ops["index_copy"].inplace(self, dim, index, _not_scalar(self, index, source))


def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """A copy with one value in the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        value: A number.
    """
    _check_filled(index)
    return ops["index_copy"](input, dim, index, _one_value(input, value))


def index_fill_(self: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """Fills the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        value: A number.
    """
    _check_filled(index)
    return ops["index_copy"].inplace(self, dim, index, _one_value(self, value))


def _not_scalar(input: Any, index: Any, source: Any) -> Any:
    if source.ndim:
        return source
    if input.ndim > 1 and index.ndim < 2 and index.numel() == 1:
        raise RuntimeError(
            f"index_copy_(): Source/destination tensor must have same slice shapes, got a scalar "
            f"for the shape {list(input.shape)}"
        )
    return source.reshape(1)


def _check_filled(index: Any) -> None:
    check_long(index, "index_fill", IndexError)
    if index.ndim > 1:
        raise RuntimeError("index_fill_(): Index has to be a vector/scalar")


def _one_value(input: Any, value: Any) -> Any:
    """What index_fill() fills with: a number that fits, or a tensor without dimensions."""
    if not isinstance(value, TensorBase):
        if isinstance(value, complex) and not input.is_complex():
            raise RuntimeError(
                "index_fill_(): Converting complex Scalar to non-complex type is not supported"
            )
        return fitted_number(value, input.dtype)
    if value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)"
        )
    given: Any = value
    if given.is_complex() and not input.is_complex():
        raise RuntimeError(f"index_fill_(): a complex value does not fit {input.dtype}")
    if given.dtype != input.dtype:
        fitted_number(given.item(), input.dtype)
    return given.to(input.dtype)


_function: Any  # of one type after another
for _function in (index_select, index_add, index_copy, index_fill):
    export(_function.__name__, _function)
for _function in (index_add_, index_copy_, index_fill_):
    export(_function.__name__, _function, function=False)


# -- derivatives -----------------------------------------------------------------------------------

_pick, _pick_backward = operation("index_select"), operation("index_select_backward")
_index_copy_op = operation("index_copy")

derive(
    "index_select",
    lambda g, _out, x_like, axis, index: _pick_backward(g, tuple(x_like.shape), axis, index),
)
derive(
    "index_select_backward",
    lambda g, _out, x_like, shape, axis, index: _pick(g, axis, index).reshape(tuple(x_like.shape)),
)


def _like_source(g: Any, axis: int, index: Any, source_like: Any) -> Any:
    if not hasattr(source_like, "shape"):
        return None
    if not source_like.shape:  # one value for all, which fills a place once
        index = _each_once(index, g.shape[axis] if g.shape else 1)
    picked = _pick(g, axis, index)
    return (
        picked.reshape(tuple(source_like.shape))
        if math.prod(picked.shape) == math.prod(source_like.shape)
        else picked
    )


def _each_once(index: Any, size: int) -> Any:
    found = np.unique((index._array if isinstance(index, TensorBase) else index) % size)
    return from_array(found) if isinstance(index, TensorBase) else found


def _index_add_source(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, source_like: Any, alpha: Any
) -> Any:
    picked = _like_source(g, axis, index, source_like)
    return picked if alpha == 1 else picked * alpha


derive(
    "index_add",
    lambda g, _out, _x, axis, index, _source, alpha: g,
    None,
    None,
    _index_add_source,
)
derive(
    "index_copy",
    # Of nothing, indices may be out of range.
    lambda g, _out, _x, axis, index, _source: (
        g if 0 in g.shape else _index_copy_op(g, axis, index, 0)
    ),
    None,
    None,
    lambda g, _out, _x, axis, index, source_like: _like_source(g, axis, index, source_like),
)
