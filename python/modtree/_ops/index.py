# SPDX-License-Identifier: BSD-3-Clause
"""getitem, gather, take_along_dim, index_select, index_put, index_copy, masked_fill,
masked_select.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from modtree._ops.generic import flat_indices, like_first, operation, positions, sum_at, sum_rows
from modtree._ops.registry import define, derive, expose, not_differentiable, ops
from modtree._ops.shape import _dim


def _check_index(index: Any, name: str) -> None:
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, got {index.dtype}")


def _check_bounds(index: Any, size: int, axis: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        wrong = index[(index < 0) | (index >= size)].flat[0]
        raise RuntimeError(f"index {wrong} is out of bounds for dimension {axis} with size {size}")


def _at_least_1d(x: Any) -> Any:
    return x if x.ndim else x.reshape(1)


def along_axis(index: Any, axis: int) -> Any:
    """Index arrays that address (i, j, ...) with index[i, j, ...] in the dimension `axis`."""
    grid: list[Any] = []
    for i, size in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[i] = size
        grid.append(np.arange(size).reshape(shape))
    grid[axis] = index
    return tuple(grid)


def _slices(axis: int, index: Any) -> Any:
    return (slice(None),) * axis + (index,)


# -- along one dimension ---------------------------------------------------------------------------


def _gather(x: Any, axis: int, index: Any) -> Any:
    _check_index(index, "gather")
    if x.ndim == index.ndim == 0:
        _check_bounds(index, 1, 0)
        return x.copy()
    x = _at_least_1d(x)
    shape, index = index.shape, _at_least_1d(index)
    if x.ndim != index.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    axis = _dim(axis, x.ndim)
    for i, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)):
        if i != axis and n > m and index.size:
            raise RuntimeError(
                f"Size does not match at dimension {i} expected index {list(index.shape)} to be "
                f"no larger than self "
                f"{list(x.shape)} apart from dimension {axis}"
            )
    _check_bounds(index, x.shape[axis], axis)
    return x[along_axis(index, axis)].reshape(shape)


def _gather_backward(g: Any, shape: tuple[int, ...], axis: int, index: Any) -> Any:
    """Zeros of a shape with each g added where gather() picked it."""
    wide = tuple(shape) or (1,)
    index = _at_least_1d(index)
    indices = flat_indices(wide, along_axis(index, axis % len(wide)))
    return sum_at(math.prod(wide), indices, g).reshape(shape)


def _index_select(x: Any, axis: int, index: Any) -> Any:
    _check_index(index, "index_select")
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    wide, index_1d = _at_least_1d(x), _at_least_1d(index)
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
    return _sum_slices(g, shape[axis], axis, index.reshape(-1))


def _sum_slices(slices: Any, size: int, axis: int, index: Any) -> Any:
    summed = sum_rows(index, np.moveaxis(slices, axis, 0), size)
    return np.moveaxis(summed, 0, axis)


def _scatter(x: Any, axis: int, index: Any, source: Any, mode: Any) -> Any:
    _check_index(index, "scatter")
    result = x.copy()
    wide, index = _at_least_1d(result), _at_least_1d(index)
    if index.size == 0:
        return result
    axis = _dim(axis, wide.ndim)
    _check_bounds(index, wide.shape[axis], axis)
    place = along_axis(index, axis)
    if isinstance(source, np.ndarray) and (source.ndim or index.ndim):
        if mode != "multiply" and source.dtype != x.dtype:
            raise RuntimeError(
                f"scatter(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and "
                f"{source.dtype}"
            )
        source = _at_least_1d(source)[tuple(slice(n) for n in index.shape)]
    if mode is None:
        wide[place] = source
    elif mode == "add" and x.dtype.kind in "fc":
        picked = flat_indices(wide.shape, place)
        wide += sum_at(wide.size, picked, np.broadcast_to(source, picked.shape)).reshape(wide.shape)
    elif mode in ("add", "multiply"):
        {"add": np.add, "multiply": np.multiply}[mode].at(wide, place, source)
    else:
        raise RuntimeError(f"reduce argument must be either add or multiply, got {mode!r}")
    return result


def _index_add(x: Any, axis: int, index: Any, source: Any, alpha: Any) -> Any:
    _check_index(index, "index_add")
    result = x.copy()
    wide, index = _at_least_1d(result), index.reshape(-1)
    axis = _dim(axis, wide.ndim)
    expected = (*wide.shape[:axis], index.size, *wide.shape[axis + 1 :])
    source = _at_least_1d(source)
    if source.shape != expected:
        raise RuntimeError(
            f"index_add(): source of shape {list(source.shape)} does not match {list(expected)}: "
            f"self's shape with the "
            f"{index.size} indices in dimension {axis}"
        )
    _check_bounds(index, wide.shape[axis], axis)
    rows = source if alpha == 1 else source * alpha
    wide += _sum_slices(rows, wide.shape[axis], axis, index)
    return result


def _index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    _check_index(index, "index_copy")
    result = x.copy()
    wide, index = _at_least_1d(result), index.reshape(-1)
    axis = _dim(axis, wide.ndim)
    if index.size and (index.min() < -wide.shape[axis] or index.max() >= wide.shape[axis]):
        raise IndexError(
            f"index_copy_(): an index is out of range for dimension {axis} of size "
            f"{wide.shape[axis]}"
        )
    wide[_slices(axis, index)] = source
    return result


def _shape_given(g: Any, shape: Any, *args: Any) -> Any:
    return shape, g.dtype


define("gather", _gather, meta=lambda x, axis, index: (index.shape, x.dtype))
define("gather_backward", _gather_backward, meta=_shape_given)
define("index_select", _index_select, meta=_index_select_meta)
define("index_select_backward", _index_select_backward, meta=_shape_given)
define("scatter", _scatter, meta=like_first)
define("index_add", _index_add, meta=like_first)
define("index_copy", _index_copy, meta=like_first)


def gather(input: Any, dim: int, index: Any) -> Any:
    """input[i][index[i][j]] for dim 1, and so on.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``; of the shape of the result.
    """
    return ops["gather"](input, dim, index)


def index_select(input: Any, dim: int, index: Any) -> Any:
    """The slices of a dimension that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
    """
    return ops["index_select"](input, dim, index)


def take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    """gather() whose other dimensions broadcast; of the flattened input without a dim.

    Args:
        indices: Indices along ``dim``.
        dim: The dimension; the flattened input without.
    """
    if dim is None:
        return ops["take_along_dim"](input.reshape(-1), indices.reshape(-1), 0)
    return ops["take_along_dim"](input, indices, dim)


def scatter(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """A copy with the values of src put where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
        value: One number, in place of ``src``.
        reduce: None, ``"add"`` or ``"multiply"``: what happens to a value that is there.
    """
    return ops["scatter"](input, dim, index, value if src is None else src, reduce)


def scatter_(
    self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """Puts the values of src where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
        value: One number, in place of ``src``.
        reduce: None, ``"add"`` or ``"multiply"``: what happens to a value that is there.
    """
    return ops["scatter"].inplace(self, dim, index, value if src is None else src, reduce)


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    """A copy with the values of src added where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
    """
    return ops["scatter"](input, dim, index, src, "add")


def scatter_add_(self: Any, dim: int, index: Any, src: Any) -> Any:
    """Adds the values of src where index says.

    Args:
        dim: The dimension; may count from the end.
        index: For each value the index along ``dim`` where it goes.
        src: The values; as many as indices at least, in each dimension.
    """
    return ops["scatter"].inplace(self, dim, index, src, "add")


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """A copy with slices of source added to the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
        alpha: A factor of ``source``.
    """
    return ops["index_add"](input, dim, index, source, alpha)


def index_add_(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Adds slices of source to the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
        alpha: A factor of ``source``.
    """
    return ops["index_add"].inplace(self, dim, index, source, alpha)


