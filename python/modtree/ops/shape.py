# SPDX-License-Identifier: BSD-3-Clause
"""Views, joining, splitting, indexing."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from modtree._C import as_dtype, dtype
from modtree.ops.table import define, expose, ops


def _ints(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    for value in values:
        if type(value) is not int:
            return tuple(operator.index(v) for v in values)
    return values


def _dim(dim: int, ndim: int) -> int:
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})"
        )
    return dim % limit


# -- views -------------------------------------------------------------------------------------------------------------


def _squeeze(x: Any, axes: Any) -> Any:
    return x.reshape(
        [n for i, n in enumerate(x.shape) if not (n == 1 and (axes is None or i in axes))]
    )


def _expand(x: Any, sizes: Any) -> Any:
    extra = len(sizes) - x.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand({list(sizes)}): the number of sizes provided ({len(sizes)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({x.ndim})"
        )
    target = []
    for i, size in enumerate(sizes):
        have = x.shape[i - extra] if i >= extra else None
        if size == -1:
            if have is None:
                raise RuntimeError(
                    f"expand({list(sizes)}): -1 isn't allowed in a leading, non-existing dimension {i}"
                )
            size = have
        elif have is not None and have not in (1, size):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({have}) at non-singleton "
                f"dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: {list(x.shape)}"
            )
        target.append(size)
    view = np.lib.stride_tricks.as_strided(
        x.reshape((1,) * extra + x.shape),
        target,
        [
            0 if n == 1 and t != 1 else s
            for n, t, s in zip(
                (1,) * extra + x.shape, target, (0,) * extra + x.strides, strict=True
            )
        ],
    )
    return view


define("view", np.ndarray.reshape, view=True, strict_view=True)
define("reshape", np.ndarray.reshape, view=True)
define("view_dtype", lambda x, kind: x.view(kind), view=True)
define("permute", np.ndarray.transpose, view=True)
define("swapaxes", np.ndarray.swapaxes, view=True)
define("squeeze", _squeeze, view=True)
define("unsqueeze", lambda x, axis: x[(slice(None),) * axis + (None,)], view=True)
define("expand", _expand, view=True)
define("getitem", operator.getitem, view=True)
define("contiguous", np.ascontiguousarray, view=True)
define("diagonal", np.diagonal, view=True)
define("real", lambda x: x.real, view=True)
define("imag", lambda x: x.imag, view=True)


def _splits(x: Any, sizes: Any, axis: int) -> Any:
    pieces, start = [], 0
    lead = (slice(None),) * (axis % max(x.ndim, 1))
    for size in sizes:
        pieces.append(x[(*lead, slice(start, start + size))])
        start += size
    return pieces


def _unbind(x: Any, axis: int) -> Any:
    lead = (slice(None),) * (axis % max(x.ndim, 1))
    return [x[(*lead, i, ...)] for i in range(x.shape[axis])]


def _unfold(x: Any, axis: int, size: int, step: int) -> Any:
    if x.ndim == 0:
        x = x.reshape(1)
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis, writeable=True)
    return windows[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]


define("split", _splits, view=True)
define("unbind", _unbind, view=True)
define("unfold", _unfold, view=True)


def view(input: Any, *shape: Any, dtype: Any = None) -> Any:
    """The same memory in another shape, or read as another dtype."""
    if dtype is not None or (len(shape) == 1 and (isinstance(shape[0], _dtype))):
        return ops["view_dtype"](input, as_dtype(shape[0] if dtype is None else dtype).dtype)
    return _reshaped(_view_op, input, _ints(shape))


_dtype = dtype
_view_op, _reshape_op, _swapaxes = ops["view"], ops["reshape"], ops["swapaxes"]


def _reshaped(op: Any, input: Any, shape: tuple[int, ...]) -> Any:
    try:
        return op(input, shape)
    except RuntimeError:
        known = [n for n in shape if n != -1]
        size = input.numel()
        if len(known) == len(shape):
            fits = math.prod(known) == size
        else:
            fits = (
                len(known) == len(shape) - 1 and math.prod(known) and size % math.prod(known) == 0
            )
        if fits and min(known, default=0) >= 0:
            raise
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {size}") from None


def reshape(input: Any, *shape: Any) -> Any:
    """Another shape: a view where possible, else a copy."""
    return _reshaped(_reshape_op, input, _ints(shape))


def reshape_function(input: Any, shape: Any) -> Any:
    """Another shape: a view where possible, else a copy."""
    return _reshaped(_reshape_op, input, _ints((shape,)))


def permute(input: Any, *dims: Any) -> Any:
    """The dimensions in another order."""
    order = _ints(dims)
    if len(order) != input.ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(order)}"
        )
    return ops["permute"](input, order)


def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions exchanged."""
    if input.ndim == 0:
        return input[...] if _dim(dim0, 0) == _dim(dim1, 0) else input
    return _swapaxes(input, dim0, dim1)


