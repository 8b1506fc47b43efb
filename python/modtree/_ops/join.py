# SPDX-License-Identifier: BSD-3-Clause
"""cat, stack, pad, repeat, repeat_interleave, tile, flip, roll, rot90, diag, tril, triu."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import _result_type
from modtree._ops.broadcast import meshgrid
from modtree._ops.generic import as_ints, like_first, operation, wrap_dim, zeros_of
from modtree._ops.registry import define, derive, export, ops
from modtree._ops.shape import atleast


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
            f"Sizes of tensors must match except in dimension {axis}. Got "
            f"{[list(i.shape) for i in rest]}"
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
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor: got "
            f"{list(counts)} for shape {list(x.shape)}"
        )
    return np.tile(x, counts)


def _repeat_meta(x: Any, counts: Any) -> Any:
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    return [a * b for a, b in zip(shape, counts, strict=True)], x.dtype


def _roll(x: Any, shifts: Any, axis: Any) -> Any:
    return np.roll(x, shifts, axis)


def _flip(x: Any, axis: Any) -> Any:
    if len({a % max(x.ndim, 1) for a in axis}) < len(axis):
        raise RuntimeError(f"a dim appears multiple times in the list of dims {list(axis)}")
    return np.flip(x, axis).copy() if x.ndim else x.copy()


def _diag(x: Any, k: int) -> Any:
    if x.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x.ndim}D")
    return np.diag(x, k).copy()


def _diagonal_backward(g: Any, shape: tuple[int, ...], offset: int, axis1: int, axis2: int) -> Any:
    """Zeros of a shape with g on a diagonal."""
    result = np.zeros(shape, g.dtype)
    diagonal = np.diagonal(result, offset, axis1, axis2)
    diagonal.flags.writeable = (
        True  # NumPy gives a view of our own array, read-only for the sake of old programs
    )
    diagonal[...] = g
    return result


def _unfold_backward(g: Any, shape: tuple[int, ...], axis: int, size: int, step: int) -> Any:
    """The sum of windows at the indices where unfold() took them."""
    result = np.zeros(shape, g.dtype)
    if result.ndim == 0:
        return result + g.sum(dtype=g.dtype)
    lead = (slice(None),) * (axis % result.ndim)
    count = g.shape[axis % result.ndim]
    for i in range(size):
        result[lead + (slice(i, i + step * count, step),)] += g[..., i]
    return result


_PADDED_BY_INDEX = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded_index(size: int, widths: tuple[int, int], mode: str) -> Any:
    """For each index of a padded dimension, the index whose element stands there."""
    return np.pad(np.arange(size), widths, mode=_PADDED_BY_INDEX[mode])


def _pad(x: Any, widths: Any, mode: str = "constant", value: Any = 0) -> Any:
    """Widths are (before, after) for each dimension, none negative."""
    if mode == "constant":
        shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
        result = np.full(shape, value, x.dtype) if value else np.zeros(shape, x.dtype)
        result[inner(x.shape, widths)] = x
        return result
    for axis, (n, (before, after)) in enumerate(zip(x.shape, widths, strict=True)):
        if before or after:
            limit = {"reflect": n - 1, "circular": n}.get(mode)
            if (limit is not None and max(before, after) > limit) or n == 0:
                raise RuntimeError(
                    f"Padding size should be less than the corresponding input dimension for "
                    f"mode '{mode}', but got: "
                    f"padding ({before}, {after}) at dimension {axis} of input {list(x.shape)}"
                )
            x = np.take(x, padded_index(n, (before, after), mode), axis)
    return x


def inner(shape: tuple[int, ...], widths: Any) -> tuple[slice, ...]:
    """Where the original stands in what pad() made of it."""
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


def _pad_meta(x: Any, widths: Any, mode: str = "constant", value: Any = 0) -> Any:
    return [n + sum(pair) for n, pair in zip(x.shape, widths, strict=True)], x.dtype


def _repeat_interleave_meta(x: Any, repeats: Any, axis: Any) -> Any:
    if not isinstance(repeats, int):
        raise NotImplementedError(
            "repeat_interleave: the shape of the result depends on the values of repeats, which "
            "are not there for "
            "tensors on 'meta'; pass a number"
        )
    shape = [x.size] if axis is None else list(x.shape)
    shape[axis or 0] *= repeats
    return shape, x.dtype


def _diag_meta(x: Any, k: int) -> Any:
    if x.ndim == 1:
        return (x.shape[0] + abs(k),) * 2, x.dtype
    rows, columns = x.shape
    return (max(min(rows + min(k, 0), columns - max(k, 0)), 0),), x.dtype


define("cat", _cat, promote="arith", operands=-1, meta=_cat_meta)
define("stack", _stack, promote="arith", operands=-1, meta=_stack_meta)
define("repeat", _repeat, meta=_repeat_meta)
define(
    "repeat_interleave",
    lambda x, repeats, axis: np.repeat(x, repeats, axis),
    meta=_repeat_interleave_meta,
)
define("roll", _roll, meta=like_first)
define("flip", _flip, meta=like_first)
define("tril", np.tril, meta=like_first)
define("triu", np.triu, meta=like_first)
define("diag", _diag, meta=_diag_meta)
define("diagonal_backward", _diagonal_backward, meta=lambda g, shape, *_: (shape, g.dtype))
define("unfold_backward", _unfold_backward, meta=lambda g, shape, *_: (shape, g.dtype))
define("pad", _pad, meta=_pad_meta)


def cat(tensors: Any, dim: int = 0, *, axis: Any = None) -> Any:
    """Joins tensors along a dimension.

    Args:
        tensors: Tensors whose other dimensions agree.
        dim: The dimension; may count from the end.
        axis: NumPy's name of ``dim``.
    """
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
    return ops["repeat"](input, as_ints(sizes))


def tile(input: Any, *dims: Any) -> Any:
    """repeat() that fills in leading ones."""
    counts = as_ints(dims)
    return ops["repeat"](input, (1,) * (input.ndim - len(counts)) + counts)


def repeat_interleave(input: Any, repeats: Any, dim: Any = None) -> Any:
    """Each element (or slice) repeated in place.

    Args:
        repeats: How often, for all or for each one.
        dim: The dimension; the flattened input without.
    """
    return ops["repeat_interleave"](input, repeats, dim)


def flip(input: Any, *sizes: Any, dims: Any = None) -> Any:
    """A copy with dimensions reversed; they are given one by one, as a sequence, or as
    ``dims=``.

    Args:
        sizes: The dimensions.
        dims: The dimensions, as a sequence.
    """
    return ops["flip"](input, as_ints(sizes if dims is None else (dims,)))


def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """Elements moved along dimensions, those beyond the end coming in at the start.

    Args:
        shifts: How far, for each dimension.
        dims: The dimensions; the flattened input without.
    """
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


def hstack(tensors: Any) -> Any:
    """Joins along the second dimension; 1-D tensors along the only one."""
    items = _atleast_1d(list(tensors))
    return cat(items, 0 if items[0].ndim == 1 else 1)


def vstack(tensors: Any) -> Any:
    """Joins along the first dimension; 1-D tensors as rows."""
    return cat(_atleast_2d(list(tensors)), 0)


def dstack(tensors: Any) -> Any:
    """Joins along the third dimension."""
    return cat(_atleast_3d(list(tensors)), 2)


def column_stack(tensors: Any) -> Any:
    """Joins along the second dimension; 1-D tensors as columns."""
    return cat([t if t.ndim > 1 else t.reshape(-1, 1) for t in tensors], 1)


_atleast_1d, _atleast_2d, _atleast_3d = atleast(1), atleast(2), atleast(3)


def block_diag(*tensors: Any) -> Any:
    """The tensors as blocks along the diagonal of a matrix of zeros."""
    kind = _result_type(*tensors)
    items = _atleast_2d([t.to(kind) for t in tensors])
    width = sum(t.size(1) for t in items)
    rows, start = [], 0
    for t in items:
        if t.ndim != 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Got {t.ndim} "
                f"dimensions"
            )
        stop = start + t.size(1)
        rows.append(ops["pad"](t, ((0, 0), (start, width - stop)), "constant", 0))
        start = stop
    return cat(rows, 0)


def rot90(input: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    """Turned by k times 90 degrees in the plane of two dimensions.

    Args:
        k: Number of turns.
        dims: The plane: from the first towards the second.
    """
    first, second = (wrap_dim(d, input.ndim) for d in dims)
    if first == second:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} twice"
        )
    k %= 4
    if k == 0:
        return input.clone()
    if k == 2:
        return flip(input, first, second)
    turned = flip(input, second if k == 1 else first)
    return turned.swapaxes(first, second).contiguous()


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices of zeros whose diagonals are the last dimension of input.

    Args:
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dim1: First dimension of the matrices in the result.
        dim2: Second one.
    """
    ndim = input.ndim + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.size(-1) + abs(offset)
    shape = list(input.shape[:-1])
    for axis in sorted((first, second)):
        shape.insert(axis, size)
    return ops["diagonal_backward"](input, tuple(shape), offset, first, second)


