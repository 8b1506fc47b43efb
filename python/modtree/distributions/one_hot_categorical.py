# SPDX-License-Identifier: BSD-3-Clause
"""Categorical distributions whose samples are one-hot vectors."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.ranges import eye
from modtree.distributions import constraints
from modtree.distributions.categorical import Categorical
from modtree.distributions.distribution import Distribution
from modtree.nn.functional import one_hot

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(Distribution):
    """The distribution of categories as vectors with one 1 among zeros.

    Args:
        probs: Probabilities in the last dimension; need not sum to 1.
        logits: Their logarithms, instead; a constant may be missing.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(
            self._categorical.batch_shape,
            self._categorical.param_shape[-1:],
            validate_args=validate_args,
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(OneHotCategorical, _instance, batch_shape)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    @property
    def _param(self) -> Any:
        return self._categorical._param

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
        return self.probs

    @property
    def mode(self) -> Any:
        return one_hot(self.probs.argmax(-1), self.event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        indices = self._categorical.sample(sample_shape)
        return one_hot(indices, self.event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        count = self.event_shape[0]
        values = eye(count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((count,) + (1,) * len(self.batch_shape) + (count,))
        return values.expand((count, *self.batch_shape, count)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same with a gradient: that of a sample is passed to the probabilities as it is (Bengio
    and others, 2013).

    Args:
        probs: Probabilities in the last dimension; need not sum to 1.
        logits: Their logarithms, instead; a constant may be missing.
        validate_args: Check parameters and values.
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        probs = self._categorical.probs
        return ops.add(self.sample(sample_shape), probs - probs.detach())