def t(input: Any) -> Any:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return ops["permute"](input)


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Joins the dimensions start_dim..end_dim into one."""
    if input.ndim == 0:
        return ops["reshape"](input, (1,))
    start, end = _dim(start_dim, input.ndim), _dim(end_dim, input.ndim)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    shape = tuple(input.shape)
    joined = 1
    for size in shape[start : end + 1]:
        joined *= size
    return (
        input
        if start == end
        else ops["reshape"](input, (*shape[:start], joined, *shape[end + 1 :]))
    )


def unflatten(input: Any, dim: int, sizes: Any) -> Any:
    """Splits one dimension into several."""
    dim = _dim(dim, input.ndim)
    shape = tuple(input.shape)
    sizes = list(sizes)
    if -1 in sizes:
        known = 1
        for size in sizes:
            known *= size if size != -1 else 1
        sizes[sizes.index(-1)] = shape[dim] // known if known else 0
    return ops["view"](input, (*shape[:dim], *sizes, *shape[dim + 1 :]))


def squeeze(input: Any, dim: Any = None) -> Any:
    """Without the dimensions of size 1 (or without those of dim)."""
    axes = None
    if dim is not None:
        axes = [_dim(d, input.ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    return ops["squeeze"](input, axes)


def unsqueeze(input: Any, dim: int) -> Any:
    """With a dimension of size 1 at dim."""
    return ops["unsqueeze"](input, _dim(dim, input.ndim + 1))


def expand(input: Any, *sizes: Any) -> Any:
    """Dimensions of size 1 repeated without copying; -1 keeps a size."""
    return ops["expand"](input, _ints(sizes))


def expand_as(input: Any, other: Any) -> Any:
    """expand() to the shape of other."""
    return ops["expand"](input, tuple(other.shape))


def narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    """The slice start..start+length of one dimension."""
    dim = _dim(dim, input.ndim)
    start = operator.index(start)
    size = input.size(dim)
    start = start + size if start < 0 else start
    if length < 0 or start < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return ops["getitem"](input, (slice(None),) * dim + (slice(start, start + length),))


def select(input: Any, dim: int, index: int) -> Any:
    """One index of one dimension."""
    dim = _dim(dim, input.ndim)
    return input[(slice(None),) * dim + (operator.index(index),)]


def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Moves dimensions to other places."""
    return ops["movedim"](input, source, destination)


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A view of a diagonal, as the last dimension."""
    return ops["diagonal"](input, offset, dim1, dim2)


def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` pieces of equal size (the last may be smaller)."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = input.size(dim)
    return (
        split(input, max(-(-size // chunks), 1) if size else 1, dim) if size else (input,) * chunks
    )


def split(input: Any, split_size: Any, dim: int = 0) -> Any:
    """Pieces of a size, or of the sizes given."""
    total = input.size(dim)
    if isinstance(split_size, int):
        if split_size < 0 or (split_size == 0 and total):
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={split_size}"
            )
        sizes = [min(split_size, total - i) for i in range(0, total, split_size)] if total else [0]
    else:
        sizes = [operator.index(s) for s in split_size]
        if sum(sizes) != total:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={sizes}"
            )
    return ops["split"](input, sizes, dim)


def unbind(input: Any, dim: int = 0) -> Any:
    """The slices along a dimension, without it."""
    input.size(dim)
    return ops["unbind"](input, dim)


define("movedim", np.moveaxis, view=True)

# -- copies ------------------------------------------------------------------------------------------------------------


def _cat_meta(items: Any, axis: int) -> Any:
    items = [i for i in items if i.shape != (0,)] or items[:1]
    shape = list(items[0].shape)
    shape[axis] = sum(i.shape[axis] for i in items)
    return shape, items[0].dtype


def _cat(items: Any, axis: int) -> Any:
    if any(i.ndim == 0 for i in items):
        raise RuntimeError(
            "zero-dimensional tensor (at position 0) cannot be concatenated; use stack()"
        )
    # torch skips empty 1-D tensors whatever the rank of the others.
    rest = [i for i in items if i.shape != (0,)] or items[:1]
    shapes = {
        (*i.shape[: axis % i.ndim], *i.shape[axis % i.ndim + 1 :])
        for i in rest
        if -i.ndim <= axis < i.ndim
    }
    if len(shapes) > 1 or len({i.ndim for i in rest}) > 1:
        raise RuntimeError(
            f"Sizes of tensors must match except in dimension {axis}. Got {[list(i.shape) for i in rest]}"
        )
    return np.concatenate(rest, axis=axis)


def _stack_meta(items: Any, axis: int) -> Any:
    shape = list(items[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(items))
    return shape, items[0].dtype


def _stack(items: Any, axis: int) -> Any:
    if not items:
        raise RuntimeError("stack expects a non-empty TensorList")
    if len({i.shape for i in items}) > 1:
        raise RuntimeError(
            f"stack expects each tensor to be equal size, but got {[list(i.shape) for i in items]}"
        )
    return np.stack(items, axis=axis)


def _repeat(x: Any, counts: Any) -> Any:
    if len(counts) < x.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: got "
            f"{list(counts)} for shape {list(x.shape)}"
        )
    return np.tile(x, counts)


def _repeat_meta(x: Any, counts: Any) -> Any:
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    return [a * b for a, b in zip(shape, counts, strict=True)], x.dtype


def _gather(x: Any, axis: int, index: Any) -> Any:
    _check_index(index, "gather")
    if x.ndim == 0:
        return x.reshape(index.shape) if index.ndim == 0 else x.reshape(1)[index]
    if x.ndim != index.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    return x[_grid(index, axis)]


def _grid(index: Any, axis: int) -> Any:
    """Index arrays that address (i, j, ...) with index[i, j, ...] in the dimension `axis`."""
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)]) if index.ndim else []
    if index.ndim == 1:
        grid = [np.arange(index.shape[0])]
    grid[axis] = index
    return tuple(grid)


def _check_index(index: Any, name: str) -> None:
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, got {index.dtype}")


def _index_select(x: Any, axis: int, index: Any) -> Any:
    _check_index(index, "index_select")
    size = x.shape[axis] if x.ndim else 1
    if index.size and (index.min() < 0 or index.max() >= size):
        raise IndexError("index out of range in self")
    return (
        np.take(x.reshape(1) if x.ndim == 0 else x, index.reshape(-1), axis=axis).reshape(
            () if x.ndim == 0 and index.ndim == 0 else -1
        )
        if x.ndim == 0
        else np.take(x, index.reshape(-1), axis=axis)
    )


def _index_select_meta(x: Any, axis: int, index: Any) -> Any:
    shape = list(x.shape)
    shape[axis] = index.size
    return shape, x.dtype


def _scatter(x: Any, axis: int, index: Any, source: Any, mode: Any) -> Any:
    result = x.copy()
    place = _grid(index, axis)
    if isinstance(source, np.ndarray) and source.ndim:
        source = source[tuple(slice(n) for n in index.shape)]
    if mode is None:
        result[place] = source
    else:
        {"add": np.add, "multiply": np.multiply}[mode].at(result, place, source)
    return result


def _index_add(x: Any, axis: int, index: Any, source: Any, alpha: Any) -> Any:
    result = x.copy()
    place = (slice(None),) * (axis % x.ndim) + (index,)
    np.add.at(result, place, source if alpha == 1 else source * alpha)
    return result


def _index_put(x: Any, axis: int, index: Any, source: Any) -> Any:
    result = x.copy()
    result[(slice(None),) * (axis % x.ndim) + (index,)] = source
    return result


def _roll(x: Any, shifts: Any, axis: Any) -> Any:
    return np.roll(x, shifts, axis)


def _diag(x: Any, k: int) -> Any:
    return np.diag(x, k).copy()


def _same(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x.shape, x.dtype


define("cat", _cat, promote="arith", operands=-1, meta=_cat_meta)
define("stack", _stack, promote="arith", operands=-1, meta=_stack_meta)
define("repeat", _repeat, meta=_repeat_meta)
define(
    "repeat_interleave",
    lambda x, repeats, axis: np.repeat(x, repeats, axis),
)
define("gather", _gather, meta=lambda x, axis, index: (index.shape, x.dtype))
define("index_select", _index_select, meta=_index_select_meta)
define("scatter", _scatter, meta=_same)
define("index_add", _index_add, meta=_same)
define("index_put", _index_put, meta=_same)
define("roll", _roll, meta=_same)
define("flip", np.flip, view=False, meta=_same)
define("tril", np.tril, meta=_same)
define("triu", np.triu, meta=_same)
define("diag", _diag)
define(
    "nonzero", lambda x: np.stack(np.nonzero(np.atleast_1d(x)), -1)[:, : x.ndim].astype(np.int64)
)
define("nonzero_tuple", lambda x: np.nonzero(np.atleast_1d(x)))
define(
    "masked_select",
    lambda x, mask: np.broadcast_arrays(x, mask)[0][
        np.broadcast_to(mask, np.broadcast_shapes(x.shape, mask.shape))
    ],
)
define("take", lambda x, index: x.reshape(-1)[index], meta=lambda x, index: (index.shape, x.dtype))


def cat(tensors: Any, dim: int = 0, *, axis: Any = None) -> Any:
    """Joins tensors along a dimension."""
    if not isinstance(tensors, (list, tuple)):
        tensors = list(tensors)
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    return ops["cat"](tensors, dim if axis is None else axis)


def stack(tensors: Any, dim: int = 0) -> Any:
    """Joins tensors along a new dimension."""
    return ops["stack"](tensors if isinstance(tensors, (list, tuple)) else list(tensors), dim)


def repeat(input: Any, *sizes: Any) -> Any:
    """A copy repeated along each dimension."""
    return ops["repeat"](input, _ints(sizes))


def tile(input: Any, *dims: Any) -> Any:
    """repeat() that fills in leading ones."""
    counts = _ints(dims)
    return ops["repeat"](input, (1,) * (input.ndim - len(counts)) + counts)


def repeat_interleave(input: Any, repeats: Any, dim: Any = None) -> Any:
    """Each element (or slice) repeated in place."""
    return ops["repeat_interleave"](input, repeats, dim)


def gather(input: Any, dim: int, index: Any) -> Any:
    """input[i][index[i][j]] for dim 1, and so on."""
    return ops["gather"](input, dim, index)


def index_select(input: Any, dim: int, index: Any) -> Any:
    """The slices of a dimension that index names."""
    return ops["index_select"](input, dim, index)


def scatter(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """A copy with the values of src put where index says."""
    return ops["scatter"](input, dim, index, value if src is None else src, reduce)


def scatter_(
    self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """Puts the values of src where index says."""
    return ops["scatter"].inplace(self, dim, index, value if src is None else src, reduce)


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    """A copy with the values of src added where index says."""
    return ops["scatter"](input, dim, index, src, "add")


def scatter_add_(self: Any, dim: int, index: Any, src: Any) -> Any:
    """Adds the values of src where index says."""
    return ops["scatter"].inplace(self, dim, index, src, "add")


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """A copy with slices of source added to the slices that index names."""
    return ops["index_add"](input, dim, index, source, alpha)


def index_add_(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Adds slices of source to the slices that index names."""
    return ops["index_add"].inplace(self, dim, index, source, alpha)


