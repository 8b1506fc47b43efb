# SPDX-License-Identifier: BSD-3-Clause
"""The Kullback-Leibler divergence of two distributions."""

from __future__ import annotations

import math
from typing import Any

from modtree.distributions import families
from modtree.distributions.utils import HALF_LOG_2PI, sum_rightmost
from modtree.nn.functional import softplus
from modtree.numpy.ops import functions as ops
from modtree.numpy.tensor.creation import full_like


def kl_divergence(p: Any, q: Any) -> Any:
    """The Kullback-Leibler divergence of p from q: the mean of log(p(x) / q(x)) over samples of p;
    a NotImplementedError where there is no formula for their classes.
    """
    for (class_p, class_q), formula in _FORMULAS.items():
        if isinstance(p, class_p) and isinstance(q, class_q):
            return formula(p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


def _bernoulli(p: Any, q: Any) -> Any:
    happens = softplus(-q.logits) - softplus(-p.logits)
    fails = softplus(q.logits) - softplus(p.logits)
    return _mean_ratio(p.probs, q.probs, happens) + _mean_ratio(1 - p.probs, 1 - q.probs, fails)


def _mean_ratio(p: Any, q: Any, log_ratio: Any) -> Any:
    """p times the logarithm of p / q, also where one of them is 0."""
    result = ops.where(q == 0, math.inf, p * log_ratio)
    return ops.where(p == 0, 0.0, result)


def _categorical(p: Any, q: Any) -> Any:
    return _mean_ratio(p.probs, q.probs, p.logits - q.logits).sum(-1)


def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).square()
    apart = ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + apart - 1 - ratio.log())


def _uniform(p: Any, q: Any) -> Any:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return ops.where((q.low > p.low) | (q.high < p.high), math.inf, result)


def _uniform_normal(p: Any, q: Any) -> Any:
    spread = p.variance + (p.mean - q.loc).square()
    return -p.entropy() + HALF_LOG_2PI + q.scale.log() + 0.5 * spread / q.scale.square()


def _transformed(p: Any, q: Any) -> Any:
    """Transforms that both have in common change nothing."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL(p || q) of different transforms is not implemented")
    return kl_divergence(p.base_dist, q.base_dist)


def _independent(p: Any, q: Any) -> Any:
    count = p.reinterpreted_batch_ndims
    if count != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL(p || q) of different event shapes is not implemented")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), count)


_FORMULAS = {
    (families.Bernoulli, families.Bernoulli): _bernoulli,
    (families.Categorical, families.Categorical): _categorical,
    (families.Normal, families.Normal): _normal,
    (families.Uniform, families.Uniform): _uniform,
    (families.Normal, families.Uniform): lambda p, q: full_like(p.mean, math.inf),
    (families.Uniform, families.Normal): _uniform_normal,
    (families.TransformedDistribution, families.TransformedDistribution): _transformed,
    (families.Independent, families.Independent): _independent,
}
