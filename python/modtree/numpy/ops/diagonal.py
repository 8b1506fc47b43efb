# SPDX-License-Identifier: BSD-3-Clause
"""diag, diag_embed, tril, triu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.generic import like_first, operation, wrap_dim
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor


def _diag(x: Any, k: int) -> Any:
    if x.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x.ndim}D")
    return np.diag(x, k).copy()


def _diag_meta(x: Any, k: int) -> Any:
    if x.ndim == 1:
        return (x.shape[0] + abs(k),) * 2, x.dtype
    rows, columns = x.shape
    return (max(min(rows + min(k, 0), columns - max(k, 0)), 0),), x.dtype


def _diagonal_backward(g: Any, shape: tuple[int, ...], offset: int, axis1: int, axis2: int) -> Any:
    """Zeros of a shape with g on a diagonal."""
    result = np.zeros(shape, g.dtype)
    diagonal = np.diagonal(result, offset, axis1, axis2)
    diagonal.flags.writeable = (
        True  # NumPy gives a view of our own array, read-only for the sake of old programs
    )
    diagonal[...] = g
    return result


def _triangle(name: str, function: Any) -> Any:
    def forward(x: Any, k: int = 0) -> Any:
        if x.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return function(x, k)

    return forward


define("tril", _triangle("tril", np.tril), meta=like_first)
define("triu", _triangle("triu", np.triu), meta=like_first)
define("diag", _diag, meta=_diag_meta)
define("diagonal_backward", _diagonal_backward, meta=lambda g, shape, *_: (shape, g.dtype))


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle; zeros elsewhere."""
    return ops["tril"](input, diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle; zeros elsewhere."""
    return ops["triu"](input, diagonal)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with this diagonal."""
    return ops["diag"](input, diagonal)


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
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


def tril_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Sets what is above a diagonal to zero, in place."""
    return ops["tril"].inplace(self, diagonal)


def triu_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Sets what is below a diagonal to zero, in place."""
    return ops["triu"].inplace(self, diagonal)


for _function in (
    tril,
    triu,
    diag,
    diag_embed,
):
    export(_function.__name__, _function)
export("tril_", tril_, function=False)
export("triu_", triu_, function=False)

# -- derivatives -----------------------------------------------------------------------------------

_diagonal_op = operation("diagonal")
_diagonal_backward_op = operation("diagonal_backward")
_tril = operation("tril")
_triu = operation("triu")


def _diag_back(g: Any, _out: Any, x_like: Any, k: int) -> Any:
    if len(x_like.shape) == 1:
        return _diagonal_op(g, k, 0, 1)
    return _diagonal_backward_op(g, tuple(x_like.shape), k, 0, 1)


derive("tril", lambda g, _out, _x, k: _tril(g, k))
derive("triu", lambda g, _out, _x, k: _triu(g, k))
derive("diag", _diag_back)
derive("diagonal_backward", lambda g, _out, _x, shape, offset, a, b: _diagonal_op(g, offset, a, b))
