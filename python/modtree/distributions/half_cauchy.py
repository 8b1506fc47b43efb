# SPDX-License-Identifier: BSD-3-Clause
"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from modtree._tensor.creation import full
from modtree.distributions.cauchy import Cauchy
from modtree.distributions.half import Half

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The distribution of the absolute values of numbers with a Cauchy distribution around 0.

    The density is ``2 / (pi * scale * (1 + (x / scale) ** 2))``, twice that of Johnson, Kotz
    and Balakrishnan, 1994, chapter 16.

    Args:
        scale: Half the width at half the height of that distribution.
        validate_args: Check parameters and values.
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(HalfCauchy, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def mean(self) -> Any:
        shape = self._extended_shape()
        return full(shape, math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance
