# SPDX-License-Identifier: BSD-3-Clause
"""The exponential distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import empty, zeros_like
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.utils import are_numbers, broadcast_all

__all__ = ["Exponential"]


class Exponential(ExponentialFamily):
    """The exponential distribution.

    The density is ``rate * exp(-rate * x)`` (Johnson, Kotz and Balakrishnan, 1994, chapter 19).

    Args:
        rate: 1 / mean.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        shape = Size() if are_numbers(rate) else self.rate.size()
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Exponential, _instance, batch_shape, "rate")

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        drawn = empty(shape, dtype=self.rate.dtype, device=self.rate.device).exponential_()
        return drawn / self.rate

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -ops.expm1(-self.rate * value)

    def icdf(self, value: Any) -> Any:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Any:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Any]:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Any:
        return -ops.log(-x)