def index_copy_(self: Any, dim: int, index: Any, source: Any) -> Any:
    """Replaces the slices that index names."""
    return ops["index_put"].inplace(self, dim, index, source)


def index_fill_(self: Any, dim: int, index: Any, value: Any) -> Any:
    """Fills the slices that index names."""
    return ops["index_put"].inplace(self, dim, index, value)


def flip(input: Any, *dims: Any) -> Any:
    """A copy with dimensions reversed."""
    return ops["clone_order"](ops["flip"](input, _ints(dims)))


define("clone_order", np.ascontiguousarray, meta=_same)


def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """Elements moved along dimensions, those beyond the end coming in at the start."""
    return ops["roll"](input, shifts, dims)


def tril(input: Any, diagonal: int = 0) -> Any:
    """The lower triangle; zeros elsewhere."""
    return ops["tril"](input, diagonal)


def triu(input: Any, diagonal: int = 0) -> Any:
    """The upper triangle; zeros elsewhere."""
    return ops["triu"](input, diagonal)


def diag(input: Any, diagonal: int = 0) -> Any:
    """The diagonal of a matrix, or a matrix with this diagonal."""
    return ops["diag"](input, diagonal)


def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not zero."""
    return ops["nonzero_tuple"](input) if as_tuple else ops["nonzero"](input)


def contiguous(input: Any, memory_format: Any = None) -> Any:
    """Itself when its memory is in C order, else a copy that is."""
    return input if input.is_contiguous() else ops["contiguous"](input)


for _function in (
    permute,
    transpose,
    t,
    flatten,
    unflatten,
    squeeze,
    unsqueeze,
    narrow,
    select,
    movedim,
    diagonal,
    chunk,
    split,
    unbind,
    tile,
    repeat_interleave,
    gather,
    index_select,
    scatter,
    scatter_add,
    index_add,
    flip,
    roll,
    tril,
    triu,
    diag,
    nonzero,
):
    expose(_function.__name__, _function)
for _function in (
    view,
    reshape,
    expand,
    expand_as,
    repeat,
    contiguous,
    scatter_,
    scatter_add_,
    index_add_,
    index_copy_,
    index_fill_,
):
    expose(_function.__name__, _function, function=False)
expose("reshape", reshape_function, method=False)
expose("swapaxes", transpose)
expose("swapdims", transpose)
expose("moveaxis", movedim)
expose("cat", cat, method=False)
expose("concat", cat, method=False)
expose("concatenate", cat, method=False)
expose("stack", stack, method=False)
expose("masked_select", ops["masked_select"])
expose("take", ops["take"])
expose("take_along_dim", lambda input, indices, dim: ops["take_along_dim"](input, indices, dim))
expose("view_as", lambda self, other: ops["view"](self, tuple(other.shape)), function=False)
expose("reshape_as", lambda self, other: ops["reshape"](self, tuple(other.shape)), function=False)
expose(
    "unfold",
    lambda self, dimension, size, step: ops["unfold"](self, dimension, size, step),
    function=False,
)
expose("ravel", lambda input: ops["reshape"](input, (-1,)))
expose("broadcast_to", lambda input, size: ops["expand"](input, tuple(size)))
expose("fliplr", lambda input: flip(input, 1))
expose("flipud", lambda input: flip(input, 0))
expose("tril_", lambda self, diagonal=0: ops["tril"].inplace(self, diagonal), function=False)
expose("triu_", lambda self, diagonal=0: ops["triu"].inplace(self, diagonal), function=False)


def broadcast_tensors(*tensors: Any) -> Any:
    """All tensors expanded to their common shape."""
    shape = np.broadcast_shapes(*(tuple(x.shape) for x in tensors))
    return tuple(ops["expand"](x, shape) for x in tensors)


def meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    """Coordinate grids of 1-D tensors."""
    items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return ops["meshgrid"](*items, indexing=indexing)


define("meshgrid", lambda *xs, indexing: tuple(np.meshgrid(*xs, indexing=indexing)))


def _joined(function: Any) -> Any:
    def join(tensors: Any) -> Any:
        return ops[function](list(tensors))

    return join


define("vstack", np.vstack, promote="arith", operands=-1)
define("hstack", np.hstack, promote="arith", operands=-1)
expose("broadcast_tensors", broadcast_tensors, method=False)
expose("meshgrid", meshgrid, method=False)
expose("vstack", _joined("vstack"), method=False)
expose("hstack", _joined("hstack"), method=False)
