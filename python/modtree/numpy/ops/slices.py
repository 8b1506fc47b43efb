# SPDX-License-Identifier: BSD-3-Clause
"""Parts of a tensor, as views: indexing, select, narrow, diagonal, split, chunk, unbind, unfold."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, get_items
from modtree.numpy.ops.generic import operation, operation_of_list, wrap_dim, zeros_of
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Sizes, Tensor


def _diagonal(x: Any, *options: int) -> Any:
    view = np.diagonal(x, *options)
    view.flags.writeable = x.flags.writeable  # NumPy's own is read-only
    return view


def _splits(x: Any, sizes: Any, axis: int) -> Any:
    pieces, start = [], 0
    lead = (slice(None),) * (axis % max(x.ndim, 1))
    for size in sizes:
        pieces.append(x[lead + (slice(start, start + size),)])
        start += size
    return pieces


def _unbind(x: Any, axis: int) -> Any:
    lead = (slice(None),) * (axis % max(x.ndim, 1))
    return [x[lead + (i, ...)] for i in range(x.shape[axis])]


def _unfold(x: Any, axis: int, size: int, step: int) -> Any:
    axis = wrap_dim(axis, x.ndim)
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if x.ndim == 0:
        if size > 1:
            raise RuntimeError(f"maximum size for tensor at dimension 0 is 1 but size is {size}")
        return x.reshape(1)[:size]
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis, writeable=True)
    return windows[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]


def _sum_of_windows(g: Any, shape: tuple[int, ...], axis: int, size: int, step: int) -> Any:
    """The sum of windows at the indices where unfold() took them."""
    result = np.zeros(shape, g.dtype)
    if result.ndim == 0:
        return result + g.sum(dtype=g.dtype)
    lead = (slice(None),) * (axis % result.ndim)
    count = g.shape[axis % result.ndim]
    for i in range(size):
        result[lead + (slice(i, i + step * count, step),)] += g[..., i]
    return result


define("getitem", get_items, view=True)

define("diagonal", _diagonal, view=True)

define("split", _splits, view=True)
define("unbind", _unbind, view=True)
define("unfold", _unfold, view=True)
define("unfold_backward", _sum_of_windows, meta=lambda g, shape, *_: (shape, g.dtype))


def narrow(input: Tensor, dim: int, start: Tensor | int, length: int) -> Tensor:
    """The slice start..start+length of one dimension.

    Args:
        dim: The dimension; may count from the end.
        start: First index; may count from the end.
        length: Number of indices.
    """
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    given: Any = start
    if isinstance(start, TensorBase) and (given.ndim or given.dtype.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    dim = wrap_dim(dim, input.ndim)
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    start = operator.index(start)
    size = input.size(dim)
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
        )
    start = start + size if start < 0 else start
    if start < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return ops["getitem"](input, (slice(None),) * dim + (slice(start, start + length),))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of one dimension.

    Args:
        dim: The dimension; may count from the end.
        index: The index; may count from the end.
    """
    dim = wrap_dim(dim, input.ndim)
    return input[(slice(None),) * dim + (operator.index(index),)]


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal, as the last dimension.

    Args:
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dim1: First of the two dimensions of the matrices.
        dim2: Second of them.
    """
    return ops["diagonal"](input, offset, wrap_dim(dim1, input.ndim), wrap_dim(dim2, input.ndim))


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
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


def split(input: Tensor, split_size: int | Sizes, dim: int = 0) -> tuple[Tensor, ...]:
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
        if min(sizes, default=0) < 0:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes have only non-negative entries, but got "
                f"split_sizes={sizes}"
            )
        if sum(sizes) != total:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's "
                f"size at dimension {dim}), but got split_sizes={sizes}"
            )
    return ops["split"](input, sizes, dim)


def split_with_sizes(input: Tensor, split_sizes: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """split() into pieces of the sizes given.

    Args:
        split_sizes: The size of each piece; together that of the dimension.
        dim: The dimension; may count from the end.
    """
    return split(input, list(split_sizes), dim)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dimension, without it."""
    input.size(dim)
    return ops["unbind"](input, dim)


def _places(given: Any) -> Any:
    """What a tensor tells tensor_split(): a number of pieces, or the indices between them."""
    if given.dtype.dtype.name != "int64":
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
            f"{given.dtype}"
        )
    if given.ndim > 1:
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
            f"one-dimensional tensor, but got a tensor with {given.ndim} dims"
        )
    return given.tolist()


def tensor_split(
    input: Tensor, indices_or_sections: int | Sizes, dim: int = 0
) -> tuple[Tensor, ...]:
    """Pieces between the indices given, or a number of pieces as equal as possible (the first ones
    larger).

    Args:
        indices_or_sections: A number of pieces, or the indices between them.
        dim: The dimension; may count from the end.
    """
    if input.ndim == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    size = input.size(dim)
    if isinstance(indices_or_sections, TensorBase):
        indices_or_sections = _places(indices_or_sections)
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise RuntimeError(
                f"number of sections must be larger than 0, got {sections}: pass at least 1"
            )
        least, larger = divmod(size, sections)
        return ops["split"](input, [least + 1] * larger + [least] * (sections - larger), dim)
    bounds = [operator.index(i) for i in indices_or_sections]
    starts = [0, *(min(max(b + size if b < 0 else b, 0), size) for b in bounds)]
    stops = [*starts[1:], size]
    dim = wrap_dim(dim, input.ndim)
    lead = (slice(None),) * dim
    return tuple(
        ops["getitem"](input, (*lead, slice(a, b))) for a, b in zip(starts, stops, strict=True)
    )


for _function in (
    narrow,
    select,
    diagonal,
    chunk,
    split,
    split_with_sizes,
    tensor_split,
    unbind,
):
    export(_function.__name__, _function)


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Views of `size` elements along a dimension, each `step` after the one before.

    Args:
        dimension: The dimension; may count from the end.
        size: Number of elements.
        step: Distance of the first elements of two views.
    """
    return ops["unfold"](self, dimension, size, step)


export("unfold", unfold, function=False)


# -- derivatives -----------------------------------------------------------------------------------

_unfold_op = operation("unfold")
_cat, _stack = operation_of_list("cat"), operation_of_list("stack")
_getitem_backward, _diagonal_backward, _unfold_backward = (
    operation(n) for n in ("getitem_backward", "diagonal_backward", "unfold_backward")
)

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
derive(
    "unfold_backward",
    lambda g, _out, _x, shape, axis, size, step: _unfold_op(g, axis, size, step),
)


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
