# SPDX-License-Identifier: BSD-3-Clause
"""What derivatives compute with: functions of arrays in a backward pass, of tensors when the backward pass is recorded itself.

Operators, methods that both have, and NumPy's ufuncs need none of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree._C import TensorBase, from_array
from modtree.ops import masks
from modtree.ops.table import ops

# Below this size a filled copy costs less than NumPy's broadcast_to().
_COPY_BELOW = 4096
#: Zero of each dtype, as an array: NumPy takes longer to convert a number.
ZEROS = {np.dtype(kind): np.zeros((), kind) for kind in "efdFD"}


def row(name: str) -> Callable[..., Any]:
    """A row of the table as a function of arrays or of tensors: what its first argument is decides."""
    op = ops[name]
    forward = op.forward

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return (op if isinstance(x, TensorBase) else forward)(x, *args, **kwargs)

    return call


def row_of_many(name: str) -> Callable[..., Any]:
    """The same for a row whose first argument is a list: what the first of the list is decides."""
    op = ops[name]
    forward = op.forward

    def call(items: list[Any], *args: Any) -> Any:
        return (op if isinstance(items[0], TensorBase) else forward)(items, *args)

    return call


_sum = row("sum")
_expand = row("expand")
_where = ops["where"]


def conj(x: Any) -> Any:
    """The complex conjugate of an array, a tensor or a number; what is real comes back as it is."""
    if x.__class__ is float or x.__class__ is int:
        return x
    return x.conjugate() if x.__class__ is complex else x.conj()


def is_real(x: Any) -> bool:
    """Is the dtype not a complex one?"""
    return not x.is_complex() if isinstance(x, TensorBase) else x.dtype.kind != "c"


def where(condition: Any, a: Any, b: Any) -> Any:
    """numpy.where."""
    if isinstance(condition, TensorBase) or isinstance(a, TensorBase) or isinstance(b, TensorBase):
        return _where(condition, a, b)
    return np.where(condition, a, b)


def select(mask: Any, g: Any) -> Any:
    """g where the mask holds, 0 elsewhere, also where g is infinite or NaN there."""
    if isinstance(g, TensorBase):
        return _where(mask, g, 0)
    if g.size < masks.LARGE:
        return np.where(mask, g, ZEROS[g.dtype])
    return masks.keep(mask, g)


def any_of(mask: Any) -> bool:
    """Does the mask hold anywhere?"""
    return bool(mask.any() if isinstance(mask, TensorBase) else np.count_nonzero(mask))


def backwards(x: Any, axis: int) -> Any:
    """x in reverse order along an axis."""
    if isinstance(x, TensorBase):
        return ops["flip"](x, (axis,))
    return x[(slice(None),) * (axis % x.ndim) + (slice(None, None, -1),)]


def zeros(x: Any) -> Any:
    """Zeros like x."""
    return x.new_zeros(x.shape) if isinstance(x, TensorBase) else np.zeros(x.shape, x.dtype)


def zeros_of(shape: Any, like: Any) -> Any:
    """Zeros of a shape, of the dtype of another array."""
    if isinstance(like, TensorBase):
        return like.new_zeros(tuple(shape))
    return np.zeros(shape, like.dtype)


def eye(size: int, like: Any) -> Any:
    """The unit matrix, of the dtype of another array."""
    if isinstance(like, TensorBase):
        return from_array(np.eye(size, dtype=like.dtype.dtype))
    return np.eye(size, dtype=like.dtype)


def is_complex(x: Any) -> bool:
    """Has it a complex dtype?"""
    return x.is_complex() if isinstance(x, TensorBase) else x.dtype.kind == "c"


def adjoint(x: Any) -> Any:
    """Matrices transposed and conjugated."""
    x = x.swapaxes(-1, -2)
    return x.conj() if is_complex(x) else x


def ones(x: Any) -> Any:
    """Ones like x."""
    return x.new_ones(x.shape) if isinstance(x, TensorBase) else np.ones(x.shape, x.dtype)


def numbers(mask: Any, like: Any) -> Any:
    """A mask as ones and zeros of the dtype of another array."""
    return mask.to(like.dtype) if isinstance(mask, TensorBase) else mask.astype(like.dtype)


def expand(g: Any, shape: tuple[int, ...]) -> Any:
    """g, broadcast to a shape."""
    if g.shape == shape:
        return g
    if isinstance(g, TensorBase):
        return _expand(g, shape)
    if math.prod(shape) >= _COPY_BELOW:
        return np.broadcast_to(g, shape)
    result = np.empty(shape, g.dtype)
    result[...] = g
    return result


def kept(g: Any, axis: Any, keepdims: bool, ndim: int) -> Any:
    """The result of a reduction over an axis, with the dimensions it lost back as 1."""
    if keepdims or axis is None:
        return g
    shape = list(g.shape)
    for a in sorted((axis,) if isinstance(axis, int) else (a % ndim for a in axis)):
        shape.insert(a if a >= 0 else a + ndim, 1)
    return g.reshape(shape)


def cat(items: list[Any], axis: int) -> Any:
    """The items, one after the other along an axis."""
    if isinstance(items[0], TensorBase):
        return ops["cat"](items, axis)
    return np.concatenate(items, axis)


def total(x: Any, axis: Any) -> Any:
    """The sum over an axis, which stays with size 1."""
    if isinstance(x, TensorBase):
        return _sum(x, axis=axis, keepdims=True)
    return np.add.reduce(x, axis, None, None, True)


def count(shape: tuple[int, ...], axis: Any) -> int:
    """How many elements a reduction over an axis brings together."""
    if axis is None:
        return math.prod(shape)
    if isinstance(axis, int):
        return shape[axis]
    return math.prod(shape[a] for a in axis)
