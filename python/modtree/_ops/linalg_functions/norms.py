# SPDX-License-Identifier: BSD-3-Clause
"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

from modtree._C import as_tuple
from modtree._ops.generic import wrap_dim
from modtree._ops.reduce import check_norm_dtype
from modtree._ops.reduce import norm as _vector_norm
from modtree._ops.registry import ops


def vector_norm(
    x: Any,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,  # noqa: A002
) -> Any:
    """The norm of vectors: of all elements where dim is None.

    Args:
        ord: Which norm: 2, 1, inf, -inf or another number.
        dim: One or several dimensions; all elements without.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: Convert to this dtype first.

    Shape:
        - x: any.
        - output: that of x without ``dim``, or with size 1 there; () of all elements.
    """
    return _vector_norm(x, ord, dim, keepdim, dtype)


def matrix_norm(
    A: Any,  # noqa: N803
    ord: Any = "fro",  # noqa: A002
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    """The norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf.

    Args:
        ord: "fro", "nuc", 1, -1, 2, -2, inf or -inf.
        dim: The two dimensions of the matrices.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: Convert to this dtype first.

    Shape:
        - A: at least two dimensions.
        - output: that of A without the two of ``dim``, or with size 1 there.
    """
    if isinstance(dim, int):
        raise TypeError(f"linalg.matrix_norm: expected two dimensions, but got dim={dim}")
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(
            f"linalg.matrix_norm: Order {ord} not supported: use 'fro', 'nuc', 1, -1, 2, -2, inf "
            f"or -inf"
        )
    if A.ndim < 2:
        raise RuntimeError(
            f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got shape "
            f"{list(A.shape)}"
        )
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(
            f"linalg.matrix_norm: Expected a floating point or complex tensor as input. Got "
            f"{A.dtype}; convert with .float()"
        )
    if A.dtype.name == "float16" and ord in ("nuc", 2, -2):
        raise NotImplementedError(
            "linalg.matrix_norm: Low precision dtypes not supported. Got Half"
        )
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {as_tuple(dim)}")
    first, second = (wrap_dim(d, A.ndim) for d in dim)
    if first == second:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {as_tuple(dim)}")
    if dtype is not None:
        check_norm_dtype("linalg.matrix_norm", A, dtype)
        A = A.to(dtype)  # noqa: N806
    if ord == "fro":
        return _vector_norm(A, 2, (first, second), keepdim)
    if ord == "nuc" or ord in (2, -2):
        values = ops["svdvals"](A.movedim((first, second), (-2, -1)))
        if ord == 2 and not values.shape[-1]:
            values = values.detach()
        result = (
            values.sum(-1)
            if ord == "nuc" or (ord == 2 and not values.shape[-1])
            else values.amax(-1)
            if ord == 2
            else values.amin(-1)
        )
    else:
        # Sums over one dimension, the extreme one of them over the other.
        inner, outer = (first, second) if ord in (1, -1) else (second, first)
        sums = A.abs().sum(inner, keepdim=True)
        if ord > 0 and not sums.shape[outer]:
            # The largest of no sums is 0, and depends on nothing.
            result = sums.detach().sum(outer, keepdim=True)
        else:
            result = sums.amax(outer, keepdim=True) if ord > 0 else sums.amin(outer, keepdim=True)
        result = result.squeeze((first, second))
    if not keepdim:
        return result
    for axis in sorted((first, second)):
        result = result.unsqueeze(axis)
    return result


def norm(
    input: Any,
    ord: Any = None,  # noqa: A002
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    """The norm of vectors or, with two dimensions in dim or an ord for a matrix, of matrices.

    Args:
        ord: Which norm; 2 of all elements without.
        dim: One dimension for vectors, two for matrices.
        keepdim: Leave the dimension in the result, with size 1.
        dtype: Convert to this dtype first.

    Shape:
        - input: any.
        - output: that of the input without ``dim``, or with size 1 there; () without ``dim``.
    """
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {as_tuple(dims)}"
        )
    if ord is None:
        return vector_norm(input, 2, dim, keepdim, dtype=dtype)
    if dims is None and not isinstance(ord, str) and input.ndim == 1:
        return vector_norm(input, ord, None, keepdim, dtype=dtype)
    if dims is not None and len(dims) == 1 and not isinstance(ord, str):
        return vector_norm(input, ord, dims, keepdim, dtype=dtype)
    if dims is None and input.ndim != 2:
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{input.ndim}D."
        )
    return matrix_norm(input, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
