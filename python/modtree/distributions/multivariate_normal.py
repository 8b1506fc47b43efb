# SPDX-License-Identifier: BSD-3-Clause
"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._ops.linalg_functions import cholesky, solve_triangular
from modtree._tensor.ranges import eye
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.normal import standard_normal
from modtree.distributions.utils import lazy_property

__all__ = ["MultivariateNormal"]


def times(matrix: Any, vector: Any) -> Any:
    """The product of batches of matrices and vectors."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def squared_length(scale_tril: Any, offset: Any) -> Any:
    """The squared length of vectors in the metric of covariance matrices (Mahalanobis), of which
    the Cholesky factors are given.
    """
    size = scale_tril.shape[-1]
    shape = ops.broadcast_shapes(tuple(scale_tril.shape[:-2]), tuple(offset.shape[:-1]))
    factor = scale_tril.expand((*shape, size, size))
    whitened = solve_triangular(factor, offset.expand((*shape, size)).unsqueeze(-1), upper=False)
    return whitened.squeeze(-1).square().sum(-1)


def factor_of_inverse(precision: Any) -> Any:
    """The Cholesky factor of the inverse of a matrix."""
    # With the order of rows and columns turned, a factor of the matrix is one of its inverse.
    flipped = cholesky(ops.flip(precision, (-2, -1)))
    inverse = ops.flip(flipped, (-2, -1)).mT
    unit = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(inverse, unit.expand(precision.shape), upper=False)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors. One of three forms of the covariance is given.

    The density is ``exp(-d / 2) / sqrt((2 * pi) ** k * det(C))`` for vectors of ``k`` numbers,
    where ``C`` is the covariance and ``d`` the square of the Mahalanobis distance,
    ``(x - loc) @ inv(C) @ (x - loc)`` (Kotz, Balakrishnan and Johnson, 2000, chapter 45).

    Args:
        loc: Mean.
        covariance_matrix: Covariance, positive-definite.
        precision_matrix: Its inverse.
        scale_tril: Its Cholesky factor: lower triangular, with a positive diagonal.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        forms = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: value for name, value in forms.items() if value is not None}
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                f"specified, got {list(given)}."
            )
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        shape = Size(ops.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1])))
        setattr(self, name, matrix.expand(shape + (-1, -1)))
        self.loc = loc.expand(shape + (-1,))
        super().__init__(shape, self.loc.shape[-1:], validate_args=validate_args)
        if scale_tril is not None:
            self._factor = scale_tril
        elif covariance_matrix is not None:
            self._factor = cholesky(covariance_matrix)
        else:
            self._factor = factor_of_inverse(precision_matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("loc", "covariance_matrix", "scale_tril", "precision_matrix")
        new = self._expanded(MultivariateNormal, _instance, batch_shape, *names)
        new._factor = self._factor
        return new

    def _matrices(self) -> Any:
        return self._batch_shape + self._event_shape + self._event_shape

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._factor.expand(self._matrices())

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return (self._factor @ self._factor.mT).expand(self._matrices())

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return ops.cholesky_inverse(self._factor).expand(self._matrices())

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._factor.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + times(self._factor, drawn)

    def _half_log_det(self) -> Any:
        return self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        length = squared_length(self._factor, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + length) - self._half_log_det()

    def entropy(self) -> Any:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (constant + self._half_log_det()).expand(self._batch_shape)