def index_copy(input: Any, dim: int, index: Any, source: Any) -> Any:
    """A copy with other slices where index says.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
    """
    return ops["index_copy"](input, dim, index, source)


def index_copy_(self: Any, dim: int, index: Any, source: Any) -> Any:
    """Replaces the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        source: The slices.
    """
    return ops["index_copy"].inplace(self, dim, index, source)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """A copy with one value in the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        value: A number.
    """
    return ops["index_copy"](input, dim, index, value)


def index_fill_(self: Any, dim: int, index: Any, value: Any) -> Any:
    """Fills the slices that index names.

    Args:
        dim: The dimension; may count from the end.
        index: Indices along ``dim``: a vector.
        value: A number.
    """
    return ops["index_copy"].inplace(self, dim, index, value)


# -- indices of every kind -------------------------------------------------------------------------


def _is_index_array(part: Any) -> bool:
    return isinstance(part, (np.ndarray, list)) and np.asarray(part).dtype.kind != "b"


def _is_whole(part: Any) -> bool:
    return part is Ellipsis or (isinstance(part, slice) and part == slice(None))


def _getitem_backward(g: Any, shape: tuple[int, ...], index: Any) -> Any:
    """Zeros of a shape with each g added where ``x[index]`` picked it."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [np.asarray(part) for part in parts if _is_index_array(part)]
    if not any(a.size > 1 for a in arrays):  # no element is named twice
        result = np.zeros(shape, g.dtype)
        result[index] = g
        return result
    count = len(arrays)
    if all(_is_index_array(p) for p in parts[:count]) and all(map(_is_whole, parts[count:])):
        indices = flat_indices(shape[:count], arrays)
        if count == len(shape):
            return sum_at(math.prod(shape), indices, g).reshape(shape)
        rows = g.reshape(indices.size, *shape[count:])
        return sum_rows(indices.reshape(-1), rows, math.prod(shape[:count])).reshape(shape)
    if (
        count == 1
        and arrays[0].ndim == 1
        and all(_is_whole(p) or _is_index_array(p) for p in parts)
    ):
        at = next(i for i, part in enumerate(parts) if _is_index_array(part))
        axis = at if Ellipsis not in parts[:at] else len(shape) - (len(parts) - at)
        return _sum_slices(g, shape[axis], axis, arrays[0])
    return sum_at(math.prod(shape), positions(tuple(shape), index), g).reshape(shape)


def _index_put(x: Any, index: Any, values: Any, accumulate: bool = False) -> Any:
    result = x.copy()
    if not accumulate:
        result[index] = values
    elif x.dtype.kind in "fc":
        picked = positions(x.shape, index)
        values = np.broadcast_to(np.asarray(values, x.dtype), picked.shape)
        result += sum_at(x.size, picked, values).reshape(x.shape)
    else:
        np.add.at(result, index, values)
    return result


define("getitem_backward", _getitem_backward, meta=_shape_given)
define("index_put", _index_put, meta=like_first)


def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """A copy with values put (or added) at the elements that the index tensors name.

    Args:
        indices: A tuple of tensors, one for each dimension from the first on.
        values: A tensor that broadcasts to what they name.
        accumulate: Add instead of replacing.
    """
    return ops["index_put"](input, tuple(indices), values, accumulate)


def index_put_(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Puts (or adds) values at the elements that the index tensors name.

    Args:
        indices: A tuple of tensors, one for each dimension from the first on.
        values: A tensor that broadcasts to what they name.
        accumulate: Add instead of replacing.
    """
    return ops["index_put"].inplace(self, tuple(indices), values, accumulate)


