# SPDX-License-Identifier: BSD-3-Clause
"""Inverses, determinants, linear equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase
from modtree._ops.broadcast import broadcast_shapes
from modtree._ops.decompositions import is_vector, need_precision
from modtree._ops.linalg_functions.factors import (
    plain_tolerance,
    return_type,
)
from modtree._ops.registry import export, ops

if TYPE_CHECKING:
    from modtree._argument_types import SignLog, Tensor

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


# -- the names in modtree itself -------------------------------------------------------------------


for _function in (det, slogdet):
    export(_function.__name__, _function)
export("inverse", inv)
