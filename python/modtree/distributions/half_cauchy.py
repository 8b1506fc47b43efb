# SPDX-License-Identifier: BSD-3-Clause
"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import full, zeros_like
from modtree.distributions import constraints
from modtree.distributions.cauchy import Cauchy
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import AbsTransform

__all__ = ["HalfCauchy"]


class HalfCauchy(TransformedDistribution):
    """The distribution of the absolute values of numbers with a Cauchy distribution around 0.

    Args:
        scale: Half the width at half the height of that distribution.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(HalfCauchy, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def scale(self) -> Any:
        """Half the width of the distribution with signs."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        shape = self._extended_shape()
        return full(shape, math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def mode(self) -> Any:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        density = self.base_dist.log_prob(value) + math.log(2)
        return ops.where(value >= 0, density, -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Any) -> Any:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)