def diagflat(input: Any, offset: int = 0) -> Any:
    """A matrix with all elements of input on its diagonal."""
    return ops["diag"](input.reshape(-1), offset)


def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along dim, n times over; prepend and append are joined on first."""
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    ends = [t for t in (prepend, input, append) if t is not None]
    result = cat(ends, dim) if len(ends) > 1 else input
    for _ in range(n):
        size = result.size(dim)
        if size == 0:
            break
        later, earlier = result.narrow(dim, 1, size - 1), result.narrow(dim, 0, size - 1)
        result = later ^ earlier if later._array.dtype.kind == "b" else later - earlier
    return result.clone() if result is input else result


def cartesian_prod(*tensors: Any) -> Any:
    """All tuples of one element of each 1-D tensor."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors)], 1)


_function: Any  # of one type after another
for _function in (
    repeat_interleave,
    tile,
    flip,
    roll,
    rot90,
    tril,
    triu,
    diag,
    diag_embed,
    diagflat,
    diff,
):
    export(_function.__name__, _function)
for _function in (
    cat,
    stack,
    hstack,
    vstack,
    dstack,
    column_stack,
    block_diag,
    cartesian_prod,
):
    export(_function.__name__, _function, method=False)
export("concat", cat, method=False)
export("concatenate", cat, method=False)
export("row_stack", vstack, method=False)
export("repeat", repeat, function=False)
export("fliplr", lambda input: flip(input, 1))
export("flipud", lambda input: flip(input, 0))
export("tril_", lambda self, diagonal=0: ops["tril"].inplace(self, diagonal), function=False)
export("triu_", lambda self, diagonal=0: ops["triu"].inplace(self, diagonal), function=False)

