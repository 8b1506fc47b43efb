# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of samples in the parameters of their distribution, and the incomplete gamma functions
they follow from.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.distribution_cases import CASES
from helpers.implementations import needs_torch

import modtree
from modtree._ops.incomplete_gamma import gamma_slope
from modtree._ops.reparametrized import beta_slope

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


#: Name -> (distribution of parameters, parameters, their gradient of the mean).
MEANS = {
    "Gamma": (lambda d, a, r: d.Gamma(a, r), (2.5, 1.5)),
    "Gamma-small": (lambda d, a, r: d.Gamma(a, r), (0.3, 1.0)),
    "Beta": (lambda d, a, b: d.Beta(a, b), (2.0, 0.7)),
    "Beta-large": (lambda d, a, b: d.Beta(a, b), (40.0, 25.0)),
    "StudentT": (lambda d, f, m: d.StudentT(f, m, 1.0), (6.0, 0.5)),
    "Chi2": (lambda d, f: d.Chi2(f), (3.0,)),
    "Normal": (lambda d, m, s: d.Normal(m, s), (0.5, 2.0)),
    "LogNormal": (lambda d, m, s: d.LogNormal(m, s), (0.5, 0.4)),
    "Laplace": (lambda d, m, s: d.Laplace(m, s), (0.5, 2.0)),
    "Uniform": (lambda d, a, b: d.Uniform(a, b), (0.5, 2.0)),
    "Exponential": (lambda d, r: d.Exponential(r), (1.7,)),
    "Gumbel": (lambda d, m, s: d.Gumbel(m, s), (0.5, 2.0)),
    "HalfNormal": (lambda d, s: d.HalfNormal(s), (1.3,)),
}


@pytest.mark.parametrize("name", MEANS)
def test_gradients_of_moments(name):
    """The mean gradient of x and x ** 2 over samples is that of the mean and of mean ** 2 +
    variance.
    """
    make, values = MEANS[name]
    parameters = [modtree.tensor(v, dtype=modtree.float64, requires_grad=True) for v in values]
    distribution = make(modtree.distributions, *parameters)
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


def test_gradients_of_a_dirichlet():
    alpha = modtree.tensor([0.5, 2.0, 1.2], dtype=modtree.float64, requires_grad=True)
    weights = modtree.tensor([1.0, -2.0, 0.5], dtype=modtree.float64)
    distribution = modtree.distributions.Dirichlet(alpha)
    (want,) = modtree.autograd.grad((distribution.mean * weights).sum(), alpha)
    sample = distribution.rsample((COUNT,))
    (got,) = modtree.autograd.grad((sample * weights).sum(-1).mean(), alpha)
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=0.02)


def test_the_gradient_of_a_gamma_sample_is_that_of_the_probability():
    """The probability below a sample stays when it moves with its concentration."""
    a = np.array([0.05, 0.5, 0.5, 3.0, 3.0, 50.0, 800.0, 800.0, 3e4])
    x = np.array([0.01, 0.2, 4.0, 1.0, 9.0, 60.0, 730.0, 850.0, 3.01e4])
    step = np.minimum(1e-4 * a, 3e-3 * np.sqrt(a))
    ahead = modtree.igamma(modtree.tensor(a + step), modtree.tensor(x)).numpy()
    behind = modtree.igamma(modtree.tensor(a - step), modtree.tensor(x)).numpy()
    lgamma = modtree.lgamma(modtree.tensor(a)).numpy()
    density = np.exp((a - 1) * np.log(x) - x - lgamma)
    np.testing.assert_allclose(
        gamma_slope(a, x), -(ahead - behind) / (2 * step) / density, rtol=2e-5
    )


@needs_torch
def test_slopes_of_gamma_samples_against_torch():
    import torch

    rng = np.random.default_rng(3)
    a = 10 ** rng.uniform(-2, 4.5, 3000)
    x = np.maximum(rng.standard_gamma(a), 1e-200)
    want = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).numpy()
    np.testing.assert_allclose(gamma_slope(a, x), want, rtol=2e-3)


@needs_torch
def test_slopes_of_beta_samples_against_torch():
    import torch

    rng = np.random.default_rng(4)
    a, b = 10 ** rng.uniform(-2, 3, (2, 3000))
    x = np.clip(rng.beta(a, b), 1e-30, 1 - 1e-12)
    want = torch._dirichlet_grad(torch.tensor(x), torch.tensor(a), torch.tensor(a + b)).numpy()
    got = beta_slope(x, a, b)
    np.testing.assert_allclose(got, want, rtol=5e-3)  # torch approximates some regions
    assert np.median(np.abs(got / want - 1)) < 1e-10  # and is exact in others


@needs_torch
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name):
    import torch

    rng = np.random.default_rng(5)
    a = np.concatenate([10 ** rng.uniform(-2, 4, 2000), [0, 0, 1, 1, np.inf, 1, -1, np.nan, 0.0]])
    x = np.concatenate(
        [a[:2000] * 10 ** rng.uniform(-1, 1, 2000), [0, 1, 0, np.inf, 1, -1, 1, 1, np.inf]]
    )
    ours = getattr(modtree, name)(modtree.tensor(a), modtree.tensor(x)).numpy()
    theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)
    single = getattr(modtree, name)(modtree.tensor([2.0]), modtree.tensor([1.0]))
    assert single.dtype is modtree.float32
    assert getattr(modtree.tensor([2.0]), name + "_")(modtree.tensor([1.0])).equal(single)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_have_gradients_in_both_arguments(name):
    a = modtree.tensor([0.4, 2.0, 30.0], dtype=modtree.float64, requires_grad=True)
    x = modtree.tensor([0.3, 5.0, 28.0], dtype=modtree.float64, requires_grad=True)
    assert modtree.autograd.gradcheck(getattr(modtree, name), (a, x), atol=1e-6)
    assert modtree.autograd.gradgradcheck(
        lambda x: getattr(modtree, name)(a.detach(), x), (x,), atol=1e-5
    )
    result = getattr(modtree, name)(a, x)
    (first,) = modtree.autograd.grad(result.sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        first.sum().backward()


def test_samples_have_no_second_derivative():
    a = modtree.tensor([2.0], requires_grad=True)
    sample = modtree.distributions.Gamma(a, 1.0).rsample()
    (first,) = modtree.autograd.grad(sample, a, create_graph=True)
    with pytest.raises(RuntimeError):
        first.backward()


def test_tiny_concentrations_draw_no_zeros():
    tiny = modtree.full((2000,), 1e-3)
    for sample in (
        modtree.distributions.Gamma(tiny, 1.0).sample(),
        modtree.distributions.Beta(tiny, tiny).sample(),
    ):
        assert bool((sample > 0).all())
    shares = modtree.distributions.Dirichlet(modtree.full((500, 3), 1e-3)).sample()
    assert not bool(modtree.isnan(shares).any())
    np.testing.assert_allclose(shares.sum(-1).numpy(), 1.0, rtol=1e-6)
