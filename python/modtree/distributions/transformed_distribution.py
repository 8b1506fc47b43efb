# SPDX-License-Identifier: BSD-3-Clause
"""Distributions of what transforms make of samples."""

from __future__ import annotations

from typing import Any

from modtree._tensor.grad_mode import no_grad
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.independent import Independent
from modtree.distributions.transforms import ComposeTransform, Transform
from modtree.distributions.utils import sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of the samples of another after transforms.

    Args:
        base_distribution: The distribution.
        transforms: A transform, or a list of them, the first to be applied first.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {}

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        if isinstance(transforms, Transform):
            self.transforms = [transforms]
        elif isinstance(transforms, list) and all(isinstance(t, Transform) for t in transforms):
            self.transforms = transforms
        else:
            raise ValueError(
                f"transforms must be a Transform or list, but was {transforms}"
                if not isinstance(transforms, list)
                else "transforms must be a Transform or a list of Transforms"
            )
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event_dim = len(base_distribution.event_shape)
        whole = ComposeTransform(self.transforms)
        needed = whole.domain.event_dim
        if len(base_shape) < needed:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {needed}, but got "
                f"{tuple(base_shape)}."
            )
        shape = Size(whole.forward_shape(base_shape))
        expanded = Size(whole.inverse_shape(shape))
        if base_shape != expanded:  # parameters of the transforms have more dimensions
            cut = len(expanded) - base_event_dim
            base_distribution = base_distribution.expand(expanded[:cut])
        more = needed - base_event_dim
        if more > 0:
            base_distribution = Independent(base_distribution, more)
        self.base_dist = base_distribution
        change = whole.codomain.event_dim - needed
        event_dim = max(whole.codomain.event_dim, base_event_dim + change)
        if len(shape) < event_dim:
            raise AssertionError(f"{event_dim} dimensions of events in a shape {tuple(shape)}")
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(TransformedDistribution, _instance, batch_shape)
        whole = ComposeTransform(self.transforms)
        base_shape = whole.inverse_shape(Size(batch_shape) + self.event_shape)
        cut = len(base_shape) - len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(base_shape[:cut])
        new.transforms = self.transforms
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for transform in self.transforms:
                x = transform(x)
            return x

    def rsample(self, sample_shape: Any = ()) -> Any:
        x = self.base_dist.rsample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        event_dim = len(self.event_shape)
        result: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            change = transform.log_abs_det_jacobian(x, y)
            result = result - sum_rightmost(change, event_dim - transform.domain.event_dim)
            y = x
        density = self.base_dist.log_prob(y)
        return result + sum_rightmost(density, event_dim - len(self.base_dist.event_shape))

    def _of_rising(self, value: Any) -> Any:
        """A probability, or its complement where the transforms turn the order around."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._of_rising(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        value = self.base_dist.icdf(self._of_rising(value))
        for transform in self.transforms:
            value = transform(value)
        return value
