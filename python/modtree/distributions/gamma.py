# SPDX-License-Identifier: BSD-3-Clause
"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._ops.registry import ops as table
from modtree._tensor.random import bits_of
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.utils import are_numbers, broadcast_all

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution. Its samples have gradients in both parameters.

    The density is ``rate ** a * x ** (a - 1) * exp(-rate * x) / Gamma(a)`` with
    ``a = concentration`` (Johnson, Kotz and Balakrishnan, 1994, chapter 17).

    Args:
        concentration: Shape; usually called alpha.
        rate: 1 / scale; usually called beta.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        shape = Size() if are_numbers(concentration, rate) else self.concentration.size()
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.pow(2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Gamma, _instance, batch_shape, "concentration", "rate")

    def rsample(self, sample_shape: Any = ()) -> Any:
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        return table["standard_gamma"](concentration, bits_of(None)) / self.rate

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return (
            ops.xlogy(self.concentration, self.rate)
            + ops.xlogy(self.concentration - 1, value)
            - self.rate * value
            - ops.lgamma(self.concentration)
        )

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return ops.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        return (
            self.concentration
            - self.rate.log()
            + ops.lgamma(self.concentration)
            + (1.0 - self.concentration) * ops.digamma(self.concentration)
        )

    @property
    def _natural_params(self) -> tuple[Any, Any]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return ops.lgamma(x + 1) - (x + 1) * ops.log(-y)
