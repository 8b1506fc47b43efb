# SPDX-License-Identifier: BSD-3-Clause
"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.sampling import poisson
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.gamma import Gamma
from modtree.distributions.utils import BinaryParameter, lazy_property
from modtree.nn.functional import logsigmoid

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryParameter, Distribution):
    """The negative binomial distribution: how many trials succeed before a number of them fail.

    The probability of x is ``Gamma(n + x) / (x! * Gamma(n)) * probs ** x * (1 - probs) ** n``
    with ``n = total_count`` (Johnson, Kemp and Kotz, 2005, chapter 5).

    Args:
        total_count: Number of failures; need not be whole.
        probs: Probability of success.
        logits: Logit of that probability, instead.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.total_count, parameter = self._take(probs, logits, total_count)
        self.total_count = self.total_count.type_as(parameter)
        super().__init__(parameter.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("total_count", "probs", "logits")
        return self._expanded(NegativeBinomial, _instance, batch_shape, *names)

    @property
    def mean(self) -> Any:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / ops.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        mass = self.total_count * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        total = self.total_count + value
        ways = ops.lgamma(total) - ops.lgamma(1.0 + value) - ops.lgamma(self.total_count)
        return mass + ops.where(total == 0.0, 0.0, ways)
