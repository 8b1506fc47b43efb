# SPDX-License-Identifier: BSD-3-Clause
"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree.distributions import constraints
from modtree.distributions.chi2 import Chi2
from modtree.distributions.distribution import Distribution
from modtree.distributions.normal import standard_normal
from modtree.distributions.utils import broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t-distribution.

    The density is ``c * (1 + z ** 2 / df) ** (-(df + 1) / 2)`` with ``z = (x - loc) / scale`` and
    ``c = Gamma((df + 1) / 2) / (Gamma(df / 2) * sqrt(pi * df) * scale)`` (Johnson, Kotz and
    Balakrishnan, 1995, chapter 28).

    Args:
        df: Degrees of freedom.
        loc: Mean, where there is one.
        scale: Width.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(StudentT, _instance, batch_shape, "df", "loc", "scale")
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Any:
        return ops.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.df > 2
        df = ops.where(finite, self.df, 3.0)
        result = ops.where(finite, self.scale.pow(2) * df / (df - 2), math.inf)
        return ops.where(self.df <= 1, math.nan, result)

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = standard_normal(self._extended_shape(sample_shape), self.df)
        y = drawn * ops.rsqrt(self._chi2.rsample(sample_shape) / self.df)
        return self.loc + self.scale * y

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        half = 0.5 * (self.df + 1)
        normalizer = (
            self.scale.log()
            + 0.5 * (self.df.log() + math.log(math.pi))
            + ops.lgamma(0.5 * self.df)
            - ops.lgamma(half)
        )
        return -half * (y * y / self.df).log1p() - normalizer

    def entropy(self) -> Any:
        half = 0.5 * (self.df + 1)
        log_beta = ops.lgamma(0.5 * self.df) + math.lgamma(0.5) - ops.lgamma(half)
        slopes = ops.digamma(half) - ops.digamma(0.5 * self.df)
        return self.scale.log() + half * slopes + 0.5 * self.df.log() + log_beta
