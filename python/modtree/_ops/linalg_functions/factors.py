# SPDX-License-Identifier: BSD-3-Clause
"""Decompositions into factors."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from modtree import _C
from modtree._ops.registry import ops

if TYPE_CHECKING:
    pass


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
    return limit._array[..., None] if isinstance(limit, _C.TensorBase) else limit
