# SPDX-License-Identifier: BSD-3-Clause
"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.sampling import poisson
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.utils import are_numbers, broadcast_all

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """The Poisson distribution, of counts.

    The probability of x is ``rate ** x * exp(-rate) / x!`` (Johnson, Kemp and Kotz, 2005,
    chapter 4).

    Args:
        rate: Mean.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        shape = Size() if are_numbers(rate) else self.rate.size()
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Poisson, _instance, batch_shape, "rate")

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return ops.xlogy(value, rate) - rate - ops.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Any]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp()
