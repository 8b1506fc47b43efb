# SPDX-License-Identifier: BSD-3-Clause
"""Probability distributions: samples, densities, entropies, divergences, and transforms of them.

Samples drawn with ``rsample()`` have gradients in the parameters of the distribution::

    scale = modtree.ones(3, requires_grad=True)
    modtree.distributions.Normal(0.0, scale).rsample().square().sum().backward()

Densities are given with their chapters in N. L. Johnson, S. Kotz, N. Balakrishnan: Continuous
Univariate Distributions, volumes 1 (1994) and 2 (1995), and Discrete Multivariate Distributions
(1997); N. L. Johnson, A. W. Kemp, S. Kotz: Univariate Discrete Distributions (2005); S. Kotz, N.
Balakrishnan, N. L. Johnson: Continuous Multivariate Distributions, volume 1 (2000).
"""

from __future__ import annotations

from modtree.distributions import (
    constraints,
    kl_across_families,  # noqa: F401  # registers its formulas
    kl_of_families,  # noqa: F401  # the same
    transforms,
    utils,
)
from modtree.distributions.bernoulli import Bernoulli
from modtree.distributions.beta import Beta
from modtree.distributions.binomial import Binomial
from modtree.distributions.categorical import Categorical
from modtree.distributions.cauchy import Cauchy
from modtree.distributions.chi2 import Chi2
from modtree.distributions.constraint_registry import biject_to, transform_to
from modtree.distributions.dirichlet import Dirichlet
from modtree.distributions.distribution import Distribution
from modtree.distributions.exp_family import ExponentialFamily
from modtree.distributions.exponential import Exponential
from modtree.distributions.gamma import Gamma
from modtree.distributions.geometric import Geometric
from modtree.distributions.gumbel import Gumbel
from modtree.distributions.half_cauchy import HalfCauchy
from modtree.distributions.half_normal import HalfNormal
from modtree.distributions.independent import Independent
from modtree.distributions.kl import kl_divergence, register_kl
from modtree.distributions.laplace import Laplace
from modtree.distributions.log_normal import LogNormal
from modtree.distributions.mixture_same_family import MixtureSameFamily
from modtree.distributions.multinomial import Multinomial
from modtree.distributions.multivariate_normal import MultivariateNormal
from modtree.distributions.negative_binomial import NegativeBinomial
from modtree.distributions.normal import Normal
from modtree.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from modtree.distributions.pareto import Pareto
from modtree.distributions.poisson import Poisson
from modtree.distributions.studentT import StudentT
from modtree.distributions.transformed_distribution import TransformedDistribution
from modtree.distributions.transforms import *  # noqa: F403
from modtree.distributions.transforms import __all__ as _transforms
from modtree.distributions.uniform import Uniform

__all__ = [
    "constraints",
    "transforms",
    "utils",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
    *_transforms,
]