def select_scatter(input: Any, src: Any, dim: int, index: int) -> Any:
    """A copy with src in place of one index of one dimension.

    Args:
        src: The values, of the shape without ``dim``.
        dim: The dimension; may count from the end.
        index: The index; may count from the end.
    """
    place = _slices(_dim(dim, input.ndim), operator.index(index))
    return _put_whole("select_scatter", input, place, src)


def slice_scatter(
    input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """A copy with src in place of a slice of one dimension.

    Args:
        src: The values, of the shape of the slice.
        dim: The dimension; may count from the end.
        start: First index.
        end: The index behind the last one.
        step: Distance of the indices.
    """
    place = _slices(_dim(dim, input.ndim), slice(start, end, step))
    return _put_whole("slice_scatter", input, place, src)


def _put_whole(name: str, input: Any, place: Any, src: Any) -> Any:
    expected = tuple(ops["getitem"](input, (*place, ...)).shape)
    if tuple(src.shape) != expected:
        raise RuntimeError(
            f"{name}: expected src to have the shape {list(expected)} of the slice it replaces, "
            f"got {list(src.shape)}"
        )
    return ops["index_put"](input, place, src)


# -- masks -----------------------------------------------------------------------------------------


def _check_mask(mask: Any, name: str) -> None:
    if mask.dtype.kind != "b":
        raise RuntimeError(f"{name}: expected BoolTensor for mask, got {mask.dtype}")


def _masked_select(x: Any, mask: Any) -> Any:
    _check_mask(mask, "masked_select")
    x, mask = np.broadcast_arrays(x, mask)
    return x[mask].reshape(-1)


def _masked_put(g: Any, mask: Any) -> Any:
    """Zeros of the mask's shape with the elements of g, in order, where the mask holds."""
    result = np.zeros(mask.shape, g.dtype)
    result[mask] = g.reshape(-1)[: np.count_nonzero(mask)]
    return result


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    _check_mask(mask, "masked_scatter")
    if source.dtype != x.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {x.dtype} and "
            f"{source.dtype}"
        )
    x, mask = np.broadcast_arrays(x, mask)
    wanted = np.count_nonzero(mask)
    if wanted > source.size:
        raise RuntimeError(
            f"masked_scatter: the mask holds for {wanted} elements, source has only {source.size}"
        )
    result = x.copy()
    result[mask] = source.reshape(-1)[:wanted]
    return result


