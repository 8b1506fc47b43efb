# SPDX-License-Identifier: BSD-3-Clause
"""kl_divergence: every pair of classes that torch has a formula for, and what users register."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from helpers.distribution_cases import CASES, Case, plain

import modtree

PAIRED = [
    Case("Normal", plain("Normal"), ([0.3, -1.0], [0.5, 1.5]), []),
    Case("Laplace", plain("Laplace"), ([0.3, -1.0], [0.5, 1.5]), []),
    Case("Gumbel", plain("Gumbel"), ([0.3, -1.0], [0.5, 1.5]), []),
    Case("Cauchy", plain("Cauchy"), ([0.3, -1.0], [0.5, 1.5]), []),
    Case("Uniform", plain("Uniform"), ([0.2, 0.4], [0.5, 0.9]), []),
    Case("Uniform-wide", plain("Uniform"), ([-1.0, 0.3], [2.5, 3.9]), []),
    Case("Beta", plain("Beta"), ([0.5, 3.0], [0.7, 2.0]), []),
    Case("Gamma", plain("Gamma"), ([0.5, 3.0], [0.7, 2.0]), []),
    Case("Chi2", plain("Chi2"), ([0.5, 3.0],), []),
    Case("Exponential", plain("Exponential"), ([0.5, 3.0],), []),
    Case("Pareto", plain("Pareto"), ([0.1, 0.2], [0.9, 3.0]), []),
    Case("HalfNormal", plain("HalfNormal"), ([0.1, 0.2],), []),
    Case("LogNormal", plain("LogNormal"), ([0.3, -1.0], [0.5, 1.5]), []),
    Case("Poisson", plain("Poisson"), ([0.5, 3.2],), []),
    Case("Bernoulli", plain("Bernoulli"), ([0.2, 0.7],), []),
    Case("Geometric", plain("Geometric"), ([0.2, 0.7],), []),
    Case("Binomial", lambda d, p: d.Binomial(5, p), ([0.2, 0.7],), []),
    Case("StudentT", plain("StudentT"), ([2.0, 5.0],), []),
]
ROWS = [
    Case("Dirichlet", plain("Dirichlet"), ([[0.5, 3.0, 1.5], [0.7, 0.2, 0.4]],), []),
    Case("Categorical", plain("Categorical"), ([[0.2, 0.3, 0.5], [0.6, 0.0, 0.4]],), []),
    Case("Categorical-other", plain("Categorical"), ([[0.5, 0.1, 0.4], [0.0, 0.2, 0.8]],), []),
    Case(
        "OneHotCategorical", plain("OneHotCategorical"), ([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]],), []
    ),
    *[c for c in CASES if c.name.startswith(("MultivariateNormal", "Independent"))],
]


def divergences(lib, case, other):
    """The divergence with its gradients in the parameters of both; or the class of its error."""
    p, p_tensors = case.build(lib, requires_grad=True)
    q, q_tensors = other.build(lib, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = lib.distributions.kl_divergence(p, q)
        except NotImplementedError:
            return "NotImplementedError"
    found = [result.detach().numpy()]
    if result.requires_grad and bool(lib.isfinite(result).all()):
        tensors = [*p_tensors, *q_tensors]
        grads = lib.autograd.grad(result.sum(), tensors, allow_unused=True)
        found += [np.zeros(()) if g is None else g.numpy() for g in grads]
    return found


@pytest.mark.parametrize(
    ("case", "other"),
    [*itertools.product(PAIRED, PAIRED), *itertools.product(ROWS, ROWS)],
    ids=lambda c: c.name,
)
def test_pairs(case, other, torch):
    ours, theirs = (divergences(lib, case, other) for lib in (modtree, torch))
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: (d.Gamma(2.0, 1.5), d.Gamma(3.0, 1.0)),
        lambda d: (d.Beta(2.0, 1.5), d.Beta(0.8, 1.0)),
        lambda d: (d.Gumbel(0.5, 1.5), d.Normal(0.8, 1.0)),
        lambda d: (d.Normal(0.5, 1.5), d.Laplace(0.8, 1.0)),
        lambda d: (d.Uniform(0.2, 0.9), d.Beta(2.0, 3.0)),
        lambda d: (d.Poisson(2.0), d.Poisson(3.5)),
    ],
)
def test_divergences_are_means_over_samples(make):
    modtree.manual_seed(3)
    p, q = make(modtree.distributions)
    x = p.sample((100_000,))
    terms = (p.log_prob(x) - q.log_prob(x)).double()
    error = float(terms.std()) / len(terms) ** 0.5
    want = float(modtree.distributions.kl_divergence(p, q))
    assert abs(float(terms.mean()) - want) < 5 * error


def test_the_bregman_divergence_of_an_exponential_family(lib):
    """A family of the user's own needs no formula."""
    d = lib.distributions

    class Mine(d.ExponentialFamily):
        arg_constraints = {}

        def __init__(self, rate):
            self.rate = rate
            super().__init__(rate.shape, validate_args=False)

        @property
        def _natural_params(self):
            return (-self.rate,)

        def _log_normalizer(self, x):
            return -lib.log(-x)

        _mean_carrier_measure = 0

    p, q = (Mine(lib.tensor([r], dtype=lib.float64)) for r in (0.5, 2.0))
    known = d.kl_divergence(d.Exponential(p.rate), d.Exponential(q.rate))
    np.testing.assert_allclose(d.kl_divergence(p, q).detach(), known, rtol=1e-12)
    np.testing.assert_allclose(p.entropy().detach(), d.Exponential(p.rate).entropy(), rtol=1e-12)
    with pytest.raises(NotImplementedError):
        d.Poisson(1.0).entropy()


