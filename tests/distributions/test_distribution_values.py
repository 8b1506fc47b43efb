# SPDX-License-Identifier: BSD-3-Clause
"""Densities, moments, entropies and their gradients of every distribution, against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.distribution_cases import CASES, Case

import modtree

torch = pytest.importorskip("torch")

BOTH = (modtree, torch)
ATTRIBUTES = ("mean", "mode", "variance", "stddev")
METHODS = ("entropy", "perplexity")

each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def outcome(function: Any) -> Any:
    """What a function returns, or the class of its error."""
    try:
        return function()
    except Exception as error:
        return type(error).__name__


def compare(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    if isinstance(theirs, str):
        assert ours == theirs
        return
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2]
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def value_and_gradients(lib: Any, case: Case, function: Any) -> Any:
    """The result of function(distribution), and gradients of its sum in all parameters."""
    distribution, tensors = case.build(lib, requires_grad=True)
    result = function(distribution)
    if not result.requires_grad:
        return [result]
    finite = lib.where(lib.isfinite(result), result, lib.zeros_like(result))
    grads = lib.autograd.grad(finite.sum(), tensors, allow_unused=True)
    pairs = zip(grads, tensors, strict=True)
    return [result, *(lib.zeros_like(t) if g is None else g for g, t in pairs)]


def check(case: Case, function: Any, tolerance: float = 1e-9) -> None:
    ours, theirs = (
        outcome(lambda lib=lib: value_and_gradients(lib, case, function)) for lib in BOTH
    )
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return
    for a, b in zip(ours, theirs, strict=True):
        compare(a, b, tolerance)


@each_case
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes(case, name):
    check(case, lambda d: getattr(d, name))


@each_case
@pytest.mark.parametrize("name", METHODS)
def test_methods(case, name):
    check(case, lambda d: getattr(d, name)())


@each_case
def test_log_prob(case):
    values = np.array(case.values, np.float64)

    def density(distribution):
        lib = torch if type(distribution).__module__.startswith("torch") else modtree
        return distribution.log_prob(lib.tensor(values))

    check(case, density)


@each_case
def test_gradient_of_log_prob_in_the_value(case):
    got = []
    for lib in BOTH:
        distribution, _ = case.build(lib)
        value = lib.tensor(np.array(case.values, np.float64)).requires_grad_()
        result = distribution.log_prob(value)
        if result.requires_grad:
            result.sum().backward()
            got.append(value.grad)
        else:
            got.append("none")
    compare(*got)


@each_case
@pytest.mark.parametrize("name", ["cdf", "icdf"])
def test_cdf_and_icdf(case, name):
    values = np.array(case.values, np.float64)
    chances = np.linspace(0.05, 0.95, values.size).reshape(values.shape)

    def probability(distribution):
        lib = torch if type(distribution).__module__.startswith("torch") else modtree
        return getattr(distribution, name)(lib.tensor(values if name == "cdf" else chances))

    ours, theirs = (
        outcome(lambda lib=lib: value_and_gradients(lib, case, probability)) for lib in BOTH
    )
    if case.name.startswith("Transformed"):
        assert ours == "NotImplementedError"
        return
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return
    for a, b in zip(ours, theirs, strict=True):
        compare(a, b)


@each_case
def test_shapes_and_facts(case):
    ours, theirs = (case.build(lib)[0] for lib in BOTH)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert repr(ours).replace("modtree.", "torch.") == repr(theirs)
    # Of constraints whose bounds are tensors the kind is compared.
    assert repr(ours.support).split("(")[0] == repr(theirs.support).split("(")[0]
    assert ours.support.event_dim == theirs.support.event_dim
    assert ours.support.is_discrete == theirs.support.is_discrete
    assert sorted(ours.arg_constraints) == sorted(theirs.arg_constraints)


@each_case
def test_samples_have_their_shape_and_lie_in_the_support(case):
    for shape in ((), (4,), (2, 3)):
        ours, theirs = (case.build(lib)[0].sample(shape) for lib in BOTH)
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2]
        assert not ours.requires_grad
        assert bool(case.build(modtree)[0].support.check(ours).all())


@each_case
def test_expanded(case):
    values = np.array(case.values, np.float64)
    results = []
    for lib in BOTH:
        distribution, _ = case.build(lib)
        batch = (2, 2, *tuple(distribution.batch_shape)[-1:])
        larger = distribution.expand(batch)
        assert type(larger) is type(distribution)
        assert tuple(larger.batch_shape) == batch
        assert tuple(larger.sample((5,)).shape) == (5, *batch, *tuple(distribution.event_shape))
        mean = outcome(lambda larger=larger: larger.mean)
        results.append((larger.log_prob(lib.tensor(values)), mean, repr(larger)))
    compare(results[0][0], results[1][0])
    compare(results[0][1], results[1][1])
    assert results[0][2].replace("modtree.", "torch.") == results[1][2]


@each_case
def test_float32(case):
    results = []
    for lib in BOTH:
        tensors = [t.float() for t in case.tensors(lib)]
        distribution = case.make(lib.distributions, *tensors)
        values = lib.tensor(np.array(case.values, np.float32))
        results.append((distribution.log_prob(values), distribution.sample((2,))))
    compare(results[0][0], results[1][0], 2e-5)
    kinds = [str(sample.dtype).partition(".")[2] for _, sample in results]
    assert kinds[0] == kinds[1]
