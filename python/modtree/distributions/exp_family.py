# SPDX-License-Identifier: BSD-3-Clause
"""Distributions whose density is exp(t(x) . theta - F(theta) + k(x))."""

from __future__ import annotations

from typing import Any

from modtree._tensor.engine import grad
from modtree.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution of an exponential family: its entropy, and the divergence of two of them,
    follow from the normalizer F of its natural parameters and the gradient of F (Nielsen and Nock,
    "Entropies and cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        """The natural parameters theta."""
        raise NotImplementedError(f"{type(self).__name__} does not define its natural parameters")

    def _log_normalizer(self, *natural_params: Any) -> Any:
        """F(theta)."""
        raise NotImplementedError(f"{type(self).__name__} does not define its normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        """The mean of k(x)."""
        raise NotImplementedError(f"{type(self).__name__} does not define the mean of k(x)")

    def _normalizer_and_slopes(self) -> tuple[list[Any], Any, Any]:
        """The natural parameters, F, and its gradient in each of them."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*natural)
        return natural, normalizer, grad(normalizer.sum(), natural, create_graph=True)

    def entropy(self) -> Any:
        result = -self._mean_carrier_measure
        natural, normalizer, slopes = self._normalizer_and_slopes()
        result = result + normalizer
        for parameter, slope in zip(natural, slopes, strict=True):
            share = parameter * slope
            extra = share.dim() - len(self.batch_shape)
            result = result - (share.flatten(-extra).sum(-1) if extra > 0 else share)
        return result
