# SPDX-License-Identifier: BSD-3-Clause
"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.ranges import arange
from modtree._tensor.sampling import bernoulli
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.utils import BinaryParameter, are_numbers, broadcast_all
from modtree.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli"]


class Bernoulli(BinaryParameter, ExponentialFamily):
    """The Bernoulli distribution, of 0 and 1.

    The probability of x is ``probs ** x * (1 - probs) ** (1 - x)`` (Johnson, Kemp and Kotz,
    2005, chapter 3).

    Args:
        probs: Probability of 1.
        logits: Logit of that probability, instead.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (parameter,) = self._take(probs, logits)
        shape = Size() if are_numbers(logits if probs is None else probs) else parameter.size()
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Bernoulli, _instance, batch_shape, "probs", "logits")

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        """1 or 0; NaN where both are as probable."""
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return ops.where(self.probs == 0.5, math.nan, mode)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        values = arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Any]:
        return (ops.logit(self.probs),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp().log1p()
