# SPDX-License-Identifier: BSD-3-Clause
"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree.distributions import constraints
from modtree.distributions.exponential import Exponential
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import AffineTransform, ExpTransform
from modtree.distributions.utils import broadcast_all

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """The Pareto distribution of type 1.

    The density is ``alpha * scale ** alpha / x ** (alpha + 1)`` from scale on (Johnson, Kotz
    and Balakrishnan, 1994, chapter 20).

    Args:
        scale: The smallest value.
        alpha: Shape; the larger, the fewer values are large.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        transforms = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Pareto, _instance)
        new.scale, new.alpha = self.scale.expand(batch_shape), self.alpha.expand(batch_shape)
        return super().expand(batch_shape, _instance=new)

    @property
    def mean(self) -> Any:
        alpha = self.alpha.clamp(min=1)  # infinite from here down
        return alpha * self.scale / (alpha - 1)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        alpha = self.alpha.clamp(min=2)  # infinite from here down
        return self.scale.square() * alpha / ((alpha - 1).square() * (alpha - 2))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Any:
        return ops.log(self.scale / self.alpha) + (1 + self.alpha.reciprocal())
