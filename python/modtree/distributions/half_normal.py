# SPDX-License-Identifier: BSD-3-Clause
"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import zeros_like
from modtree.distributions import constraints
from modtree.distributions.normal import Normal
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import AbsTransform

__all__ = ["HalfNormal"]


class HalfNormal(TransformedDistribution):
    """The distribution of the absolute values of normally distributed numbers of mean 0.

    Args:
        scale: Standard deviation of those numbers.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(HalfNormal, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def scale(self) -> Any:
        """Standard deviation of the numbers with their signs."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Any:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)

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
