# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra under torch's names, most of it made of the operations of ``linalg.py`` and
``decompositions.py``. Matrices are the last two dimensions, those before them a batch.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_tuple
from modtree.numpy.ops.broadcast import broadcast_shapes
from modtree.numpy.ops.decompositions import LinAlgError, is_vector, need_precision
from modtree.numpy.ops.generic import wrap_dim
from modtree.numpy.ops.independent import independent
from modtree.numpy.ops.reduce import check_norm_dtype
from modtree.numpy.ops.reduce import norm as _vector_norm
from modtree.numpy.ops.registry import export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import SignLog, Tensor

__all__ = [
    "LinAlgError",
    "cholesky",
    "det",
    "eigh",
    "inv",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "vector_norm",
]

# -- factors ---------------------------------------------------------------------------------------


def return_type(name: str, *fields: str) -> Any:
    """A named tuple of results."""
    return namedtuple(name, fields)  # noqa: PYI024


_eigh_result = return_type("linalg_eigh", "eigenvalues", "eigenvectors")
_qr_result = return_type("linalg_qr", "Q", "R")
_svd_result = return_type("linalg_svd", "U", "S", "Vh")


def cholesky(A: Any, *, upper: bool = False) -> Any:  # noqa: N803
    """L with A = L L^H, lower triangular (or upper U with A = U^H U), of the same triangle of A;
    LinAlgError when A is not positive-definite.

    Shape:
        - A: (..., N, N).
        - output: (..., N, N).
    """
    return ops["cholesky"](A, upper)


def qr(A: Any, mode: str = "reduced") -> Any:  # noqa: N803
    """Q with orthonormal columns and upper triangular R; mode is "reduced", "complete" or "r".

    Shape:
        - A: (..., M, N), with K = min(M, N).
        - output: ``Q`` (..., M, K) and ``R`` (..., K, N); with "complete" (..., M, M) and
          (..., M, N); with "r" an empty ``Q``.
    """
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

    Shape:
        - A: (..., M, N), with K = min(M, N).
        - output: ``U`` (..., M, M), ``S`` (..., K), ``Vh`` (..., N, N); without ``full_matrices``
          ``U`` (..., M, K) and ``Vh`` (..., K, N).
    """
    _check_driver(driver)
    return _svd_result(*ops["svd"](A, full_matrices))


def _check_driver(driver: Any) -> None:
    if driver is not None:
        raise RuntimeError(
            "linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER "
            f"backend, got {driver!r}"
        )


def eigh(A: Any, UPLO: str = "L") -> Any:  # noqa: N803
    """Eigenvalues, rising, and eigenvectors of a Hermitian matrix, of which one triangle is
    read.

    Shape:
        - A: (..., N, N).
        - output: ``eigenvalues`` (..., N) and ``eigenvectors`` (..., N, N), in columns.
    """
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return _eigh_result(*ops["eigh"](A, UPLO.upper()))


def plain_tolerance(limit: Any) -> Any:
    """A tensor as the array that fits singular values."""
    return limit._array[..., None] if isinstance(limit, TensorBase) else limit


# -- inverses, determinants, equations -------------------------------------------------------------


_slogdet_result = return_type("linalg_slogdet", "sign", "logabsdet")


def inv(A: Tensor) -> Tensor:  # noqa: N803
    """The inverse; LinAlgError for a singular matrix.

    Shape:
        - A: (..., N, N).
        - output: (..., N, N).
    """
    return ops["inverse"](A)


def det(A: Tensor) -> Tensor:  # noqa: N803
    """The determinant.

    Shape:
        - A: (..., N, N).
        - output: (...).
    """
    return ops["det"](A)


def slogdet(A: Tensor) -> SignLog:  # noqa: N803
    """Sign of the determinant and logarithm of its size.

    Shape:
        - A: (..., N, N).
        - output: ``sign`` and ``logabsdet``, both (...).
    """
    return _slogdet_result(*ops["slogdet"](A))


def solve(A: Any, B: Any, *, left: bool = True) -> Any:  # noqa: N803
    """X with A X = B (or X A = B where left is False); with ``left``, B may be one vector, or
    one for each matrix.

    Args:
        B: Right-hand sides.
        left: A X = B; else X A = B.

    Shape:
        - A: (..., N, N).
        - B: (..., N, K), or vectors, (N) or (..., N); with ``left=False`` (..., K, N).
        - output: as B, with the batch of both.
    """
    if left and B.ndim:
        return ops["solve"](A, B)
    if A.ndim < 2 or not B.ndim:
        raise RuntimeError(
            f"linalg.solve: The input tensor {'A' if A.ndim < 2 else 'B'} must have at least 2 "
            f"dimensions, got shapes {list(A.shape)} and {list(B.shape)}"
        )
    if is_vector(A, B):
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for "
            f"left=False: got A of shape {list(A.shape)}, B of {list(B.shape)}; try "
            "B.unsqueeze(-2)"
        )
    return ops["solve"](A.mT, B.mT).mT


def unit_like(A: Any) -> Any:  # noqa: N803
    """The unit matrix, of the size, dtype and device of A."""
    if A.ndim < 2:
        raise RuntimeError(f"expected a matrix, got a tensor of shape {list(A.shape)}")
    return A.new_tensor(np.eye(A.shape[-1]))


def pinv(
    A: Any,  # noqa: N803
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Any:
    """The Moore-Penrose inverse (Penrose, 1955); singular values up to max(atol, rtol * the
    largest) count as zero.

    Args:
        rcond: The older name of ``rtol``.
        hermitian: The matrices are Hermitian; one triangle of them is read.
        atol: Absolute tolerance.
        rtol: Tolerance relative to the largest.

    Shape:
        - A: (..., M, N).
        - output: (..., N, M).
    """
    rtol = rcond if rtol is None else rtol
    if A.ndim < 2:
        kind = IndexError if atol is not None and rtol is None else RuntimeError
        raise kind(f"linalg.pinv: expected a matrix, but got shape {list(A.shape)}")
    limits = [limit for limit in (atol, rtol) if isinstance(limit, TensorBase)]
    for limit in limits:
        _check_tolerance("pinv", limit)
    if not A.numel():
        need_precision("pinv", A.dtype.dtype)
        return A.new_zeros((*A.shape[:-2], A.shape[-1], A.shape[-2])) + A.sum()
    if limits:  # the matrices once for each tolerance
        batch = broadcast_shapes(A.shape[:-2], *(limit.shape for limit in limits))
        A = A.expand((*batch, *A.shape[-2:]))  # noqa: N806
    return ops["pinv"](A, plain_tolerance(atol), plain_tolerance(rtol), hermitian)


def _check_tolerance(what: str, limit: Any) -> None:
    if limit.is_complex():
        raise RuntimeError(
            f"linalg.{what}: a tolerance of complex type is not supported. Got {limit.dtype}"
        )
    if limit.requires_grad:
        raise RuntimeError(
            f"The function 'linalg_{what}' is not differentiable with respect to its tolerances, "
            f"which cannot require a gradient."
        )


for _function in (det, slogdet):
    export(_function.__name__, _function)
export("inverse", inv)

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


# -- products and powers ---------------------------------------------------------------------------


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
