# SPDX-License-Identifier: BSD-3-Clause
"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import empty, full
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import are_numbers, broadcast_all

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The Cauchy distribution, also Lorentz distribution: the ratio of two normally distributed
    numbers. It has neither mean nor variance.

    The density is ``1 / (pi * scale * (1 + z ** 2))`` with ``z = (x - loc) / scale`` (Johnson,
    Kotz and Balakrishnan, 1994, chapter 16).

    Args:
        loc: Mode and median.
        scale: Half the width at half the height.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        shape = Size() if are_numbers(loc, scale) else self.loc.size()
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Cauchy, _instance, batch_shape, "loc", "scale")

    def _filled(self, value: float) -> Any:
        return full(self._extended_shape(), value, dtype=self.loc.dtype, device=self.loc.device)

    @property
    def mean(self) -> Any:
        return self._filled(math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._filled(math.inf)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        eps = empty(shape, dtype=self.loc.dtype, device=self.loc.device).cauchy_()
        return self.loc + eps * self.scale

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - distance.square().log1p()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return ops.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return ops.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()
