# SPDX-License-Identifier: BSD-3-Clause
"""gather and scatter along one dimension, with an index for each element; take_along_dim."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_dtype, fitted_number, kernels, own_index
from modtree.numpy.ops.broadcast import broadcast_shapes
from modtree.numpy.ops.generic import like_first, operation, wrap_dim, zeros_of
from modtree.numpy.ops.indices import (
    along_axis,
    at_least_1d,
    check_bounds,
    check_index,
    flat_indices,
    scattered,
    shape_given,
    sum_at,
)
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Tensor


def _gather(x: Any, axis: int, index: Any) -> Any:
    if index.size:
        check_index(index, "gather")
    axis = wrap_dim(axis, x.ndim)
    if x.ndim == index.ndim == 0:
        check_bounds(index, 1, 0)
        return x.copy()
    if not index.size:  # of any number of dimensions
        return np.zeros(index.shape, x.dtype)
    x = at_least_1d(x)
    shape, index = index.shape, at_least_1d(index)
    if x.ndim != index.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for i, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)):
        if i != axis and n > m and index.size:
            raise RuntimeError(
                f"Size does not match at dimension {i} expected index {list(index.shape)} to be no "
                f"larger than self {list(x.shape)} apart from dimension {axis}"
            )
    result = kernels.gather(x, axis, index)
    if result is None:
        check_bounds(index, x.shape[axis], axis)
        result = x[along_axis(own_index(index), axis)]
    return result.reshape(shape)


def _gather_backward(g: Any, shape: tuple[int, ...], axis: int, index: Any) -> Any:
    """Zeros of a shape with each g added where gather() picked it."""
    if not index.size:
        return np.zeros(shape, g.dtype)
    wide = tuple(shape) or (1,)
    index = at_least_1d(index)
    if g.dtype.kind == "f":
        result = np.zeros(wide, g.dtype)
        if scattered(result, axis % len(wide), index, at_least_1d(g), "add", True) is not None:
            return result.reshape(shape)
    indices = flat_indices(wide, along_axis(index, axis % len(wide)))
    return sum_at(math.prod(wide), indices, g).reshape(shape)


def _scatter(x: Any, axis: int, index: Any, source: Any, mode: Any) -> Any:
    if mode not in (None, "add", "multiply"):
        raise RuntimeError(f"reduce argument must be either add or multiply, got {mode!r}")
    index = at_least_1d(index)
    axis = wrap_dim(axis, x.ndim)
    if index.size == 0:
        _check_dtypes(x, source, mode)
        return x.copy()
    check_index(index, "scatter")
    wide = at_least_1d(x)
    _check_shapes(wide, axis, index, source)
    check_bounds(index, wide.shape[axis], axis)
    if isinstance(source, np.ndarray) and (source.ndim or index.ndim):
        _check_dtypes(x, source, mode)
        source = at_least_1d(source)[tuple(slice(n) for n in index.shape)]
    if wide.ndim == index.ndim:
        same = np.asarray(source).astype(x.dtype, copy=False)
        same = np.broadcast_to(same, index.shape) if same.shape != index.shape else same
        quick = scattered(wide, axis, index, same, mode or "assign")
        if quick is not None:
            return quick.reshape(x.shape)
    result = x.copy()
    wide, place = at_least_1d(result), along_axis(own_index(index), axis)
    if mode is None:
        wide[place] = source
    elif mode == "add" and x.dtype.kind in "fc":
        picked = flat_indices(wide.shape, place)
        wide += sum_at(wide.size, picked, np.broadcast_to(source, picked.shape)).reshape(wide.shape)
    else:
        {"add": np.add, "multiply": np.multiply}[mode].at(wide, place, source)
    return result


def _check_dtypes(x: Any, source: Any, mode: Any) -> None:
    if isinstance(source, np.ndarray) and source.dtype != x.dtype:
        raise RuntimeError(
            f"scatter(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and "
            f"{source.dtype}"
        )


def _check_shapes(x: Any, axis: int, index: Any, source: Any) -> None:
    """Whether the index is within x, but for the axis, and within the source."""
    if index.ndim != x.ndim:
        raise RuntimeError(
            f"scatter(): Index tensor must have the same number of dimensions as self tensor, got "
            f"{index.ndim} and {x.ndim}"
        )
    for i, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)):
        if i != axis and n > m:
            raise RuntimeError(
                f"scatter(): Expected index {list(index.shape)} to be no larger than self "
                f"{list(x.shape)} apart from dimension {axis}"
            )
    if not isinstance(source, np.ndarray):
        return
    source = at_least_1d(source)
    if source.ndim != index.ndim:
        raise RuntimeError(
            f"scatter(): Index tensor must have the same number of dimensions as src tensor, got "
            f"{index.ndim} and {source.ndim}"
        )
    if any(n > m for n, m in zip(index.shape, source.shape, strict=True)):
        raise RuntimeError(
            f"scatter(): Expected index {list(index.shape)} to be no larger than src "
            f"{list(source.shape)}"
        )


define("gather", _gather, meta=lambda x, axis, index: (index.shape, x.dtype))
define("gather_backward", _gather_backward, meta=shape_given)

define("scatter", _scatter, meta=like_first)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """input[i][index[i][j]] for dim 1, and so on.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``; of the shape of the result.
    """
    return ops["gather"](input, dim, index)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather() whose other dimensions broadcast; of the flattened input without a dim.

    Args:
        indices: Indices along ``dim``.
        dim: The dimension; the flattened input without.
    """
    if indices.dtype != as_dtype("int64"):
        raise RuntimeError(
            f"take_along_dim(): dtype of indices should be int64 but got {indices.dtype}: convert "
            f"them with .long()"
        )
    if dim is None:
        return ops["gather"](input.reshape(-1), 0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    axis = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    own, wanted = list(input.shape), list(indices.shape)
    own[axis] = wanted[axis] = 1
    shape = list(broadcast_shapes(own, wanted))
    own, wanted = list(shape), list(shape)
    own[axis], wanted[axis] = input.shape[axis], indices.shape[axis]
    return ops["take_along_dim"](
        _expanded(input, tuple(own)), _expanded(indices, tuple(wanted)), axis
    )


def _expanded(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else ops["expand"](x, shape)


def _values(input: Any, src: Any, value: Any) -> Any:
    """What scatter() puts: the source, or one number, which must fit."""
    given = value if src is None else src
    if src is None and isinstance(value, TensorBase):
        given = value.item()
    return given if isinstance(given, TensorBase) else fitted_number(given, input.dtype)


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number | None = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with the values of src put where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
        value: One number, in place of ``src``.
        reduce: None, ``"add"`` or ``"multiply"``: what happens to a value that is there.
    """
    return ops["scatter"](input, dim, index, _values(input, src, value), reduce)


def scatter_(
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number | None = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:
    """Puts the values of src where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
        value: One number, in place of ``src``.
        reduce: None, ``"add"`` or ``"multiply"``: what happens to a value that is there.
    """
    return ops["scatter"].inplace(self, dim, index, _values(self, src, value), reduce)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with the values of src added where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
    """
    return ops["scatter"](input, dim, index, src, "add")


def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Adds the values of src where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
    """
    return ops["scatter"].inplace(self, dim, index, src, "add")


_function: Any  # of one type after another
for _function in (gather, take_along_dim, scatter, scatter_add):
    export(_function.__name__, _function)
for _function in (scatter_, scatter_add_):
    export(_function.__name__, _function, function=False)


# -- derivatives -----------------------------------------------------------------------------------

_gather_op, _gather_backward_op = operation("gather"), operation("gather_backward")
_scatter_op, _pad = operation("scatter"), operation("pad")

derive(
    "gather",
    lambda g, _out, x_like, axis, index: _gather_backward_op(g, tuple(x_like.shape), axis, index),
)
derive("gather_backward", lambda g, _out, _x, shape, axis, index: _gather_op(g, axis, index))


def _refuse_product(mode: Any) -> None:
    if mode == "multiply":
        raise RuntimeError(
            "scatter(reduce='multiply') has no derivative: gather the factors and multiply, or "
            "call it under no_grad()"
        )


def _scatter_self(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, _source: Any, mode: Any
) -> Any:
    _refuse_product(mode)
    return g if mode == "add" else _scatter_op(g, axis, index, 0, None)


def _scatter_source(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, source_like: Any, mode: Any
) -> Any:
    _refuse_product(mode)
    if not hasattr(source_like, "shape"):
        return None
    if math.prod(index.shape) == 0:
        return zeros_of(source_like.shape, g)
    picked = _gather_op(g, axis, index)
    if len(picked.shape) != len(source_like.shape):  # one of them has no dimensions
        picked = picked.reshape((1,) * len(source_like.shape))
    if tuple(picked.shape) == tuple(source_like.shape) or not len(source_like.shape):
        return picked
    # Only the corner of source that index covers was used.
    widths = [(0, n - m) for n, m in zip(source_like.shape, picked.shape, strict=True)]
    return _pad(picked, widths, "constant", 0)


derive("scatter", _scatter_self, None, None, _scatter_source)
