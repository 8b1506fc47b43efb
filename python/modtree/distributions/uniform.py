# SPDX-License-Identifier: BSD-3-Clause
"""The uniform distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._tensor.random_creation import rand
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import are_numbers, broadcast_all

__all__ = ["Uniform"]


class Uniform(Distribution):
    """The uniform distribution over [low, high).

    The density is ``1 / (high - low)`` (Johnson, Kotz and Balakrishnan, 1995, chapter 26).

    Args:
        low: Lower end.
        high: Upper end, not included.
        validate_args: Check parameters and values.
    """

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        shape = Size() if are_numbers(low, high) else self.low.size()
        super().__init__(shape, validate_args=validate_args)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError(
                f"Uniform is not defined when low>= high, got low={self.low}, high={self.high}"
            )

    @property
    def arg_constraints(self) -> Any:
        return {
            "low": constraints.less_than(self.high),
            "high": constraints.greater_than(self.low),
        }

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Uniform, _instance, batch_shape, "low", "high")

    @property
    def mean(self) -> Any:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Any:
        return math.nan * self.high

    @property
    def stddev(self) -> Any:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Any:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = rand(tuple(shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        inside = self.low.le(value) & self.high.gt(value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        return (self.high - self.low).log()
