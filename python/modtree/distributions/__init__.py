# SPDX-License-Identifier: BSD-3-Clause
"""Probability distributions: samples, densities, entropies, divergences, and transforms of them.

Samples drawn with ``rsample()`` have gradients in the parameters of the distribution::

    scale = modtree.ones(3, requires_grad=True)
    modtree.distributions.Normal(0.0, scale).rsample().square().sum().backward()
"""

from __future__ import annotations

from modtree.distributions import constraints as constraints
from modtree.distributions import transforms as transforms
from modtree.distributions import utils as utils
from modtree.distributions.distribution import Distribution as Distribution
from modtree.distributions.families import Bernoulli as Bernoulli
from modtree.distributions.families import Categorical as Categorical
from modtree.distributions.families import Independent as Independent
from modtree.distributions.families import Normal as Normal
from modtree.distributions.families import TransformedDistribution as TransformedDistribution
from modtree.distributions.families import Uniform as Uniform
from modtree.distributions.kl import kl_divergence as kl_divergence
from modtree.distributions.transforms import AffineTransform as AffineTransform
from modtree.distributions.transforms import TanhTransform as TanhTransform
from modtree.distributions.transforms import Transform as Transform
