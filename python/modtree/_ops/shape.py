# SPDX-License-Identifier: BSD-3-Clause
"""reshape, permute, expand, squeeze, diagonal, unbind, unfold, tril, flip, roll and other changes
of shape.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from modtree._C import as_dtype, dtype
from modtree._ops.generic import operation, operation_of_list, zeros_of
from modtree._ops.registry import define, derive, expose, not_differentiable, ops, unchanged
from modtree._tensor.layouts import contiguous_format, preserve_format
from modtree._tensor.memory_formats import check_format, in_format
from modtree._tensor.size import Size


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
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but "
            f"got {dim})"
        )
    return dim % limit


# -- views -----------------------------------------------------------------------------------------


def _squeeze(x: Any, axes: Any) -> Any:
    return x.reshape(
        [n for i, n in enumerate(x.shape) if not (n == 1 and (axes is None or i in axes))]
    )


def _expand(x: Any, sizes: Any) -> Any:
    extra = len(sizes) - x.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand({list(sizes)}): the number of sizes provided ({len(sizes)}) must be greater "
            f"or equal to the "
            f"number of dimensions in the tensor ({x.ndim})"
        )
    target = []
    for i, size in enumerate(sizes):
        have = x.shape[i - extra] if i >= extra else None
        if size == -1:
            if have is None:
                raise RuntimeError(
                    f"expand({list(sizes)}): -1 isn't allowed in a leading, non-existing "
                    f"dimension {i}"
                )
            size = have
        elif have is not None and have not in (1, size):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({have}) "
                f"at non-singleton "
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


def _diagonal(x: Any, *options: int) -> Any:
    view = np.diagonal(x, *options)
    view.flags.writeable = x.flags.writeable  # NumPy's own is read-only
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
define("diagonal", _diagonal, view=True)


def _view_as_real(x: Any) -> Any:
    if x.dtype.kind != "c":
        raise RuntimeError(f"view_as_real is only supported for complex tensors, got {x.dtype}")
    return x.reshape((*x.shape, 1)).view(x.real.dtype)


def _view_as_complex(x: Any) -> Any:
    if x.dtype.kind != "f" or x.shape[-1:] != (2,) or x.strides[-1] != x.itemsize:
        raise RuntimeError(
            f"view_as_complex: expected real numbers whose last dimension has size 2 and stride "
            f"1, got {x.dtype} of "
            f"shape {list(x.shape)}"
        )
    return x.view(np.result_type(x.dtype, np.complex64))[..., 0]


define("view_as_real", _view_as_real, view=True)
define("view_as_complex", _view_as_complex, view=True)
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
        if size > 1:
            raise RuntimeError(f"maximum size for tensor at dimension 0 is 1 but size is {size}")
        return x.reshape(1)[:size]
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis, writeable=True)
    return windows[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]


define("split", _splits, view=True)
define("unbind", _unbind, view=True)
define("unfold", _unfold, view=True)


def view(input: Any, *shape: Any, dtype: Any = None) -> Any:
    """The same memory in another shape, or read as another dtype.

    Args:
        shape: Sizes, one by one or as a sequence, of which one may be -1; or a dtype.
        dtype: The dtype to read the memory as.
    """
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
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = "
            f"{len(order)}"
        )
    return ops["permute"](input, order)


def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions exchanged.

    Args:
        dim0: One dimension.
        dim1: The other.
    """
    if input.ndim == 0:
        return input[...] if _dim(dim0, 0) == _dim(dim1, 0) else input
    return _swapaxes(input, dim0, dim1)


