# SPDX-License-Identifier: BSD-3-Clause
"""Products and powers of matrices, Vandermonde matrices; views of diagonals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modtree._ops.independent import independent
from modtree._ops.linalg import cross as _cross
from modtree._ops.linalg import vdot as _vdot
from modtree._ops.linalg_functions.equations import inv, unit_like
from modtree._ops.registry import export, ops
from modtree._ops.slices import diagonal as _diagonal

if TYPE_CHECKING:
    from modtree._argument_types import Tensor

matmul = ops["matmul"]
matrix_exp = ops["matrix_exp"]


def cross(input: Any, other: Any, *, dim: int = -1) -> Any:
    """The cross product of 3-vectors along dim.

    Args:
        other: A tensor that broadcasts with the first.
        dim: The dimension; may count from the end.

    Shape:
        - input and other: 3 along ``dim``; they broadcast.
        - output: that to which they broadcast.
    """
    return _cross(input, other, dim)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:  # noqa: N803
    """A view of the diagonal of matrices.

    Args:
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dim1: First of the two dimensions of the matrices.
        dim2: Second of them.

    Shape:
        - A: at least two dimensions.
        - output: that of A without the two, then the length of the diagonal.
    """
    return _diagonal(A, offset, dim1, dim2)


def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Dot products along dim; x is conjugated.

    Args:
        y: A tensor that broadcasts with ``x``.
        dim: The dimension; may count from the end.

    Shape:
        - x and y: they broadcast.
        - output: that to which they broadcast, without ``dim``.
    """
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {x.dtype}"
        )
    if x.dtype is not y.dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, got {x.dtype} and {y.dtype}"
        )
    if x.ndim == y.ndim == 1:  # vectors do not broadcast, and have one dimension
        return _vdot(x, y)
    return ((x.conj() if x.is_complex() else x) * y).sum(dim)


def matrix_power(A: Tensor, n: int) -> Tensor:  # noqa: N803
    """A multiplied by itself n times; the power of the inverse for negative n.

    Shape:
        - A: (..., N, N).
        - output: (..., N, N).
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, got shape {list(A.shape)}"
        )
    if n == 0:
        return independent(unit_like(A).expand(tuple(A.shape)).clone(), A)
    base = inv(A) if n < 0 else A
    n = abs(n)
    result: Any = None
    while n:
        if n & 1:
            result = base if result is None else result @ base
        n >>= 1
        if n:
            base = base @ base
    return result.clone() if result is A else result


def multi_dot(tensors: Any) -> Any:
    """The product of several matrices, multiplied in the order with the fewest operations, which
    dynamic programming finds (Cormen et al., "Introduction to Algorithms"); the ends may be
    vectors.

    Shape:
        - tensors: (M, A), (A, B), ..., (Y, N); the first may be (A), the last (Y).
        - output: (M, N), without the dimension of a vector.
    """
    items = list(tensors)
    if len(items) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(items)}")
    row, column = items[0].ndim == 1, items[-1].ndim == 1
    if row:
        items[0] = items[0].unsqueeze(0)
    if column:
        items[-1] = items[-1].unsqueeze(1)
    for i, item in enumerate(items):
        if item.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {item.ndim}D")
    result = _chain(items)
    if row and column:
        return result.reshape(())
    return result.reshape(-1) if row or column else result


def _chain(items: list[Any]) -> Any:
    """The product by the textbook's table of best splits."""
    n = len(items)
    sizes = [items[0].shape[0], *(x.shape[1] for x in items)]
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], cut[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Any:
        if i == j:
            return items[i]
        k = cut[i][j]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, n - 1)


def vander(x: Any, N: int | None = None) -> Any:  # noqa: N803
    """Powers 0, 1, ..., N - 1 of each element, as the last dimension.

    Shape:
        - x: (..., K).
        - output: (..., K, N); N is K without one.
    """
    if x.dtype.name in ("bool", "float16"):
        raise RuntimeError(
            f"linalg.vander supports floating point, complex, and integer tensors, but got "
            f"{x.dtype}: convert with .float()"
        )
    if x.ndim == 0:
        x = x.reshape(1)
    count = x.size(-1) if N is None else N
    if count <= 1:
        raise RuntimeError(f"N must be greater than 1, got {count}")
    ones = x.new_ones((*x.shape, 1))
    wide = x.unsqueeze(-1).expand(*x.shape, count - 1)
    return ops["cat"]([ones, wide.cumprod(-1)], -1)


export("matrix_power", matrix_power)
export("matrix_exp", matrix_exp)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the cheapest order."""
    for matrix in matrices:
        if matrix.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {matrix.ndim}, expected 2 instead.")
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


export("chain_matmul", chain_matmul, method=False)
