# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.grad_mode import no_grad
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.categorical import Categorical
from modtree.distributions.constraints import MixtureSameFamilyConstraint
from modtree.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: a component is drawn, then a sample of that component.

    Args:
        mixture_distribution: A Categorical: how probable the components are.
        component_distribution: The components, in its last batch dimension.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an instance of "
                f"modtree.distributions.Categorical, got {type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an instance of "
                f"modtree.distributions.Distribution, got {type(component_distribution).__name__}"
            )
        mixed = mixture_distribution.batch_shape
        batch_shape = component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mixed), reversed(batch_shape), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch_shape})"
                )
        count = mixture_distribution.logits.shape[-1]
        components = component_distribution.batch_shape[-1]
        if count != components:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components})"
            )
        self._num_component = components
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(MixtureSameFamily, _instance, batch_shape)
        batch_shape = Size(batch_shape)
        new._component_distribution = self._component_distribution.expand(
            batch_shape + (self._num_component,)
        )
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """How probable the components are."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _weights(self) -> Any:
        """The probabilities, with dimensions for the events."""
        probs = self.mixture_distribution.probs
        return probs.reshape(tuple(probs.shape) + (1,) * self._event_ndims)

    def _mixed(self, values: Any) -> Any:
        return (self._weights() * values).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._mixed(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        """The mean of the variances plus the variance of the means."""
        means = self.component_distribution.mean
        offsets = means - self.mean.unsqueeze(-1 - self._event_ndims)
        return self._mixed(self.component_distribution.variance) + self._mixed(offsets.square())

    def cdf(self, x: Any) -> Any:
        probs = self.mixture_distribution.probs
        below = self.component_distribution.cdf(x.unsqueeze(-1 - self._event_ndims))
        return (below * probs).sum(-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        density = self.component_distribution.log_prob(x.unsqueeze(-1 - self._event_ndims))
        weights = ops.log_softmax(self.mixture_distribution.logits, -1)
        return ops.logsumexp(density + weights, -1)

    def sample(self, sample_shape: Any = ()) -> Any:
        sample_shape = Size(sample_shape)
        with no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            events = self.event_shape
            chosen = self.mixture_distribution.sample(sample_shape)
            values = self.component_distribution.sample(sample_shape)
            index = chosen.reshape(tuple(chosen.shape) + (1,) * (1 + len(events)))
            index = index.expand((*tuple(values.shape[:dim]), 1, *events))
            return ops.gather(values, dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
        )
