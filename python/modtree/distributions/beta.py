# SPDX-License-Identifier: BSD-3-Clause
"""The beta distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree.distributions import constraints
from modtree.distributions.dirichlet import Dirichlet
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.utils import broadcast_all

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """The beta distribution. Its samples have gradients in both parameters.

    The density is ``x ** (a - 1) * (1 - x) ** (b - 1) / B(a, b)`` with ``a = concentration1``
    and ``b = concentration0`` (Johnson, Kotz and Balakrishnan, 1995, chapter 25).

    Args:
        concentration1: The first concentration; usually called alpha.
        concentration0: The second; usually called beta.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        both = ops.stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(Beta, _instance, batch_shape)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        return new

    @property
    def concentration1(self) -> Any:
        """The first concentration."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Any:
        """The second concentration."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        both = ops.stack([value, 1.0 - value], -1)
        return self._dirichlet.log_prob(both)

    def entropy(self) -> Any:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Any, Any]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return ops.lgamma(x) + ops.lgamma(y) - ops.lgamma(x + y)
