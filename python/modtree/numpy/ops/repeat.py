# SPDX-License-Identifier: BSD-3-Clause
"""repeat, tile, repeat_interleave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, from_array
from modtree.numpy.ops.generic import Array, as_ints, of_sequence, operation, wrap_dim, zeros_of
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Sizes, Tensor

_MOST = np.iinfo(np.intp).max


def _repeat(x: Any, counts: Any) -> Any:
    if len(counts) < x.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: got {list(counts)} for shape {list(x.shape)}"
        )
    return np.tile(x, counts)


def _repeat_meta(x: Any, counts: Any) -> Any:
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    return [a * b for a, b in zip(shape, counts, strict=True)], x.dtype


def _repeat_interleave_meta(x: Any, repeats: Any, axis: Any) -> Any:
    if not isinstance(repeats, int):
        raise NotImplementedError(
            "repeat_interleave: the shape of the result depends on the values of repeats, which "
            "are not there for tensors on 'meta'; pass a number"
        )
    shape = [x.size] if axis is None else list(x.shape)
    shape[axis or 0] *= repeats
    return shape, x.dtype


def _repeat_interleave(x: Any, repeats: Any, axis: Any) -> Any:
    if isinstance(repeats, np.ndarray):
        if repeats.dtype not in (np.int32, np.int64):
            raise NotImplementedError(f"repeats must be int32 or int64, but got {repeats.dtype}")
        if repeats.ndim > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if np.min(repeats, initial=0) < 0:
        raise RuntimeError("repeats can not be negative")
    return repeated(x, repeats, axis if axis is None else wrap_dim(axis, x.ndim))


def as_counted(counts: Any) -> Any:
    """0, 1, 2, ..., as many as there are counts."""
    if isinstance(counts, TensorBase) and counts.dtype.dtype.name not in ("int32", "int64"):
        raise NotImplementedError(
            f"\"repeat_interleave\" not implemented for '{counts.dtype}': repeats are int32 "
            f"or int64"
        )
    if not isinstance(counts, TensorBase) or counts.ndim != 1:
        raise RuntimeError("repeat_interleave() only accept 1D vector as repeat")
    return from_array(np.arange(counts.shape[0], dtype=counts.dtype.dtype))


define("repeat", _repeat, meta=_repeat_meta)


def repeated(x: Array, repeats: Any, axis: int | None) -> Array:
    """np.repeat(), which adds up how many there will be without a look at overflow."""
    counts = np.array(repeats)  # our own: nobody changes what was looked at
    along = x.size if axis is None else x.shape[axis]
    if counts.dtype.kind in "iu" and counts.size and along:
        each = x.nbytes // along
        if (
            int(counts.max()) * along * each > _MOST
            and int(counts.sum(dtype=object)) * each > _MOST
        ):
            raise RuntimeError(
                f"repeat_interleave: Storage size calculation overflowed with {along} elements "
                f"repeated up to {counts.max()} times"
            )
    return np.repeat(x, counts, axis)


define(
    "repeat_interleave",
    _repeat_interleave,
    meta=_repeat_interleave_meta,
)


def repeat(input: Tensor, *sizes: int | Sizes) -> Tensor:
    """A copy repeated along each dimension."""
    return ops["repeat"](input, as_ints(sizes))


def tile(input: Tensor, *dims: int | Sizes) -> Tensor:
    """repeat() that fills in leading ones."""
    counts = as_ints(dims)
    return ops["repeat"](input, (1,) * (input.ndim - len(counts)) + counts)


def repeat_interleave(
    input: Tensor,
    repeats: Tensor | int | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element (or slice) repeated in place.

    Args:
        repeats: How often, for all or for each one; without, ``input`` says it of the numbers
            from 0 up.
        dim: The dimension; the flattened input without.
        output_size: The size of the result along ``dim``, where it is known.
    """
    if repeats is None:
        return repeat_interleave(as_counted(input), input, 0, output_size=output_size)
    result = ops["repeat_interleave"](input, repeats, dim)
    along = dim or 0
    if output_size is not None and result.ndim and result.size(along) != output_size:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {result.size(along)} but got "
            f"{output_size}"
        )
    return result


export("repeat", repeat, function=False)
export("tile", tile, function=False)
export("tile", of_sequence("tile", tile), method=False)


def _repeat_each(
    self: Tensor, repeats: Tensor | int, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (or slice) repeated in place.

    Args:
        repeats: How often, for all or for each one.
        dim: The dimension; the flattened tensor without.
        output_size: The size of the result along ``dim``, where it is known.
    """
    return repeat_interleave(self, repeats, dim, output_size=output_size)


_repeat_each.__name__ = _repeat_each.__qualname__ = "repeat_interleave"
export("repeat_interleave", repeat_interleave, method=False)
export("repeat_interleave", _repeat_each, function=False)

# -- derivatives -----------------------------------------------------------------------------------

_pick_backward = operation("index_select_backward")
_sum = operation("sum")


def _repeat_back(g: Any, _out: Any, x_like: Any, counts: Any) -> Any:
    shape = (1,) * (len(counts) - len(x_like.shape)) + tuple(x_like.shape)
    if 0 in counts:
        return zeros_of(x_like.shape, g)
    if min(counts, default=0) < 0:
        raise RuntimeError(f"repeat: invalid number of times in {list(counts)}")
    apart = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    summed = _sum(g.reshape(apart), axis=tuple(range(0, len(apart), 2))) if apart else g
    return summed.reshape(tuple(x_like.shape))


def _repeat_interleave_back(g: Any, _out: Any, x_like: Any, repeats: Any, axis: Any) -> Any:
    shape = tuple(x_like.shape)
    along = (int(np.prod(shape)),) if axis is None else shape
    size = along[axis or 0] if along else 1
    counts = getattr(repeats, "_array", repeats)
    index = repeated(np.arange(size), counts, None)
    return _pick_backward(g, along, axis or 0, index).reshape(shape)


derive("repeat", _repeat_back)
derive("repeat_interleave", _repeat_interleave_back)
