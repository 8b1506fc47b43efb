# SPDX-License-Identifier: BSD-3-Clause
"""Products and powers of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modtree._ops.independent import independent
from modtree._ops.linalg_functions.equations import inv, unit_like
from modtree._ops.registry import export, ops

if TYPE_CHECKING:
    from modtree._argument_types import Tensor

matmul = ops["matmul"]
matrix_exp = ops["matrix_exp"]


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


export("matrix_power", matrix_power)
export("matrix_exp", matrix_exp)
