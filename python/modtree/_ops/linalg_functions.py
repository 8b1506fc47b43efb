# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra under torch's names: ``modtree.linalg.solve(A, B)``. Matrices are the last two
dimensions, those before them a batch.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np

from modtree import _C
from modtree._ops.decompositions import LinAlgError, is_vector
from modtree._ops.independent import independent
from modtree._ops.linalg import cross as _cross
from modtree._ops.reduce import norm as _vector_norm
from modtree._ops.registry import export, ops
from modtree._ops.slices import diagonal as _diagonal
from modtree._tensor.batch_levels import for_each_sample

__all__ = [
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


def _result(name: str, *fields: str) -> Any:
    return namedtuple(name, fields)  # noqa: PYI024


_eig_result = _result("linalg_eig", "eigenvalues", "eigenvectors")
_eigh_result = _result("linalg_eigh", "eigenvalues", "eigenvectors")
_lstsq_result = _result("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
_qr_result = _result("linalg_qr", "Q", "R")
_slogdet_result = _result("linalg_slogdet", "sign", "logabsdet")
_svd_result = _result("linalg_svd", "U", "S", "Vh")
_old_svd_result = _result("svd", "U", "S", "V")

matmul = ops["matmul"]
matrix_exp = ops["matrix_exp"]

# -- inverses and equations ------------------------------------------------------------------------


def inv(A: Any) -> Any:  # noqa: N803
    """The inverse; LinAlgError for a singular matrix."""
    return ops["inverse"](A)


def det(A: Any) -> Any:  # noqa: N803
    """The determinant."""
    return ops["det"](A)


def slogdet(A: Any) -> Any:  # noqa: N803
    """Sign of the determinant and logarithm of its size."""
    return _slogdet_result(*ops["slogdet"](A))


def solve(A: Any, B: Any, *, left: bool = True) -> Any:  # noqa: N803
    """X with A X = B (or X A = B where left is False); B may be one vector, or one for each
    matrix.

    Args:
        B: Right-hand sides.
        left: A X = B; else X A = B.
    """
    if left:
        return ops["solve"](A, B)
    if is_vector(A, B):
        return ops["solve"](A.mT, B)
    return ops["solve"](A.mT, B.mT).mT


def solve_triangular(
    A: Any,  # noqa: N803
    B: Any,  # noqa: N803
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Any:
    """X with A X = B (or X A = B), where only one triangle of A is read; with unitriangular its
    diagonal counts as ones.

    Args:
        B: Right-hand sides.
        upper: Read the upper triangle, else the lower.
        left: A X = B; else X A = B.
        unitriangular: The diagonal counts as ones.
    """
    lower = -1 if unitriangular else 0
    part = A.triu(-lower) if upper else A.tril(lower)
    if unitriangular:
        part = part + _unit(A)
    if left:
        return ops["solve"](part, B)
    return ops["solve"](part.mT, B.mT).mT


def _unit(like: Any) -> Any:
    return like.new_tensor(np.eye(like.shape[-1]))


def pinv(
    A: Any,  # noqa: N803
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Any:
    """The Moore-Penrose inverse; singular values up to max(atol, rtol * the largest) count as
    zero.

    Args:
        rcond: The older name of ``rtol``.
        hermitian: The matrices are Hermitian; one triangle of them is read.
        atol: Absolute tolerance.
        rtol: Tolerance relative to the largest.
    """
    return ops["pinv"](A, atol, rcond if rtol is None else rtol, hermitian)


def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> Any:  # noqa: N803
    """X that brings A X as near to B as possible (the shortest one of several).

    Args:
        B: The right-hand sides, as columns.
        rcond: Singular values up to ``rcond`` times the largest count as zero.
        driver: None, "gels", "gelsy", "gelsd" or "gelss": which of the results there are.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, "
            f"gelss), got {driver!r}"
        )
    solution = pinv(A, rcond) @ B
    rows, columns = A.shape[-2:]
    rank = matrix_rank(A.detach(), rtol=rcond)
    residuals = A.new_empty(0)
    if driver not in (None, "gelsy") and rows > columns and bool((rank == columns).all()):
        residuals = (A @ solution - B).abs().square().sum(-2)
    values = svdvals(A) if driver in ("gelsd", "gelss") else A.new_empty(0)
    return _lstsq_result(solution, residuals, rank, values)


def tensorinv(A: Any, ind: int = 2) -> Any:  # noqa: N803
    """The inverse under tensordot() over the first `ind` dimensions."""
    shape = tuple(A.shape)
    rows = math.prod(shape[:ind])
    if ind <= 0 or rows != math.prod(shape[ind:]):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got "
            f"{math.prod(shape[ind:])} != {rows} with ind={ind}"
        )
    return inv(A.reshape(rows, rows)).reshape((*shape[ind:], *shape[:ind]))


def tensorsolve(A: Any, B: Any, dims: Any = None) -> Any:  # noqa: N803
    """X with tensordot(A, X, X.ndim) = B; dims of A are moved to its end first.

    Args:
        B: The right-hand side.
        dims: Dimensions of ``A`` that are moved to its end first.
    """
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))  # noqa: N806
    rest = tuple(A.shape[B.ndim :])
    return solve(A.reshape(B.numel(), math.prod(rest)), B.reshape(-1)).reshape(rest)


# -- factors ---------------------------------------------------------------------------------------


def cholesky(A: Any, *, upper: bool = False) -> Any:  # noqa: N803
    """L with A = L L^H, lower triangular (or upper U with A = U^H U); LinAlgError when A is not
    positive-definite.
    """
    return ops["cholesky"](A).mH if upper else ops["cholesky"](A)


def qr(A: Any, mode: str = "reduced") -> Any:  # noqa: N803
    """Q with orthonormal columns and upper triangular R; mode is "reduced", "complete" or "r"."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            f"'r', or 'complete'"
        )
    return _qr_result(*ops["qr"](A, mode))


def svd(A: Any, full_matrices: bool = True, *, driver: Any = None) -> Any:  # noqa: N803
    """Singular vectors and values: A = U diag(S) Vh, S falling.

    Args:
        full_matrices: U and Vh are square; else they have as many vectors as there are singular
            values.
        driver: Accepted; NumPy chooses.
    """
    return _svd_result(*ops["svd"](A, full_matrices))


def svdvals(A: Any, *, driver: Any = None) -> Any:  # noqa: N803
    """The singular values, falling."""
    return ops["svdvals"](A)


def eigh(A: Any, UPLO: str = "L") -> Any:  # noqa: N803
    """Eigenvalues, rising, and eigenvectors of a Hermitian matrix, of which one triangle is
    read.
    """
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return _eigh_result(*ops["eigh"](A, UPLO.upper()))


def eigvalsh(A: Any, UPLO: str = "L") -> Any:  # noqa: N803
    """The eigenvalues of a Hermitian matrix, rising."""
    return eigh(A, UPLO)[0]


def eig(A: Any) -> Any:  # noqa: N803
    """Complex eigenvalues and eigenvectors of a square matrix."""
    return _eig_result(*ops["eig"](A))


def eigvals(A: Any) -> Any:  # noqa: N803
    """The complex eigenvalues of a square matrix."""
    return ops["eig"](A)[0]


# -- norms -----------------------------------------------------------------------------------------


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
    """
    if dtype is not None:
        A = A.to(dtype)  # noqa: N806
    if A.ndim < 2:
        raise RuntimeError(
            f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got shape "
            f"{list(A.shape)}"
        )
    first, second = (d % A.ndim for d in dim)
    if first == second:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {tuple(dim)}")
    if ord == "fro":
        return _vector_norm(A, 2, (first, second), keepdim)
    if ord == "nuc" or ord in (2, -2):
        values = svdvals(A.movedim((first, second), (-2, -1)))
        result = (
            values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        )
    elif ord in (1, -1, math.inf, -math.inf):
        # Sums over one dimension, the extreme one of them over the other.
        inner, outer = (first, second) if ord in (1, -1) else (second, first)
        sums = A.abs().sum(inner, keepdim=True)
        result = sums.amax(outer, keepdim=True) if ord > 0 else sums.amin(outer, keepdim=True)
        result = result.squeeze((first, second))
    else:
        raise RuntimeError(
            f"linalg.matrix_norm: Order {ord} not supported: use 'fro', 'nuc', 1, -1, 2, -2, inf "
            f"or -inf"
        )
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
    """
    if ord is None:
        return vector_norm(input, 2, dim, keepdim, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else dim
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


def cond(A: Any, p: Any = None) -> Any:  # noqa: N803
    """The condition number: the norm of A times that of its inverse; the quotient of singular
    values for p None, 2 or -2.
    """
    if p is None or p in (2, -2):
        values = svdvals(A)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


@for_each_sample
def matrix_rank(
    A: Any,  # noqa: N803
    *,
    atol: Any = None,
    rtol: Any = None,
    hermitian: bool = False,
) -> Any:
    """The number of singular values above max(atol, rtol * the largest).

    Args:
        atol: Absolute tolerance.
        rtol: Tolerance relative to the largest.
        hermitian: The matrices are Hermitian; one triangle of them is read.
    """
    values = svdvals(A.detach())._array
    if values.shape[-1] == 0:
        return _C.from_array(np.zeros(values.shape[:-1], np.int64))
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * np.finfo(values.dtype).eps
    limit = np.maximum(atol or 0.0, rtol * values[..., :1])
    return _C.from_array(np.asarray(np.count_nonzero(values > limit, axis=-1), np.int64))


# -- products --------------------------------------------------------------------------------------


def cross(input: Any, other: Any, *, dim: int = -1) -> Any:
    """The cross product of 3-vectors along dim.

    Args:
        other: A tensor that broadcasts with the first.
        dim: The dimension; may count from the end.
    """
    return _cross(input, other, dim)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:  # noqa: N803
    """A view of the diagonal of matrices.

    Args:
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dim1: First of the two dimensions of the matrices.
        dim2: Second of them.
    """
    return _diagonal(A, offset, dim1, dim2)


def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Dot products along dim; x is conjugated.

    Args:
        y: A tensor that broadcasts with ``x``.
        dim: The dimension; may count from the end.
    """
    return ((x.conj() if x.is_complex() else x) * y).sum(dim)


def matrix_power(A: Any, n: int) -> Any:  # noqa: N803
    """A multiplied by itself n times; the power of the inverse for negative n."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, got shape {list(A.shape)}"
        )
    if n == 0:
        return independent(_unit(A).expand(tuple(A.shape)).clone(), A)
    base = inv(A) if n < 0 else A
    n = abs(n)
    result = None
    while n:
        if n & 1:
            result = base if result is None else result @ base
        n >>= 1
        if n:
            base = base @ base
    return result.clone() if result is A else result


def multi_dot(tensors: Any) -> Any:
    """The product of several matrices, multiplied in the order with the fewest operations; the ends
    may be vectors.
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
    """Powers 0, 1, ..., N - 1 of each element, as the last dimension."""
    count = x.size(-1) if N is None else N
    if count <= 1:
        raise RuntimeError(f"N must be greater than 1, got {count}")
    ones = x.new_ones((*x.shape, 1))
    wide = x.unsqueeze(-1).expand(*x.shape, count - 1)
    return ops["cat"]([ones, wide.cumprod(-1)], -1)


# -- the names in modtree itself -------------------------------------------------------------------


def _svd_function(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S and V with input = U diag(S) V^H.

    Args:
        some: Only as many vectors as there are singular values.
        compute_uv: Accepted; U and V are always computed.
    """
    u, s, vh = ops["svd"](input, not some)
    return _old_svd_result(u, s, vh.mH)


def _qr_function(input: Any, some: bool = True) -> Any:
    """Q and R."""
    return qr(input, "reduced" if some else "complete")


def _cholesky_function(input: Any, upper: bool = False) -> Any:
    """The Cholesky factor: lower, or upper."""
    return cholesky(input, upper=upper)


def _cholesky_solve(B: Any, L: Any, upper: bool = False) -> Any:  # noqa: N803
    """X with A X = B, where L is the Cholesky factor of A.

    Args:
        B: Right-hand sides, as columns.
        L: The factor.
        upper: The factor is an upper one.
    """
    lower = L.mH if upper else L
    return solve(lower.mH, solve(lower, B))


def _cholesky_inverse(L: Any, upper: bool = False) -> Any:  # noqa: N803
    """The inverse of the matrix whose Cholesky factor is L."""
    back = inv(L.mH if upper else L)
    return back.mH @ back


def _logdet(input: Any) -> Any:
    """The logarithm of the determinant; NaN where it is negative."""
    sign, size = ops["slogdet"](input)
    if input.is_complex():
        return size + sign.log()
    return ops["where"](sign < 0, float("nan"), size)


for _name, _function in {
    "inverse": inv,
    "det": det,
    "logdet": _logdet,
    "slogdet": slogdet,
    "pinverse": lambda input, rcond=1e-15: pinv(input, rcond),
    "matrix_power": matrix_power,
    "matrix_exp": matrix_exp,
    "svd": _svd_function,
    "qr": _qr_function,
    "cholesky": _cholesky_function,
    "cholesky_solve": _cholesky_solve,
    "cholesky_inverse": _cholesky_inverse,
}.items():
    export(_name, _function)
export("chain_matmul", lambda *matrices: multi_dot(matrices), method=False)
