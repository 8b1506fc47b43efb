# SPDX-License-Identifier: BSD-3-Clause
"""What the distributions of absolute values have in common."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import zeros_like
from modtree.distributions import constraints
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import AbsTransform

__all__ = ["Half"]


class Half(TransformedDistribution):
    """The distribution of the absolute values of numbers whose distribution is symmetric around 0.

    Args:
        base: The distribution of the numbers with their signs, which has a ``scale``.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, base: Any, validate_args: bool | None = None) -> None:
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Any:
        """The scale of the numbers with their signs."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        return zeros_like(self.scale)

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
