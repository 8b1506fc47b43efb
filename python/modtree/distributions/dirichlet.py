# SPDX-License-Identifier: BSD-3-Clause
"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

from modtree._ops import functions as ops
from modtree._ops.registry import ops as table
from modtree._tensor.random import bits_of
from modtree._tensor.ranges import arange
from modtree.distributions import constraints
from modtree.distributions.exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution, of probabilities that sum to 1. Its samples have gradients.

    The density is ``Gamma(sum(a)) / prod(Gamma(a)) * prod(x ** (a - 1))`` with
    ``a = concentration`` (Kotz, Balakrishnan and Johnson, 2000, chapter 49).

    Args:
        concentration: One number for each probability, in the last dimension; usually called alpha.
        validate_args: Check parameters and values.
    """

    arg_constraints: Any = {
        "concentration": constraints.independent(constraints.positive, 1),
    }
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.size()
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Dirichlet, _instance, batch_shape, "concentration")

    def rsample(self, sample_shape: Any = ()) -> Any:
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        return table["sample_dirichlet"](concentration, bits_of(None))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return (
            ops.xlogy(self.concentration - 1.0, value).sum(-1)
            + ops.lgamma(self.concentration.sum(-1))
            - ops.lgamma(self.concentration).sum(-1)
        )

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        above = (self.concentration - 1).clamp(min=0.0)
        inner = above / above.sum(-1, True)
        # Where all are below 1 the density is infinite in each corner: the first stands for all.
        first = arange(above.shape[-1]) == 0
        below = (self.concentration < 1).all(-1).unsqueeze(-1)
        return ops.where(below, first.to(inner.dtype), inner)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        share = self.concentration * (total - self.concentration)
        return share / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        count = self.concentration.size(-1)
        total = self.concentration.sum(-1)
        slopes = (self.concentration - 1.0) * ops.digamma(self.concentration)
        return (
            ops.lgamma(self.concentration).sum(-1)
            - ops.lgamma(total)
            - (count - total) * ops.digamma(total)
            - slopes.sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Any]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return ops.lgamma(x).sum(-1) - ops.lgamma(x.sum(-1))
