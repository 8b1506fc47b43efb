# SPDX-License-Identifier: BSD-3-Clause
"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import ones_like
from modtree._tensor.from_data import tensor
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.binomial import Binomial
from modtree.distributions.categorical import Categorical
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """The multinomial distribution: how often each category comes in a number of draws.

    The probability of x is ``n! / prod(x!) * prod(probs ** x)`` with ``n = total_count``
    (Johnson, Kotz and Balakrishnan, 1997, chapter 35).

    Args:
        total_count: Number of draws, an int: one for the whole batch.
        probs: Probabilities in the last dimension; need not sum to 1.
        logits: Their logarithms, instead; a constant may be missing.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError(
                f"inhomogeneous total_count is not supported: it must be an int, got "
                f"{type(total_count).__name__}"
            )
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(Multinomial, _instance, batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        new._binomial = self._binomial.expand(Size(batch_shape) + self.event_shape)
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Any:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        sample_shape = Size(sample_shape)
        with no_grad():
            draws = self._categorical.sample(Size((self.total_count,)) + sample_shape)
            draws = draws.movedim(0, -1)
            counts = draws.new_zeros(self._extended_shape(sample_shape))
            return counts.scatter_add(-1, draws, ones_like(draws)).type_as(self.probs)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        ways = ops.lgamma(value.sum(-1) + 1) - ops.lgamma(value + 1).sum(-1)
        # A category that cannot come and did not come takes no part.
        impossible = (value == 0) & (logits == -float("inf"))
        return ways + (ops.where(impossible, 0.0, logits) * value).sum(-1)

    def entropy(self) -> Any:
        count = tensor(float(self.total_count), dtype=self.probs.dtype)
        support = self._binomial.enumerate_support(expand=False)[1:]
        probs = self._binomial.log_prob(support).exp()
        ways = (probs * ops.lgamma(support + 1)).sum([0, -1])
        return count * self._categorical.entropy() - ops.lgamma(count + 1) + ways