define("masked_select", _masked_select)
define("masked_put", _masked_put, meta=lambda g, mask: (mask.shape, g.dtype))
define(
    "masked_scatter",
    _masked_scatter,
    meta=lambda x, mask, source: (np.broadcast_shapes(x.shape, mask.shape), x.dtype),
)
define(
    "nonzero", lambda x: np.stack(np.nonzero(np.atleast_1d(x)), -1)[:, : x.ndim].astype(np.int64)
)
define("nonzero_tuple", lambda x: np.nonzero(np.atleast_1d(x)))
define("take", lambda x, index: x.reshape(-1)[index], meta=lambda x, index: (index.shape, x.dtype))


def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """A copy with the elements of source, in order, where mask holds.

    Args:
        mask: A bool tensor that broadcasts with ``input``.
        source: At least as many elements as are wanted.
    """
    return ops["masked_scatter"](input, mask, source)


def masked_scatter_(self: Any, mask: Any, source: Any) -> Any:
    """Puts the elements of source, in order, where mask holds."""
    return ops["masked_scatter"].inplace(self, mask, source)


def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not zero."""
    return ops["nonzero_tuple"](input) if as_tuple else ops["nonzero"](input)


def argwhere(input: Any) -> Any:
    """The indices of elements that are not zero, one row for each."""
    return ops["nonzero"](input)


def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A copy with src in place of a diagonal.

    Args:
        src: The values of the diagonal.
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dim1: First of the two dimensions of the matrices.
        dim2: Second of them.
    """
    expected = tuple(ops["diagonal"](input, offset, dim1, dim2).shape)
    if tuple(src.shape) != expected:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = "
            f"{list(expected)}"
        )
    first, second = _dim(dim1, input.ndim), _dim(dim2, input.ndim)
    line = np.arange(expected[-1])
    place: list[Any] = [slice(None)] * input.ndim
    place[first], place[second] = line - min(offset, 0), line + max(offset, 0)
    # The two index arrays put the diagonal first when they do not stand together.
    if abs(first - second) != 1:
        src = src.movedim(-1, 0)
    else:
        src = src.movedim(-1, min(first, second))
    return ops["index_put"](input, tuple(place), src)


def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """A copy with values put (or added) at indices counted over all elements.

    Args:
        index: Indices into the flattened input.
        source: As many values.
        accumulate: Add instead of replacing.
    """
    flat = ops["index_put"](input.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(tuple(input.shape))


_function: Any  # of one type after another
for _function in (
    argwhere,
    diagonal_scatter,
    put,
    gather,
    index_select,
    take_along_dim,
    scatter,
    scatter_add,
    index_add,
    index_copy,
    index_fill,
    index_put,
    select_scatter,
    slice_scatter,
    masked_scatter,
    nonzero,
):
    expose(_function.__name__, _function)
for _function in (
    scatter_,
    scatter_add_,
    index_add_,
    index_copy_,
    index_fill_,
    index_put_,
    masked_scatter_,
):
    expose(_function.__name__, _function, function=False)
expose("masked_select", ops["masked_select"])
expose("take", ops["take"])


# -- derivatives -----------------------------------------------------------------------------------

_gather_op, _gather_backward_op = operation("gather"), operation("gather_backward")
_pick, _pick_backward = operation("index_select"), operation("index_select_backward")
_getitem, _getitem_backward_op = operation("getitem"), operation("getitem_backward")
_scatter_op, _index_copy_op, _index_put_op = (
    operation(n) for n in ("scatter", "index_copy", "index_put")
)
_masked_select_op, _masked_put_op = operation("masked_select"), operation("masked_put")
_masked_fill, _expand, _pad = (operation(n) for n in ("masked_fill", "expand", "pad"))


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape)


