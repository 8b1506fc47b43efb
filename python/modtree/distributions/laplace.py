# SPDX-License-Identifier: BSD-3-Clause
"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import empty
from modtree._tensor.dtypes import finfo
from modtree._tensor.size import Size
from modtree.distributions import constraints
from modtree.distributions.distribution import Distribution
from modtree.distributions.utils import are_numbers, broadcast_all

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The Laplace distribution: of the difference of two exponentially distributed numbers.

    The density is ``exp(-abs(z)) / (2 * scale)`` with ``z = (x - loc) / scale`` (Johnson, Kotz
    and Balakrishnan, 1995, chapter 24).

    Args:
        loc: Mean.
        scale: Mean distance from it.
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
        return self._expanded(Laplace, _instance, batch_shape, "loc", "scale")

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return 2**0.5 * self.scale

    @property
    def variance(self) -> Any:
        return 2 * self.scale.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = empty(shape, dtype=self.loc.dtype, device=self.loc.device)
        u.uniform_(finfo(self.loc.dtype).eps - 1, 1)  # without -1, of which the result is infinite
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * ops.expm1(-distance.abs() / self.scale)

    def icdf(self, value: Any) -> Any:
        offset = value - 0.5
        return self.loc - self.scale * offset.sign() * (-2 * offset.abs()).log1p()

    def entropy(self) -> Any:
        return 1 + (2 * self.scale).log()
