# SPDX-License-Identifier: BSD-3-Clause
"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._C import as_tuple
from modtree._ops import functions as ops
from modtree._tensor.random_creation import randn
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.utils import HALF_LOG_2PI, are_numbers, broadcast_all

__all__ = ["Normal"]


def standard_normal(shape: Any, like: Any) -> Any:
    """Numbers of mean 0 and deviation 1 in the dtype of a tensor."""
    return randn(as_tuple(shape), dtype=like.dtype, device=like.device)


class Normal(ExponentialFamily):
    """The normal distribution.

    The density is ``exp(-(z ** 2) / 2) / (scale * sqrt(2 * pi))`` with
    ``z = (x - loc) / scale`` (Johnson, Kotz and Balakrishnan, 1994, chapter 13).

    Args:
        loc: Mean.
        scale: Standard deviation.
        validate_args: Check parameters and values.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        shape = Size() if are_numbers(loc, scale) else self.loc.size()
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return self.scale.pow(2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Normal, _instance, batch_shape, "loc", "scale")

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.loc + standard_normal(shape, self.loc) * self.scale

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -0.5 * distance * distance - self.scale.log() - HALF_LOG_2PI

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + ops.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + HALF_LOG_2PI + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Any, Any]:
        precision = self.scale.pow(-2)
        return self.loc * precision, -0.5 * precision

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return -0.25 * x.pow(2) / y + 0.5 * ops.log(-math.pi / y)
