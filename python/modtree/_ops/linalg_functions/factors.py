# SPDX-License-Identifier: BSD-3-Clause
"""Decompositions into factors, and the rank."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree._ops.decompositions import tolerance
from modtree._ops.registry import export, ops

if TYPE_CHECKING:
    from modtree._argument_types import QR, SVD, Tensor


def return_type(name: str, *fields: str) -> Any:
    """A named tuple of results."""
    return namedtuple(name, fields)  # noqa: PYI024


_eigreturn_type = return_type("linalg_eig", "eigenvalues", "eigenvectors")
_eighreturn_type = return_type("linalg_eigh", "eigenvalues", "eigenvectors")
_lstsqreturn_type = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
_qrreturn_type = return_type("linalg_qr", "Q", "R")
_slogdetreturn_type = return_type("linalg_slogdet", "sign", "logabsdet")
_svdreturn_type = return_type("linalg_svd", "U", "S", "Vh")
_old_svdreturn_type = return_type("svd", "U", "S", "V")

matmul = ops["matmul"]
matrix_exp = ops["matrix_exp"]


_eig_result = return_type("linalg_eig", "eigenvalues", "eigenvectors")
_eigh_result = return_type("linalg_eigh", "eigenvalues", "eigenvectors")
_qr_result = return_type("linalg_qr", "Q", "R")
_svd_result = return_type("linalg_svd", "U", "S", "Vh")
_old_svd_result = return_type("svd", "U", "S", "V")


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


def svdvals(A: Any, *, driver: Any = None) -> Any:  # noqa: N803
    """The singular values, falling.

    Shape:
        - A: (..., M, N).
        - output: (..., min(M, N)).
    """
    _check_driver(driver)
    return ops["svdvals"](A)


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


def eigvalsh(A: Any, UPLO: str = "L") -> Any:  # noqa: N803
    """The eigenvalues of a Hermitian matrix, rising.

    Shape:
        - A: (..., N, N).
        - output: (..., N).
    """
    return eigh(A, UPLO)[0]


def eig(A: Any) -> Any:  # noqa: N803
    """Complex eigenvalues and eigenvectors of a square matrix.

    Shape:
        - A: (..., N, N).
        - output: ``eigenvalues`` (..., N) and ``eigenvectors`` (..., N, N), in columns.
    """
    return _eig_result(*ops["eig"](A))


def eigvals(A: Any) -> Any:  # noqa: N803
    """The complex eigenvalues of a square matrix.

    Shape:
        - A: (..., N, N).
        - output: (..., N).
    """
    return ops["eig"](A)[0]


def matrix_rank(
    A: Any,  # noqa: N803
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Any:
    """The number of singular values above max(atol, rtol * the largest).

    Args:
        tol: The older form of ``atol``, with which there is no ``rtol``.
        atol: Absolute tolerance.
        rtol: Tolerance relative to the largest.
        hermitian: The matrices are Hermitian; one triangle of them is read.

    Shape:
        - A: (..., M, N).
        - output: (...), int64.
    """
    if tol is not None:
        atol, rtol = tol, 0.0
    if A.ndim < 2:
        raise RuntimeError(
            f"linalg.matrix_rank: The input tensor input must have at least 2 dimensions, got "
            f"shape {list(A.shape)}"
        )
    for name, limit in (("atol", atol), ("rtol", rtol)):
        if isinstance(limit, _C.TensorBase) and limit.is_complex():
            raise RuntimeError(
                f"linalg.matrix_rank: {name} tensor of complex type is not supported. Got "
                f"{limit.dtype}"
            )
    A = A.detach()  # noqa: N806
    if not A.numel():
        hermitian = False  # of nothing there are no triangles
    values = (abs(eigvalsh(A)) if hermitian else svdvals(A))._array
    if not A.numel():
        return _C.from_array(np.zeros(values.shape[:-1], np.int64))
    try:
        limit = tolerance(values, A.shape, plain_tolerance(atol), plain_tolerance(rtol))
        return _C.from_array(np.asarray(np.count_nonzero(values > limit, axis=-1), np.int64))
    except ValueError as error:
        raise RuntimeError(f"linalg.matrix_rank: {error}") from None


def plain_tolerance(limit: Any) -> Any:
    """A tensor as the array that fits singular values."""
    return limit._array[..., None] if isinstance(limit, _C.TensorBase) else limit


# -- the names in modtree itself -------------------------------------------------------------------


def _svd_function(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """U, S and V with input = U diag(S) V^H.

    Args:
        some: Only as many vectors as there are singular values.
        compute_uv: Compute U and V; else they are square and 0.
    """
    if not compute_uv:
        values = svdvals(input)
        n, m = input.shape[-2:]
        u, v = (input.new_zeros(*input.shape[:-2], size, size) for size in (n, m))
        return _old_svd_result(u, values, v)
    u, s, vh = ops["svd"](input, not some)
    return _old_svd_result(u, s, vh.mH)


def _qr_function(input: Tensor, some: bool = True) -> QR:
    """Q and R."""
    return qr(input, "reduced" if some else "complete")


def _cholesky_function(input: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor: lower, or upper."""
    return cholesky(input, upper=upper)


export("svd", _svd_function)
export("qr", _qr_function)
export("cholesky", _cholesky_function)
