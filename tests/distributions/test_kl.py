# SPDX-License-Identifier: BSD-3-Clause
"""kl_divergence: every pair of classes that torch has a formula for."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from helpers.distribution_cases import CASES, Case, plain

import modtree

PAIRED = [
    Case("Normal", plain("Normal"), ([0.3, -1.0], [0.5, 1.5]), []),
    Case("Uniform", plain("Uniform"), ([0.2, 0.4], [0.5, 0.9]), []),
    Case("Uniform-wide", plain("Uniform"), ([-1.0, 0.3], [2.5, 3.9]), []),
    Case("Bernoulli", plain("Bernoulli"), ([0.2, 0.7],), []),
    Case(
        "Transformed",
        lambda d, loc: d.TransformedDistribution(d.Normal(loc, 1.0), [d.TanhTransform()]),
        ([0.5, 3.0],),
        [],
    ),
    Case(
        "Transformed-otherwise",
        lambda d, loc: d.TransformedDistribution(d.Normal(loc, 1.0), [d.AffineTransform(loc, 2.0)]),
        ([0.5, 3.0],),
        [],
    ),
]
ROWS = [
    Case("Categorical", plain("Categorical"), ([[0.2, 0.3, 0.5], [0.6, 0.0, 0.4]],), []),
    Case("Categorical-other", plain("Categorical"), ([[0.5, 0.1, 0.4], [0.0, 0.2, 0.8]],), []),
    *[c for c in CASES if c.name.startswith("Independent")],
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
        lambda d: (d.Normal(0.5, 1.5), d.Normal(0.8, 1.0)),
        lambda d: (d.Uniform(0.2, 0.9), d.Normal(0.8, 1.0)),
        lambda d: (d.Bernoulli(0.2), d.Bernoulli(0.35)),
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


def test_no_formula(lib):
    d = lib.distributions
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\) is implemented for p type"):
        d.kl_divergence(d.Categorical(lib.ones(2)), d.Normal(0.0, 1.0))


def test_bernoullis_that_are_certain(lib):
    d = lib.distributions
    p = d.Bernoulli(lib.tensor([0.0, 1.0, 0.0, 1.0, 0.5, 0.5]))
    q = d.Bernoulli(lib.tensor([0.0, 1.0, 0.5, 0.5, 0.0, 1.0]))
    result = d.kl_divergence(p, q).numpy()
    np.testing.assert_allclose(result, [0, 0, np.log(2), np.log(2), np.inf, np.inf], atol=1e-5)
