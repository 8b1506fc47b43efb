# SPDX-License-Identifier: BSD-3-Clause
"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree.distributions.half import Half
from modtree.distributions.normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """The distribution of the absolute values of normally distributed numbers of mean 0.

    The density is ``sqrt(2 / pi) / scale * exp(-((x / scale) ** 2) / 2)``, twice the one in
    chapter 13 of Johnson, Kotz and Balakrishnan, 1994.

    Args:
        scale: Standard deviation of those numbers.
        validate_args: Check parameters and values.
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(HalfNormal, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)
