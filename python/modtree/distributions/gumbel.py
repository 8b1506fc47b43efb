# SPDX-License-Identifier: BSD-3-Clause
"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._tensor.creation import full_like, ones_like
from modtree._tensor.dtypes import finfo
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import AffineTransform, ExpTransform
from modtree.distributions.uniform import Uniform
from modtree.distributions.utils import EULER_GAMMA, are_numbers, broadcast_all

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The Gumbel distribution, of the largest of many numbers.

    The density is ``exp(-z - exp(-z)) / scale`` with ``z = (x - loc) / scale`` (Johnson, Kotz
    and Balakrishnan, 1995, chapter 22).

    Args:
        loc: Mode.
        scale: Width.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = finfo(self.loc.dtype)
        if are_numbers(loc, scale):
            base = Uniform(info.tiny, 1 - info.eps, validate_args=validate_args)
        else:
            low, high = full_like(self.loc, info.tiny), full_like(self.loc, 1 - info.eps)
            base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, self._transforms(), validate_args=validate_args)

    def _transforms(self) -> list[Any]:
        """loc - scale * log(-log(u))."""
        return [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Gumbel, _instance)
        new.loc, new.scale = self.loc.expand(batch_shape), self.scale.expand(batch_shape)
        new.base_dist = self.base_dist.expand(batch_shape)
        new.transforms = new._transforms()
        new._batch_shape, new._event_shape = Size(batch_shape), self._event_shape
        new._validate_args = self._validate_args
        return new

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * EULER_GAMMA

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def entropy(self) -> Any:
        return self.scale.log() + (1 + EULER_GAMMA)
