# SPDX-License-Identifier: BSD-3-Clause
"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from modtree.distributions import constraints
from modtree.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The chi-squared distribution, of the sum of squares of normally distributed numbers.

    The density is ``x ** (df / 2 - 1) * exp(-x / 2) / (2 ** (df / 2) * Gamma(df / 2))``
    (Johnson, Kotz and Balakrishnan, 1994, chapter 18).

    Args:
        df: How many numbers: the degrees of freedom.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Chi2, _instance)
        return super().expand(batch_shape, new)

    @property
    def df(self) -> Any:
        """The degrees of freedom."""
        return self.concentration * 2