derive(
    "gather",
    lambda g, _out, x_like, axis, index: _gather_backward_op(g, _shape(x_like), axis, index),
)
derive("gather_backward", lambda g, _out, _x, shape, axis, index: _gather_op(g, axis, index))
derive(
    "index_select",
    lambda g, _out, x_like, axis, index: _pick_backward(g, _shape(x_like), axis, index),
)
derive(
    "index_select_backward",
    lambda g, _out, x_like, shape, axis, index: _pick(g, axis, index).reshape(_shape(x_like)),
)
derive(
    "take",
    lambda g, _out, x_like, index: _getitem_backward_op(g, (_size(x_like),), (index,)).reshape(
        _shape(x_like)
    ),
)


def _size(x: Any) -> int:
    size = 1
    for n in x.shape:
        size *= n
    return size


# -- replacing along one dimension -----------------------------------------------------------------


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
    picked = _gather_op(g, axis, index)
    if _shape(picked) == _shape(source_like) or not len(source_like.shape):
        return picked
    # Only the corner of source that index covers was used.
    widths = [(0, n - m) for n, m in zip(source_like.shape, picked.shape, strict=True)]
    return _pad(picked, widths, "constant", 0)


def _like_source(g: Any, axis: int, index: Any, source_like: Any) -> Any:
    if not hasattr(source_like, "shape"):
        return None
    picked = _pick(g, axis, index)
    return picked.reshape(_shape(source_like)) if _size(picked) == _size(source_like) else picked


def _index_add_source(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, source_like: Any, alpha: Any
) -> Any:
    picked = _like_source(g, axis, index, source_like)
    return picked if alpha == 1 else picked * alpha


derive("scatter", _scatter_self, None, None, _scatter_source)
derive(
    "index_add",
    lambda g, _out, _x, axis, index, _source, alpha: g,
    None,
    None,
    _index_add_source,
)
derive(
    "index_copy",
    lambda g, _out, _x, axis, index, _source: _index_copy_op(g, axis, index, 0),
    None,
    None,
    lambda g, _out, _x, axis, index, source_like: _like_source(g, axis, index, source_like),
)

# -- indices of every kind and masks ---------------------------------------------------------------

derive(
    "index_put",
    lambda g, _out, _x, index, _values, accumulate=False: (
        g if accumulate else _index_put_op(g, index, 0)
    ),
    None,
    lambda g, _out, _x, index, _values, accumulate=False: _getitem(g, index),
)


def _both_shapes(x_like: Any, mask: Any) -> Any:
    """The mask as it was broadcast against x."""
    shape = _broadcast(_shape(x_like), _shape(mask))
    return mask if _shape(mask) == shape else _expand(mask, shape)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    a, b = (1,) * (len(b) - len(a)) + a, (1,) * (len(a) - len(b)) + b
    return tuple(m if n == 1 else n for n, m in zip(a, b, strict=True))


def _masked_scatter_source(g: Any, _out: Any, _x: Any, mask: Any, source_like: Any) -> Any:
    picked = _masked_select_op(g, mask)
    rest = _size(source_like) - _size(picked)
    if rest:
        picked = _pad(picked, [(0, rest)], "constant", 0)
    return picked.reshape(_shape(source_like))


derive("masked_select", lambda g, _out, x_like, mask: _masked_put_op(g, _both_shapes(x_like, mask)))
derive("masked_put", lambda g, _out, _x, mask: _masked_select_op(g, mask))
derive(
    "masked_scatter",
    lambda g, _out, _x, mask, _source: _masked_fill(g, mask, 0),
    None,
    _masked_scatter_source,
)
not_differentiable("nonzero", "nonzero_tuple")

derive("getitem_backward", lambda g, _out, _x, shape, index: _getitem(g, index))