# -- derivatives -----------------------------------------------------------------------------------

_flip_op = operation("flip")
_roll_op = operation("roll")
_diagonal_backward_op = operation("diagonal_backward")

_diagonal_op = operation("diagonal")
_getitem = operation("getitem")
_pick_backward = operation("index_select_backward")
_split = operation("split")
_sum = operation("sum")
_tril = operation("tril")
_triu = operation("triu")
_unbind_op = operation("unbind")
_unfold_op = operation("unfold")


def _cat_back(g: Any, _out: Any, items_like: Any, axis: int) -> Any:
    # Those that cat() skips are empty, and so are their gradients.
    skipped = [tuple(x.shape) == (0,) and len(g.shape) > 1 for x in items_like]
    sizes = [0 if skip else x.shape[axis] for x, skip in zip(items_like, skipped, strict=True)]
    pieces = _split(g, sizes, axis)
    return [
        zeros_of((0,), g) if skip else piece for piece, skip in zip(pieces, skipped, strict=True)
    ]


derive("cat", _cat_back)

derive("stack", lambda g, _out, _items, axis: list(_unbind_op(g, axis)))


def _repeat_back(g: Any, _out: Any, x_like: Any, counts: Any) -> Any:
    shape = (1,) * (len(counts) - len(x_like.shape)) + tuple(x_like.shape)
    apart = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    summed = _sum(g.reshape(apart), axis=tuple(range(0, len(apart), 2))) if apart else g
    return summed.reshape(tuple(x_like.shape))


derive("repeat", _repeat_back)


def _repeat_interleave_back(g: Any, _out: Any, x_like: Any, repeats: Any, axis: Any) -> Any:
    shape = tuple(x_like.shape)
    along = (int(np.prod(shape)),) if axis is None else shape
    size = along[axis or 0] if along else 1
    counts = getattr(repeats, "_array", repeats)
    index = np.repeat(np.arange(size), counts)
    return _pick_backward(g, along, axis or 0, index).reshape(shape)


derive("repeat_interleave", _repeat_interleave_back)


def _negated(shifts: Any) -> Any:
    return tuple(-s for s in shifts) if isinstance(shifts, (tuple, list)) else -shifts


derive("roll", lambda g, _out, _x, shifts, axis: _roll_op(g, _negated(shifts), axis))

derive("flip", lambda g, _out, _x, axis: _flip_op(g, axis))

derive("tril", lambda g, _out, _x, k: _tril(g, k))

derive("triu", lambda g, _out, _x, k: _triu(g, k))


def _diag_back(g: Any, _out: Any, x_like: Any, k: int) -> Any:
    if len(x_like.shape) == 1:
        return _diagonal_op(g, k, 0, 1)
    return _diagonal_backward_op(g, tuple(x_like.shape), k, 0, 1)


derive("diag", _diag_back)


def _pad_back(
    g: Any, _out: Any, x_like: Any, widths: Any, mode: str = "constant", value: Any = 0
) -> Any:
    shape = tuple(x_like.shape)
    if mode == "constant":
        return _getitem(g, inner(shape, widths))
    for axis, (size, (before, after)) in enumerate(zip(shape, widths, strict=True)):
        if before or after:
            target = (*g.shape[:axis], size, *g.shape[axis + 1 :])
            g = _pick_backward(g, target, axis, padded_index(size, (before, after), mode))
    return g


derive("pad", _pad_back)

derive("diagonal_backward", lambda g, _out, _x, shape, offset, a, b: _diagonal_op(g, offset, a, b))

derive(
    "unfold_backward",
    lambda g, _out, _x, shape, axis, size, step: _unfold_op(g, axis, size, step),
)
