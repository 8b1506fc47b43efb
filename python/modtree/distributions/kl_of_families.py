# SPDX-License-Identifier: BSD-3-Clause
"""Divergences of two distributions of one family."""

from __future__ import annotations

import math
from typing import Any

from modtree._ops import functions as ops
from modtree._ops.linalg_functions import solve_triangular
from modtree._tensor.engine import grad
from modtree.distributions.bernoulli import Bernoulli
from modtree.distributions.beta import Beta
from modtree.distributions.binomial import Binomial
from modtree.distributions.categorical import Categorical
from modtree.distributions.cauchy import Cauchy
from modtree.distributions.dirichlet import Dirichlet
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.exponential import Exponential
from modtree.distributions.gamma import Gamma
from modtree.distributions.geometric import Geometric
from modtree.distributions.gumbel import Gumbel
from modtree.distributions.half_normal import HalfNormal
from modtree.distributions.independent import Independent
from modtree.distributions.kl import kl_divergence, register_kl
from modtree.distributions.laplace import Laplace
from modtree.distributions.multivariate_normal import MultivariateNormal, squared_length
from modtree.distributions.normal import Normal
from modtree.distributions.one_hot_categorical import OneHotCategorical
from modtree.distributions.pareto import Pareto
from modtree.distributions.poisson import Poisson
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.uniform import Uniform
from modtree.distributions.utils import EULER_GAMMA, sum_rightmost


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    # p log(p / q) + (1 - p) log((1 - p) / (1 - q)), where 0 log(0 / q) is 0 and p log(p / 0) inf.
    happens = _log_ratio_times(p.probs, q.probs, p.logits - q.logits, _softplus_ratio(q, p))
    fails = _log_ratio_times(1 - p.probs, 1 - q.probs, None, _softplus_ratio(q, p))
    return happens + fails


def _softplus_ratio(q: Any, p: Any) -> Any:
    """log((1 - p) / (1 - q)), from the logits."""
    return _softplus(q.logits) - _softplus(p.logits)


def _softplus(x: Any) -> Any:
    return x.clamp(min=0) + (-x.abs()).exp().log1p()


def _log_ratio_times(p: Any, q: Any, logits: Any, rest: Any) -> Any:
    ratio = rest if logits is None else logits + rest
    result = ops.where(p == 0, 0.0, p * ratio)
    return ops.where((q == 0) & (p != 0), math.inf, result)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    p1, p0, q1, q0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    p_sum, q_sum = p1 + p0, q1 + q0
    return (
        (ops.lgamma(q1) + ops.lgamma(q0) + ops.lgamma(p_sum))
        - (ops.lgamma(p1) + ops.lgamma(p0) + ops.lgamma(q_sum))
        + (p1 - q1) * ops.digamma(p1)
        + (p0 - q0) * ops.digamma(p0)
        + (q_sum - p_sum) * ops.digamma(p_sum)
    )


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    one = p.total_count * (
        p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    )
    larger, one = ops.broadcast_tensors(p.total_count > q.total_count, one)
    return ops.where(larger, math.inf, one)


def _expectation(p: Any, q: Any) -> Any:
    """The sum of p.probs * log(p.probs / q.probs)."""
    terms = p.probs * (p.logits - q.logits)
    terms = ops.where(q.probs == 0, math.inf, terms)
    return ops.where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    return _expectation(p, q)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: Any, q: Any) -> Any:
    return _expectation(p, q)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    apart = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return apart.log() - (4 * p.scale * q.scale).log()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    a_sum, b_sum = a.sum(-1), b.sum(-1)
    slopes = ops.digamma(a) - ops.digamma(a_sum).unsqueeze(-1)
    return (
        ops.lgamma(a_sum)
        - ops.lgamma(b_sum)
        - (ops.lgamma(a) - ops.lgamma(b)).sum(-1)
        + ((a - b) * slopes).sum(-1)
    )


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Any:
    """The Bregman divergence of the normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"The cross KL-divergence between different exponential families cannot be computed "
            f"using Bregman divergences: {type(p).__name__}, {type(q).__name__}"
        )
    p_natural = [x.detach().requires_grad_() for x in p._natural_params]
    q_natural = q._natural_params
    normalizer = p._log_normalizer(*p_natural)
    slopes = grad(normalizer.sum(), p_natural, create_graph=True)
    result = q._log_normalizer(*q_natural) - normalizer
    for mine, others, slope in zip(p_natural, q_natural, slopes, strict=True):
        term = (others - mine) * slope
        result = result - sum_rightmost(term, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log()
        + ops.lgamma(b)
        - ops.lgamma(a)
        + (a - b) * ops.digamma(a)
        + (q.rate - p.rate) * (a / p.rate)
    )


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    p_loc, q_loc = p.loc / q.scale, q.loc / q.scale
    apart = q_loc - p_loc
    return (
        -ratio.log() - apart + ratio * EULER_GAMMA
        + (apart + ops.lgamma(1 + ratio)).exp()
        - (1 + EULER_GAMMA)
    )  # fmt: skip


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).square()
    apart = ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + apart - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    apart = (p.loc - q.loc).abs()
    return -ratio.log() + apart / q.scale + ratio * (-apart / p.scale).exp() - 1


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two Multivariate Normals with different event shapes cannot "
            f"be computed: {tuple(p.event_shape)}, {tuple(q.event_shape)}"
        )
    size = p.event_shape[0]
    shape = ops.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    p_factor, q_factor = (d._factor.expand((*shape, size, size)) for d in (p, q))
    trace = solve_triangular(q_factor, p_factor, upper=False).square().sum((-2, -1))
    length = squared_length(q._factor, q.loc - p.loc)
    return q._half_log_det() - p._half_log_det() + 0.5 * (trace + length - size)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    scale, alpha = p.scale / q.scale, q.alpha / p.alpha
    result = q.alpha * scale.log() - alpha.log() + alpha - 1
    return ops.where(p.support.lower_bound < q.support.lower_bound, math.inf, result)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    """Transforms that both have in common change nothing."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            "the divergence of distributions with different transforms is not known"
        )
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), max(more, 0))


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return ops.where((q.low > p.low) | (q.high < p.high), math.inf, result)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"the divergence of Independents of {p.reinterpreted_batch_ndims} and "
            f"{q.reinterpreted_batch_ndims} dimensions is not known"
        )
    result = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(result, p.reinterpreted_batch_ndims)
