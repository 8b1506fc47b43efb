# SPDX-License-Identifier: BSD-3-Clause
"""Decompositions into factors, and the rank."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from modtree import _C
from modtree._ops.registry import export, ops
from modtree._tensor.batch_levels import for_each_sample


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
    return _svd_result(*ops["svd"](A, full_matrices))


def svdvals(A: Any, *, driver: Any = None) -> Any:  # noqa: N803
    """The singular values, falling.

    Shape:
        - A: (..., M, N).
        - output: (..., min(M, N)).
    """
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

    Shape:
        - A: (..., M, N).
        - output: (...), int64.
    """
    values = svdvals(A.detach())._array
    if values.shape[-1] == 0:
        return _C.from_array(np.zeros(values.shape[:-1], np.int64))
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * np.finfo(values.dtype).eps
    limit = np.maximum(atol or 0.0, rtol * values[..., :1])
    return _C.from_array(np.asarray(np.count_nonzero(values > limit, axis=-1), np.int64))


# -- the names in modtree itself -------------------------------------------------------------------


def _svd_function(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S and V with input = U diag(S) V^H.

    Args:
        some: Only as many vectors as there are singular values.
        compute_uv: Compute U and V; else they are square and 0.
    """
    if not compute_uv:
        n, m = input.shape[-2:]
        u, v = (input.new_zeros(*input.shape[:-2], size, size) for size in (n, m))
        return _old_svd_result(u, svdvals(input), v)
    u, s, vh = ops["svd"](input, not some)
    return _old_svd_result(u, s, vh.mH)


def _qr_function(input: Any, some: bool = True) -> Any:
    """Q and R."""
    return qr(input, "reduced" if some else "complete")


def _cholesky_function(input: Any, upper: bool = False) -> Any:
    """The Cholesky factor: lower, or upper."""
    return cholesky(input, upper=upper)


export("svd", _svd_function)
export("qr", _qr_function)
export("cholesky", _cholesky_function)
