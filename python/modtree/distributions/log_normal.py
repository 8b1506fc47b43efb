# SPDX-License-Identifier: BSD-3-Clause
"""The log-normal distribution."""

from __future__ import annotations

from typing import Any

from modtree.distributions import constraints
from modtree.distributions.normal import Normal
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import ExpTransform

__all__ = ["LogNormal"]


class LogNormal(TransformedDistribution):
    """The distribution of numbers whose logarithms are normally distributed.

    The density is ``exp(-(z ** 2) / 2) / (x * scale * sqrt(2 * pi))`` with
    ``z = (log(x) - loc) / scale`` (Johnson, Kotz and Balakrishnan, 1994, chapter 14).

    Args:
        loc: Mean of the logarithms.
        scale: Their standard deviation.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LogNormal, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def loc(self) -> Any:
        """Mean of the logarithms."""
        return self.base_dist.loc

    @property
    def scale(self) -> Any:
        """Standard deviation of the logarithms."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Any:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Any:
        squared = self.scale.pow(2)
        return squared.expm1() * (2 * self.loc + squared).exp()

    def entropy(self) -> Any:
        return self.base_dist.entropy() + self.loc
