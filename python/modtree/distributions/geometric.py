# SPDX-License-Identifier: BSD-3-Clause
"""The geometric distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import empty, zeros_like
from modtree._tensor.dtypes import finfo
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import BinaryParameter, are_numbers, broadcast_all
from modtree.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(BinaryParameter, Distribution):
    """The geometric distribution: how many trials fail before the first success.

    The probability of x is ``probs * (1 - probs) ** x`` (Johnson, Kemp and Kotz, 2005, chapter
    5).

    Args:
        probs: Probability of success.
        logits: Logit of that probability, instead.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (parameter,) = self._take(probs, logits)
        shape = Size() if are_numbers(logits if probs is None else probs) else parameter.size()
        super().__init__(shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape "
                f"{tuple(self.probs.shape)}) of distribution {self!r} to be positive but found "
                f"invalid values:\n{self.probs}"
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Geometric, _instance, batch_shape, "probs", "logits")

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            u = empty(shape, dtype=self.probs.dtype, device=self.probs.device)
            u.uniform_(finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # Where no trial can fail, that none has failed is certain.
        certain = (probs == 1) & (value == 0)
        failing = ops.where(certain, 0.0, probs)
        return value * (-failing).log1p() + self.probs.log()

    def entropy(self) -> Any:
        both = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return both / self.probs