def t(input: Any) -> Any:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return ops["permute"](input)


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Joins the dimensions start_dim..end_dim into one.

    Args:
        start_dim: The first dimension of those joined.
        end_dim: The last one.
    """
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
    """Splits one dimension into several.

    Args:
        dim: The dimension; may count from the end.
        sizes: Their sizes; one may be -1.
    """
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
    """The slice start..start+length of one dimension.

    Args:
        dim: The dimension; may count from the end.
        start: First index; may count from the end.
        length: Number of indices.
    """
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = _dim(dim, input.ndim)
    start = operator.index(start)
    size = input.size(dim)
    start = start + size if start < 0 else start
    if length < 0 or start < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return ops["getitem"](input, (slice(None),) * dim + (slice(start, start + length),))


def select(input: Any, dim: int, index: int) -> Any:
    """One index of one dimension.

    Args:
        dim: The dimension; may count from the end.
        index: The index; may count from the end.
    """
    dim = _dim(dim, input.ndim)
    return input[(slice(None),) * dim + (operator.index(index),)]


def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Moves dimensions to other positions.

    Args:
        source: One or several dimensions.
        destination: Where each of them goes.
    """
    if input.ndim == 0 and isinstance(source, int) and isinstance(destination, int):
        _dim(source, 0), _dim(destination, 0)
        return input[...]
    return ops["movedim"](input, source, destination)


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A view of a diagonal, as the last dimension.

    Args:
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dim1: First of the two dimensions of the matrices.
        dim2: Second of them.
    """
    return ops["diagonal"](input, offset, _dim(dim1, input.ndim), _dim(dim2, input.ndim))


def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` pieces of equal size (the last may be smaller).

    Args:
        chunks: Number of pieces.
        dim: The dimension; may count from the end.
    """
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    size = input.size(dim)
    return split(input, -(-size // chunks) if size else [0] * chunks, dim)


def split(input: Any, split_size: Any, dim: int = 0) -> Any:
    """Pieces of a size, or of the sizes given.

    Args:
        split_size: A size, or a list with the size of each piece.
        dim: The dimension; may count from the end.
    """
    if input.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
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
                f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's "
                f"size at dimension "
                f"{dim}), but got split_sizes={sizes}"
            )
    return ops["split"](input, sizes, dim)


def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> Any:
    """split() into pieces of the sizes given.

    Args:
        split_sizes: The size of each piece; together that of the dimension.
        dim: The dimension; may count from the end.
    """
    return split(input, list(split_sizes), dim)


def view_as_real(input: Any) -> Any:
    """Complex numbers as pairs of real ones, in a new last dimension."""
    return ops["view_as_real"](input)


def view_as_complex(input: Any) -> Any:
    """Pairs of real numbers, in the last dimension, as complex ones."""
    return ops["view_as_complex"](input)


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that tensors of these shapes have together."""
    try:
        return Size(
            np.broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes))
        )
    except ValueError:
        raise RuntimeError(
            f"Shape mismatch: objects cannot be broadcast to a single shape: "
            f"{[list(s) for s in shapes]}"
        ) from None


def unbind(input: Any, dim: int = 0) -> Any:
    """The slices along a dimension, without it."""
    input.size(dim)
    return ops["unbind"](input, dim)


define("movedim", np.moveaxis, view=True)


def contiguous(input: Any, memory_format: Any = contiguous_format) -> Any:
    """Itself when its memory is in C order (or in the order of the format), else a copy that is."""
    if memory_format is contiguous_format or (
        memory_format is preserve_format and input.is_contiguous()
    ):
        return input if input.is_contiguous() else ops["contiguous"](input)
    check_format("contiguous", memory_format)
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return in_format(input, memory_format)


def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Pieces between the indices given, or a number of pieces as equal as possible (the first ones
    larger).

    Args:
        indices_or_sections: A number of pieces, or the indices between them.
        dim: The dimension; may count from the end.
    """
    size = input.size(dim)
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise RuntimeError(
                f"number of sections must be larger than 0, got {sections}: pass at least 1"
            )
        least, larger = divmod(size, sections)
        return ops["split"](input, [least + (i < larger) for i in range(sections)], dim)
    bounds = [operator.index(i) for i in indices_or_sections]
    starts = [0, *(min(max(b + size if b < 0 else b, 0), size) for b in bounds)]
    stops = [*starts[1:], size]
    dim = _dim(dim, input.ndim)
    lead = (slice(None),) * dim
    return tuple(
        ops["getitem"](input, (*lead, slice(a, b))) for a, b in zip(starts, stops, strict=True)
    )


def _split_along(name: str, dim: int, least: int) -> Any:
    def pieces(input: Any, indices_or_sections: Any) -> Any:
        if input.ndim < least:
            raise RuntimeError(
                f"{name} requires a tensor with at least {least} dimension(s), but got a tensor "
                f"with {input.ndim}"
            )
        axis = dim if input.ndim > 1 else 0
        if isinstance(indices_or_sections, int) and input.size(axis) % indices_or_sections:
            raise RuntimeError(
                f"{name} attempted to split along dimension {axis}, but the size of the "
                f"dimension {input.size(axis)} "
                f"is not divisible by the split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, axis)

    pieces.__name__ = pieces.__qualname__ = name
    pieces.__doc__ = f"Equal pieces, or those between the indices given, as {name} says."
    return pieces


def atleast(ndim: int) -> Any:
    """The function that gives tensors at least so many dimensions, as NumPy places them."""

    def widen(*tensors: Any) -> Any:
        items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else None
        if items is None and len(tensors) == 1:
            return _widened(tensors[0], ndim)
        return tuple(_widened(t, ndim) for t in (tensors if items is None else items))

    widen.__name__ = widen.__qualname__ = f"atleast_{ndim}d"
    widen.__doc__ = f"Tensors with at least {ndim} dimension(s)."
    return widen


def _widened(tensor: Any, ndim: int) -> Any:
    shape = tuple(tensor.shape)
    if len(shape) >= ndim:
        return tensor
    if ndim == 3 and shape:
        shape = (1, *shape, 1) if len(shape) == 1 else (*shape, 1)
    else:
        shape = (1,) * (ndim - len(shape)) + shape
    return ops["reshape"](tensor, shape)


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
    tensor_split,
    unbind,
    split_with_sizes,
    view_as_real,
    view_as_complex,
    _split_along("hsplit", 1, 1),
    _split_along("vsplit", 0, 2),
    _split_along("dsplit", 2, 3),
):
    expose(_function.__name__, _function)
for _function in (view, reshape, expand, expand_as, contiguous):
    expose(_function.__name__, _function, function=False)
for _function in (atleast(1), atleast(2), atleast(3)):
    expose(_function.__name__, _function, method=False)
expose("reshape", reshape_function, method=False)
expose("swapaxes", transpose)
expose("swapdims", transpose)
expose("moveaxis", movedim)
expose("adjoint", lambda input: input.mH)
expose("view_as", lambda self, other: ops["view"](self, tuple(other.shape)), function=False)
expose("reshape_as", lambda self, other: ops["reshape"](self, tuple(other.shape)), function=False)
expose(
    "unfold",
    lambda self, dimension, size, step: ops["unfold"](self, dimension, size, step),
    function=False,
)
expose("ravel", lambda input: ops["reshape"](input, (-1,)))
expose("broadcast_to", lambda input, size: ops["expand"](input, tuple(size)))


def broadcast_tensors(*tensors: Any) -> Any:
    """All tensors expanded to their common shape."""
    shape = np.broadcast_shapes(*(tuple(x.shape) for x in tensors))
    return tuple(ops["expand"](x, shape) for x in tensors)


def meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    """Coordinate grids of 1-D tensors: views of them."""
    items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    for item in items:
        if item.dtype != items[0].dtype:
            raise RuntimeError(
                f"meshgrid expects all tensors to have the same dtype, got {items[0].dtype} and "
                f"{item.dtype}"
            )
        if item.ndim > 1:
            raise RuntimeError(
                f"meshgrid: Expected 0D or 1D tensor in the tensor list but got: {item.ndim}D"
            )
    shape = [item.numel() for item in items]
    rank = len(shape)
    grids = [
        ops["expand"](ops["reshape"](x, (1,) * i + (-1,) + (1,) * (rank - 1 - i)), tuple(shape))
        for i, x in enumerate(items)
    ]
    return tuple(g.swapaxes(0, 1) for g in grids) if indexing == "xy" and rank > 1 else tuple(grids)


expose("broadcast_shapes", broadcast_shapes, method=False)
expose("broadcast_tensors", broadcast_tensors, method=False)
expose("meshgrid", meshgrid, method=False)


# -- derivatives -----------------------------------------------------------------------------------

_cat, _stack = operation_of_list("cat"), operation_of_list("stack")
_split, _unbind_op, _sum = operation("split"), operation("unbind"), operation("sum")
_permute, _movedim, _unfold_op = operation("permute"), operation("movedim"), operation("unfold")
_getitem, _diagonal_op = operation("getitem"), operation("diagonal")
_getitem_backward, _diagonal_backward = (
    operation("getitem_backward"),
    operation("diagonal_backward"),
)
_unfold_backward, _pick_backward = operation("unfold_backward"), operation("index_select_backward")
_pick, _roll, _flip, _pad = (operation(n) for n in ("index_select", "roll", "flip", "pad"))
_tril, _triu = operation("tril"), operation("triu")

_contiguous = operation("contiguous")
_as_complex, _as_real = operation("view_as_complex"), operation("view_as_real")

# -- views -----------------------------------------------------------------------------------------


def _reshape_back(g: Any, _out: Any, x_like: Any, *_: Any) -> Any:
    return g.reshape(tuple(x_like.shape))


def _permute_back(g: Any, _out: Any, x_like: Any, order: Any = None) -> Any:
    if order is None:
        return _permute(g)
    ndim = len(x_like.shape)
    inverse = [0] * ndim
    for position, axis in enumerate(order):
        inverse[axis % ndim] = position
    return _permute(g, tuple(inverse))


derive("view", _reshape_back)
derive("reshape", _reshape_back)
derive("squeeze", _reshape_back)
derive("unsqueeze", _reshape_back)
derive("permute", _permute_back)
derive("swapaxes", lambda g, _out, _x, a, b: g.swapaxes(a, b))
derive("movedim", lambda g, _out, _x, source, target: _movedim(g, target, source))
derive("expand", unchanged)
derive("contiguous", unchanged)
derive("real", unchanged)
# Of a complex number two real ones are as much as one complex one: the gradient is the pair.
derive("view_as_real", lambda g, _out, _x: _as_complex(_contiguous(g)))
derive("view_as_complex", lambda g, _out, _x: _as_real(g))
derive("imag", lambda g, _out, _x: g * 1j)
derive(
    "getitem",
    lambda g, _out, x_like, index: _getitem_backward(g, tuple(x_like.shape), index),
)
derive(
    "diagonal",
    lambda g, _out, x_like, offset=0, a=0, b=1: _diagonal_backward(
        g, tuple(x_like.shape), offset, a, b
    ),
)
derive(
    "unfold",
    lambda g, _out, x_like, axis, size, step: _unfold_backward(
        g, tuple(x_like.shape), axis, size, step
    ),
)
# The bits of a number say nothing of its neighbours.
not_differentiable("view_dtype")


def _pieces(g: Any) -> Any:
    """The gradients of the pieces; that of a single piece comes without a tuple."""
    return g if isinstance(g, tuple) else (g,)


def _split_back(g: Any, _out: Any, x_like: Any, sizes: Any, axis: int) -> Any:
    g = _pieces(g)
    one = next(piece for piece in g if piece is not None)
    shape = list(x_like.shape)
    pieces = []
    for piece, size in zip(g, sizes, strict=True):
        shape[axis] = size
        pieces.append(zeros_of(shape, one) if piece is None else piece)
    return _cat(pieces, axis)


def _unbind_back(g: Any, _out: Any, _x: Any, axis: int) -> Any:
    g = _pieces(g)
    one = next(piece for piece in g if piece is not None)
    return _stack([zeros_of(one.shape, one) if piece is None else piece for piece in g], axis)


derive("split", _split_back)
derive("unbind", _unbind_back)

# -- joins -----------------------------------------------------------------------------------------


# -- copies ----------------------------------------------------------------------------------------
