# SPDX-License-Identifier: BSD-3-Clause
"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.ranges import arange
from modtree._tensor.sampling import binomial
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import BinaryParameter

__all__ = ["Binomial"]


def _positive_part(x: Any) -> Any:
    """max(x, 0) whose slope at 0 is 0.5."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(BinaryParameter, Distribution):
    """The binomial distribution: how many of a number of trials succeed.

    The probability of x is ``n! / (x! * (n - x)!) * probs ** x * (1 - probs) ** (n - x)`` with
    ``n = total_count`` (Johnson, Kemp and Kotz, 2005, chapter 3).

    Args:
        total_count: Number of trials.
        probs: Probability of success.
        logits: Logit of that probability, instead.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.total_count, parameter = self._take(probs, logits, total_count)
        self.total_count = self.total_count.type_as(parameter)
        super().__init__(parameter.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("total_count", "probs", "logits")
        return self._expanded(Binomial, _instance, batch_shape, *names)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ops.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        ways = (
            ops.lgamma(self.total_count + 1)
            - ops.lgamma(value + 1)
            - ops.lgamma(self.total_count - value + 1)
        )
        softplus = _positive_part(self.logits) + (-self.logits.abs()).exp().log1p()
        return value * self.logits + ways - self.total_count * softplus

    def _one_count(self, what: str) -> int:
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(
                f"Inhomogeneous total count not supported by `{what}`: {self.total_count}"
            )
        return count

    def entropy(self) -> Any:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        count = self._one_count("enumerate_support")
        values = arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
