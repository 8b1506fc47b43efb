# SPDX-License-Identifier: BSD-3-Clause
"""Transforms of vectors and matrices: onto probabilities that sum to 1, onto triangular and
positive-definite matrices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import from_array
from modtree._ops import functions as ops
from modtree._ops.linalg_functions import cholesky
from modtree._tensor.creation import ones_like
from modtree._tensor.dtypes import finfo
from modtree._tensor.ranges import eye
from modtree.distributions import constraints
from modtree.distributions.transforms.elementwise import _OfItsClass, in_open_unit
from modtree.nn.functional import logsigmoid, pad, softplus

__all__ = [
    "CorrCholeskyTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "SoftmaxTransform",
    "StickBreakingTransform",
]


def _need_vector(shape: Any) -> tuple[int, ...]:
    if len(shape) < 1:
        raise ValueError("Too few dimensions on input")
    return tuple(shape)


def _need_matrix(shape: Any) -> tuple[int, ...]:
    if len(shape) < 2:
        raise ValueError("Too few dimensions on input")
    if shape[-1] != shape[-2]:
        raise ValueError("Input is not square")
    return tuple(shape)


class SoftmaxTransform(_OfItsClass):
    """y = exp(x), scaled to a sum of 1. Vectors that differ by a constant have one result: it is
    not bijective, and good to optimize through.
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        return ops.softmax(x, -1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        _need_vector(shape)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_OfItsClass):
    """Probabilities as the parts of a stick that is broken again and again: one more than there are
    numbers in the argument. 0 gives equal parts.
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _log_left(x: Any) -> Any:
        """The logarithms of the numbers of parts that are still to be made after each."""
        return (x.shape[-1] + 1 - ones_like(x).cumsum(-1)).log()

    def _call(self, x: Any) -> Any:
        share = in_open_unit(ops.sigmoid(x - self._log_left(x)))
        rest = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1) * pad(rest, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return parts.log() - rest.log() + self._log_left(parts)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._log_left(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        shape = _need_vector(shape)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        shape = _need_vector(shape)
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(_OfItsClass):
    """A matrix to a lower triangular one whose diagonal is positive."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_OfItsClass):
    """A matrix to a positive-definite one."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(cholesky(y))


def _below_diagonal(size: int, diagonal: int = -1) -> tuple[Any, Any]:
    rows, columns = np.tril_indices(size, diagonal)
    return from_array(rows), from_array(columns)


class CorrCholeskyTransform(_OfItsClass):
    """A vector of n (n - 1) / 2 numbers to the Cholesky factor of an (n, n) matrix of correlations,
    whose rows have length 1.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        x = ops.tanh(x)
        # An end of the interval would leave nothing of the row's length.
        eps = finfo(x.dtype).eps
        x = x.clamp(min=-1 + eps, max=1 - eps)
        (size,) = self.forward_shape(tuple(x.shape[-1:]))[-1:]
        rows, columns = _below_diagonal(size)
        partial = x.new_zeros((*tuple(x.shape[:-1]), size, size))
        partial[..., rows, columns] = x
        left = (1 - partial * partial).sqrt().cumprod(-1)
        partial = partial + eye(size, dtype=x.dtype, device=x.device)
        return partial * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - ops.cumsum(y * y, -1)
        left = pad(left[..., :-1], [1, 0], value=1)
        rows, columns = _below_diagonal(y.shape[-1])
        partial = y[..., rows, columns] / left[..., rows, columns].sqrt()
        return (partial.log1p() - (-partial).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        left = 1 - (y * y).cumsum(-1)
        rows, columns = _below_diagonal(y.shape[-1], -2)
        rows_part = 0.5 * left[..., rows, columns].log().sum(-1)
        return rows_part - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        shape = _need_vector(shape)
        size = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Any) -> Any:
        shape = _need_matrix(shape)
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
