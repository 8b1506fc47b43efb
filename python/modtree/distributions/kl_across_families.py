# SPDX-License-Identifier: BSD-3-Clause
"""Divergences of distributions of different families."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.creation import full_like
from modtree.distributions.bernoulli import Bernoulli
from modtree.distributions.beta import Beta
from modtree.distributions.binomial import Binomial
from modtree.distributions.exponential import Exponential
from modtree.distributions.gamma import Gamma
from modtree.distributions.gumbel import Gumbel
from modtree.distributions.kl import register_kl
from modtree.distributions.laplace import Laplace
from modtree.distributions.normal import Normal
from modtree.distributions.pareto import Pareto
from modtree.distributions.poisson import Poisson
from modtree.distributions.uniform import Uniform
from modtree.distributions.utils import EULER_GAMMA, HALF_LOG_2PI


def _infinite(p: Any, q: Any) -> Any:
    """p has samples that q cannot have."""
    return full_like(p.mean, math.inf)


# Where the support of p reaches beyond that of q.
for _p, _others in {
    Beta: (Pareto,),
    Exponential: (Beta, Pareto, Uniform),
    Gamma: (Beta, Pareto, Uniform),
    Gumbel: (Beta, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, Uniform),
    Poisson: (Bernoulli, Binomial),
}.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, Exponential)
def _beta_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Any:
    total = p.concentration1 + p.concentration0
    log_mean = ops.digamma(p.concentration1) - ops.digamma(total)
    return (
        -p.entropy()
        - q.concentration * q.rate.log()
        + ops.lgamma(q.concentration)
        - (q.concentration - 1) * log_mean
        + q.rate * p.mean
    )


def _against_normal(p: Any, q: Any) -> Any:
    """What only mean and variance of p decide, and its entropy."""
    spread = p.variance + (p.mean - q.loc).square()
    return -p.entropy() + HALF_LOG_2PI + q.scale.log() + 0.5 * spread / q.scale.square()


for _p in (Beta, Exponential, Gamma, Gumbel, Laplace, Uniform):
    register_kl(_p, Normal)(_against_normal)


@register_kl(Beta, Uniform)
def _beta_uniform(p: Any, q: Any) -> Any:
    result = -p.entropy() + (q.high - q.low).log()
    return ops.where((q.low > 0) | (q.high < 1), math.inf, result)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return (
        -q.concentration * ratio.log()
        + ratio
        + ops.lgamma(q.concentration)
        + q.concentration * EULER_GAMMA
        - (1 + EULER_GAMMA)
    )


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Any:
    product = p.rate * q.scale
    loc = q.loc / q.scale
    return product.log() - 1 + loc.exp() * product / (product + 1) - loc + product.reciprocal()


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Any:
    product = p.rate * q.scale
    loc = q.loc / q.scale
    return (
        (p.concentration - 1) * ops.digamma(p.concentration)
        - ops.lgamma(p.concentration)
        - p.concentration
        + product.log()
        + p.concentration / product
        - loc
        + loc.exp() * (1 + product.reciprocal()).pow(-p.concentration)
    )


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Any:
    apart = (p.loc - q.loc) / q.scale
    ratio = (p.scale / q.scale).square()
    return apart + (-apart + 0.5 * ratio).exp() - 0.5 - HALF_LOG_2PI - (p.scale / q.scale).log()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    apart = p.loc - q.loc
    z = apart / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.square()).exp()
    distance = distance + apart * ops.erf(math.sqrt(0.5) * z)
    return -p.entropy() + (2 * q.scale).log() + distance / q.scale


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Any:
    product = p.scale * q.rate
    result = (p.alpha / product).log() - (1 + 1 / p.alpha) + p.alpha * product / (p.alpha - 1)
    return ops.where(p.alpha <= 1, math.inf, result)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Any:
    log_mean = p.scale.log() + p.alpha.reciprocal()
    result = (
        -p.entropy()
        - q.concentration * q.rate.log()
        + ops.lgamma(q.concentration)
        + (1 - q.concentration) * log_mean
        + q.rate * p.alpha * p.scale / (p.alpha - 1)
    )
    return ops.where(p.alpha <= 1, math.inf, result)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Any:
    result = _against_normal(p, q)
    return ops.where(p.alpha <= 2, math.inf, result)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Any:
    width = p.high - p.low
    log_mean = (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low) - width) / width
    rest_high, rest_low = 1 - p.high, 1 - p.low
    rest = (ops.xlogy(rest_high, rest_high) - ops.xlogy(rest_low, rest_low) + width) / width
    result = (
        -width.log()
        + ops.lgamma(q.concentration1)
        + ops.lgamma(q.concentration0)
        - ops.lgamma(q.concentration1 + q.concentration0)
        - (q.concentration1 - 1) * log_mean
        + (q.concentration0 - 1) * rest
    )
    return ops.where((p.high > 1) | (p.low < 0), math.inf, result)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Any:
    result = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return ops.where(p.low < 0, math.inf, result)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Any:
    width = p.high - p.low
    log_mean = (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low) - width) / width
    result = (
        -width.log()
        - q.concentration * q.rate.log()
        + ops.lgamma(q.concentration)
        - (q.concentration - 1) * log_mean
        + q.rate * (p.high + p.low) / 2
    )
    return ops.where(p.low < 0, math.inf, result)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Any:
    width = (p.high - p.low) / q.scale
    low, high = (p.low - q.loc) / q.scale, (p.high - q.loc) / q.scale
    return -width.log() + 0.5 * (low + high) - ((-high).exp() - (-low).exp()) / width


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Any:
    width = p.high - p.low
    log_mean = (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low) - width) / width
    constant = q.alpha.log() + q.alpha * q.scale.log()
    result = (q.alpha + 1) * log_mean - constant - width.log()
    return ops.where(p.low < q.support.lower_bound, math.inf, result)
