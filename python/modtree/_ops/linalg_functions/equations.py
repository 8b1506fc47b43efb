# SPDX-License-Identifier: BSD-3-Clause
"""Inverses, determinants, linear equations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_tuple
from modtree._ops.broadcast import broadcast_shapes
from modtree._ops.decompositions import LinAlgError, is_vector, need_precision
from modtree._ops.independent import independent
from modtree._ops.linalg_functions.factors import (
    matrix_rank,
    plain_tolerance,
    return_type,
    svdvals,
)
from modtree._ops.registry import export, ops

if TYPE_CHECKING:
    from modtree._argument_types import SignLog, Tensor

_lstsq_result = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
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

    Shape:
        - A: (..., N, N).
        - B: (..., N, K), with ``left=False`` (..., K, N).
        - output: as B, with the batch of both.
    """
    for name, x in (("A", A), ("B", B)):
        if x.ndim < 2:
            raise RuntimeError(
                f"linalg.solve_triangular: The input tensor {name} must have at least 2 "
                f"dimensions, got shape {list(x.shape)}"
            )
    if B.dtype is not A.dtype:
        B = B.to(A.dtype)  # noqa: N806
    if left:
        return ops["solve_triangular"](A, B, bool(upper), bool(unitriangular))
    return ops["solve_triangular"](A.mT, B.mT, not upper, bool(unitriangular)).mT


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


def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> Any:  # noqa: N803
    """X that brings A X as near to B as possible (the shortest one of several).

    Args:
        B: The right-hand sides, as columns.
        rcond: Singular values up to ``rcond`` times the largest count as zero.
        driver: None, "gels", "gelsy", "gelsd" or "gelss": which of the results there are.

    Shape:
        - A: (..., M, N).
        - B: (..., M, K).
        - output: ``solution`` (..., N, K), ``residuals`` (..., K) or empty, ``rank`` (...),
          ``singular_values`` (..., min(M, N)) or empty.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, "
            f"gelss), got {driver!r}"
        )
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if not 0 <= A.ndim - B.ndim <= 1:
        raise RuntimeError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
            f"(input.dim() - other.dim()) <= 1, got {A.ndim} and {B.ndim}"
        )
    solution = pinv(A, rcond) @ B
    rows, columns = A.shape[-2:]
    rank = matrix_rank(A.detach(), rtol=rcond)
    if 0 in B.shape:
        rank = rank * 0  # nothing was solved
    residuals = independent(A.real.new_empty(0), A, B)
    if driver not in (None, "gelsy") and rows > columns and bool((rank == columns).all()):
        residuals = (A @ solution - B).abs().square().sum(-2)
    values = svdvals(A) if driver in ("gelsd", "gelss") else A.real.new_empty(0)
    return _lstsq_result(solution, residuals, rank, values)


def tensorinv(A: Any, ind: int = 2) -> Any:  # noqa: N803
    """The inverse under tensordot() over the first `ind` dimensions.

    Shape:
        - A: any, of which the first ``ind`` sizes have the product of the others.
        - output: the others, then the first ``ind``.
    """
    shape = tuple(A.shape)
    rows = math.prod(shape[:ind])
    if ind > len(shape):
        raise RuntimeError(f"tensorinv: ind={ind} is beyond the dimensions of shape {list(shape)}")
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

    Shape:
        - A: the shape of B, then that of the output, after ``dims`` were moved.
        - B: any.
        - output: what A has beyond the shape of B; as many elements as B.
    """
    if dims is not None:
        A = A.movedim(as_tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))  # noqa: N806
    rest = tuple(A.shape[B.ndim :])
    return solve(A.reshape(B.numel(), math.prod(rest)), B.reshape(-1)).reshape(rest)


# -- the names in modtree itself -------------------------------------------------------------------


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
    sign, size = ops["slogdet"](input)
    if input.is_complex():
        return size + sign.log()
    return ops["where"](sign < 0, float("nan"), size)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803
    """X with A X = B, where L is the Cholesky factor of A.

    Args:
        B: Right-hand sides, as columns.
        L: The factor: one triangle of it is read.
        upper: The upper one, else the lower.
    """
    if B.dtype is not L.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {B.dtype} and A of type "
            f"{L.dtype} instead."
        )
    half = solve_triangular(L.mH if upper else L, B, upper=False)
    return solve_triangular(L if upper else L.mH, half, upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803
    """The inverse of the matrix whose Cholesky factor is L, of which one triangle is read."""
    unit = unit_like(L).expand(tuple(L.shape))
    back = solve_triangular(L.mH if upper else L, unit, upper=False)
    if not L.is_meta and (L.detach().diagonal(dim1=-2, dim2=-1) == 0).any():
        raise LinAlgError(
            "cholesky_inverse: the factor has a zero on its diagonal, so the matrix is singular"
        )
    return back.mH @ back


for _function in (det, logdet, slogdet, cholesky_solve, cholesky_inverse):
    export(_function.__name__, _function)
export("inverse", inv)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse of a matrix (Penrose, 1955); singular values below rcond times the largest
    count as zero.
    """
    return pinv(input, rcond)


export("pinverse", pinverse)
