# SPDX-License-Identifier: BSD-3-Clause
"""Distributions for tests: how each is made, of which parameters, and values it can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One distribution: ``make(lib.distributions, *parameters)``."""

    name: str
    make: Callable[..., Any]
    parameters: tuple[Any, ...]
    values: Any

    def tensors(self, lib: Any, requires_grad: bool = False) -> list[Any]:
        return [
            lib.tensor(np.array(p, np.float64)).requires_grad_(requires_grad)
            for p in self.parameters
        ]

    def build(self, lib: Any, requires_grad: bool = False) -> tuple[Any, list[Any]]:
        tensors = self.tensors(lib, requires_grad)
        return self.make(lib.distributions, *tensors), tensors


def plain(name: str) -> Callable[..., Any]:
    return lambda d, *parameters: getattr(d, name)(*parameters)


def _logits(name: str) -> Callable[..., Any]:
    return lambda d, logits: getattr(d, name)(logits=logits)


def _probs(name: str) -> Callable[..., Any]:
    return lambda d, probs: getattr(d, name)(probs=probs)


_LOC, _SCALE = [0.3, -1.0, 2.0], [0.5, 1.5, 1.0]
_REAL = [[0.1, -2.0, 3.0], [1.0, 0.5, 2.5]]
_POSITIVE = [[0.2, 1.0, 2.5], [3.0, 0.05, 0.7]]
_UNIT = [[0.2, 0.5, 0.9], [0.01, 0.75, 0.33]]
_PROBS = [0.2, 0.5, 0.9]
_ROWS = [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]
_LOGITS = [[0.2, -1.3, 0.5], [1.6, 0.1, -2.0]]
_SPREAD = [[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]]
_TRIL = [[1.2, 0.0, 0.0], [0.3, 0.8, 0.0], [-0.5, 0.2, 1.1]]
_COUNTS = [[0.0, 1.0, 4.0], [2.0, 7.0, 3.0]]

CASES = [
    Case("Normal", plain("Normal"), (_LOC, _SCALE), _REAL),
    Case("Normal-broadcast", plain("Normal"), ([[0.0], [1.0]], _SCALE), _REAL),
    Case("LogNormal", plain("LogNormal"), (_LOC, _SCALE), _POSITIVE),
    Case("HalfNormal", plain("HalfNormal"), (_SCALE,), _POSITIVE),
    Case("Cauchy", plain("Cauchy"), (_LOC, _SCALE), _REAL),
    Case("HalfCauchy", plain("HalfCauchy"), (_SCALE,), _POSITIVE),
    Case("Laplace", plain("Laplace"), (_LOC, _SCALE), _REAL),
    Case("Gumbel", plain("Gumbel"), (_LOC, _SCALE), _REAL),
    Case("Uniform", plain("Uniform"), ([0.0, -1.0, 0.1], [1.0, 2.0, 0.95]), _UNIT[0]),
    Case("Exponential", plain("Exponential"), (_SCALE,), _POSITIVE),
    Case("Pareto", plain("Pareto"), ([0.1, 0.02, 0.3], [1.5, 0.5, 3.0]), _POSITIVE),
    Case("Gamma", plain("Gamma"), ([0.5, 3.0, 1.0], _SCALE), _POSITIVE),
    Case("Chi2", plain("Chi2"), ([0.5, 3.0, 4.0],), _POSITIVE),
    Case("StudentT", plain("StudentT"), ([0.5, 1.5, 4.0], _LOC, _SCALE), _REAL),
    Case("Beta", plain("Beta"), ([0.5, 3.0, 1.5], [0.7, 2.0, 4.0]), _UNIT),
    Case("Dirichlet", plain("Dirichlet"), ([[0.5, 3.0, 1.5], [0.7, 0.2, 0.4]],), _ROWS),
    Case("Poisson", plain("Poisson"), ([0.5, 3.2, 1.5],), _COUNTS),
    Case("Bernoulli", _probs("Bernoulli"), (_PROBS,), [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    Case("Bernoulli-logits", _logits("Bernoulli"), (_LOC,), [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    Case("Geometric", _probs("Geometric"), (_PROBS,), _COUNTS),
    Case("Geometric-logits", _logits("Geometric"), (_LOC,), _COUNTS),
    Case("Binomial", lambda d, p: d.Binomial(7, p), (_PROBS,), _COUNTS),
    Case("Binomial-logits", lambda d, x: d.Binomial(7, logits=x), (_LOC,), _COUNTS),
    Case("NegativeBinomial", plain("NegativeBinomial"), ([3.0, 1.5, 6.0], _PROBS), _COUNTS),
    Case("Categorical", _probs("Categorical"), (_ROWS,), [[0.0, 2.0], [1.0, 1.0]]),
    Case("Categorical-logits", _logits("Categorical"), (_LOGITS,), [[0.0, 2.0], [1.0, 1.0]]),
    Case("OneHotCategorical", _probs("OneHotCategorical"), (_ROWS,), [[0, 0, 1], [1, 0, 0]]),
    Case(
        "OneHotCategorical-logits",
        _logits("OneHotCategorical"),
        (_LOGITS,),
        [[0, 0, 1], [1, 0, 0]],
    ),
    Case(
        "OneHotCategoricalStraightThrough",
        _probs("OneHotCategoricalStraightThrough"),
        (_ROWS,),
        [[0, 0, 1], [1, 0, 0]],
    ),
    Case("Multinomial", lambda d, p: d.Multinomial(5, p), (_ROWS,), [[1, 1, 3], [5, 0, 0]]),
    Case(
        "MultivariateNormal",
        plain("MultivariateNormal"),
        ([_LOC, _LOC], _SPREAD),
        _REAL,
    ),
    Case(
        "MultivariateNormal-precision",
        lambda d, loc, matrix: d.MultivariateNormal(loc, precision_matrix=matrix),
        (_LOC, [_SPREAD, _SPREAD]),
        _REAL,
    ),
    Case(
        "MultivariateNormal-tril",
        lambda d, loc, matrix: d.MultivariateNormal(loc, scale_tril=matrix),
        (_LOC, _TRIL),
        _REAL,
    ),
    Case(
        "Independent",
        lambda d, loc, scale: d.Independent(d.Normal(loc, scale), 1),
        (_REAL, _SCALE),
        _REAL,
    ),
    Case(
        "MixtureSameFamily",
        lambda d, p, loc, scale: d.MixtureSameFamily(d.Categorical(p), d.Normal(loc, scale)),
        (_ROWS, _REAL, _SCALE),
        [0.3, 1.5],
    ),
    Case(
        "MixtureSameFamily-vectors",
        lambda d, p, loc: d.MixtureSameFamily(
            d.Categorical(p), d.Independent(d.Normal(loc, 1.0), 1)
        ),
        ([0.3, 0.7], _REAL),
        _REAL,
    ),
    Case(
        "TransformedDistribution",
        lambda d, loc, scale: d.TransformedDistribution(
            d.Normal(loc, scale),
            [d.AffineTransform(1.0, -2.0), d.SigmoidTransform(), d.AffineTransform(-1.0, 3.0)],
        ),
        (_LOC, _SCALE),
        [[0.1, -0.9, 1.5], [1.9, 0.0, -0.3]],
    ),
    Case(
        "TransformedDistribution-simplex",
        lambda d, loc, scale: d.TransformedDistribution(
            d.Normal(loc, scale), d.StickBreakingTransform()
        ),
        (_LOC, _SCALE),
        [0.1, 0.4, 0.2, 0.3],
    ),
]