def test_registered_formulas(lib):
    d = lib.distributions

    class A(d.Normal):
        pass

    class B(A):
        pass

    @d.register_kl(A, d.Normal)
    def first(p, q):
        return "A, Normal"

    assert d.kl_divergence(B(0.0, 1.0), B(0.0, 1.0)) == "A, Normal"

    @d.register_kl(d.Normal, A)
    def second(p, q):
        return "Normal, A"

    with pytest.warns(RuntimeWarning, match="Ambiguous kl_divergence"):
        assert d.kl_divergence(B(0.0, 1.0), B(0.0, 1.0)) == "A, Normal"

    @d.register_kl(A, A)
    def both(p, q):
        return "A, A"

    assert d.kl_divergence(B(0.0, 1.0), A(0.0, 1.0)) == "A, A"


def test_formulas_are_for_classes(lib):
    normal = lib.distributions.Normal
    for pair in ((normal(0.0, 1.0), normal), (normal, normal(0.0, 1.0))):
        with pytest.raises(TypeError):
            lib.distributions.register_kl(*pair)
    with pytest.raises(TypeError, match="Expected type_p to be a Distribution subclass but got"):
        modtree.distributions.register_kl(int, modtree.distributions.Normal)


def test_no_formula(lib):
    d = lib.distributions
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\) is implemented for p type"):
        d.kl_divergence(d.Cauchy(0.0, 1.0), d.Normal(0.0, 1.0))


def test_binomials_of_different_counts(lib):
    d = lib.distributions
    more, fewer = (d.Binomial(n, lib.tensor([0.3, 0.6])) for n in (7, 4))
    assert d.kl_divergence(more, fewer).tolist() == [float("inf")] * 2
    with pytest.raises(NotImplementedError):
        d.kl_divergence(fewer, more)


def test_bernoullis_that_are_certain(lib):
    d = lib.distributions
    p = d.Bernoulli(lib.tensor([0.0, 1.0, 0.0, 1.0, 0.5, 0.5]))
    q = d.Bernoulli(lib.tensor([0.0, 1.0, 0.5, 0.5, 0.0, 1.0]))
    result = d.kl_divergence(p, q).numpy()
    np.testing.assert_allclose(result, [0, 0, np.log(2), np.log(2), np.inf, np.inf], atol=1e-5)
