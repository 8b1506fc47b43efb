# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of samples in the parameters of their distribution."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.distribution_cases import CASES

import modtree

REPARAMETRIZED = [c for c in CASES if c.build(modtree)[0].has_rsample]
COUNT = 40_000


@pytest.fixture(autouse=True)
def seeded():
    modtree.manual_seed(12)


@pytest.mark.parametrize("case", REPARAMETRIZED, ids=lambda c: c.name)
def test_samples_have_gradients(case):
    distribution, tensors = case.build(modtree, requires_grad=True)
    sample = distribution.rsample((3,))
    assert sample.requires_grad
    grads = modtree.autograd.grad(sample.sin().sum(), tensors, allow_unused=True)
    assert all(g is not None and bool(modtree.isfinite(g).all()) for g in grads)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_has_no_rsample_says_so(case):
    distribution, _ = case.build(modtree)
    if not distribution.has_rsample:
        with pytest.raises(NotImplementedError):
            distribution.rsample()


@pytest.mark.parametrize(("name", "values"), [("Normal", (0.5, 2.0)), ("Uniform", (0.5, 2.0))])
def test_gradients_of_moments(name, values):
    """The mean gradient of x and x ** 2 over samples is that of the mean and of mean ** 2 +
    variance.
    """
    parameters = [modtree.tensor(v, dtype=modtree.float64, requires_grad=True) for v in values]
    distribution = getattr(modtree.distributions, name)(*parameters)
    for power in (1, 2):
        exact = distribution.mean if power == 1 else distribution.mean**2 + distribution.variance
        want = modtree.autograd.grad(exact, parameters, allow_unused=True, retain_graph=True)
        draws = [distribution.rsample((COUNT // 20,)).pow(power).mean() for _ in range(20)]
        grads = np.array(
            [
                [float(g) for g in modtree.autograd.grad(d, parameters, retain_graph=True)]
                for d in draws
            ]
        )
        error = grads.std(0) / np.sqrt(len(draws)) + 1e-9
        target = np.array([0.0 if g is None else float(g) for g in want])
        assert (np.abs(grads.mean(0) - target) < 5 * error).all()
