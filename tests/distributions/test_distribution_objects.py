# SPDX-License-Identifier: BSD-3-Clause
"""Distributions as objects: checks of parameters and values, expansion, errors, sampling."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from helpers.distribution_cases import CASES

import modtree

each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@pytest.fixture
def d(lib):
    return lib.distributions


@pytest.mark.parametrize(
    "make",
    [
        lambda d, lib: d.Normal(0.0, -1.0),
        lambda d, lib: d.Normal(float("nan"), 1.0),
        lambda d, lib: d.Bernoulli(1.5),
        lambda d, lib: d.Categorical(lib.tensor([0.5, -0.5, 1.0])),
        lambda d, lib: d.Uniform(1.0, 0.0),
    ],
)
def test_invalid_parameters(d, lib, make):
    with pytest.raises(ValueError, match="Expected parameter .* but found invalid values"):
        make(d, lib)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda d, lib: d.Normal("0", 1.0), ValueError),
        (lambda d, lib: d.Bernoulli(), ValueError),
        (lambda d, lib: d.Bernoulli(probs=0.5, logits=0.0), ValueError),
        (lambda d, lib: d.Categorical(lib.ones(2), lib.ones(2)), ValueError),
        (lambda d, lib: d.Categorical(lib.tensor(1.0)), ValueError),
        (lambda d, lib: d.Independent(d.Normal(0.0, 1.0), 1), ValueError),
        (lambda d, lib: d.TransformedDistribution(d.Normal(0.0, 1.0), 3), ValueError),
        (lambda d, lib: d.TransformedDistribution(d.Normal(0.0, 1.0), [3]), ValueError),
        (lambda d, lib: d.Distribution.set_default_validate_args(3), ValueError),
    ],
)
def test_wrong_arguments(d, lib, make, error):
    with pytest.raises(error):
        make(d, lib)


def test_invalid_values(d, lib):
    normal = d.Normal(lib.zeros(2), 1.0)
    with pytest.raises(ValueError, match="within the support"):
        d.Bernoulli(0.5).log_prob(lib.tensor(0.5))
    with pytest.raises(ValueError, match="within the support"):
        d.Uniform(0.0, 1.0).cdf(lib.tensor(-1.0))
    with pytest.raises(ValueError, match="must be a Tensor"):
        normal.log_prob(1.0)
    with pytest.raises(ValueError, match="Value is not broadcastable"):
        normal.log_prob(lib.zeros(3))
    with pytest.raises(ValueError, match="right-most size of value must match event_shape"):
        d.Independent(d.Normal(lib.zeros(3), 1.0), 1)._validate_sample(lib.zeros(2))


def test_checks_can_be_turned_off(d, lib):
    assert bool(lib.isnan(d.Normal(0.0, -1.0, validate_args=False).log_prob(lib.tensor(0.0))))
    before = d.Distribution._validate_args
    try:
        d.Distribution.set_default_validate_args(False)
        d.Normal(0.0, -1.0)
        assert float(d.Uniform(0.0, 1.0).log_prob(lib.tensor(2.0))) == -math.inf
        with pytest.raises(ValueError):
            d.Normal(0.0, -1.0, validate_args=True)
    finally:
        d.Distribution.set_default_validate_args(before)


def test_a_class_that_says_little(d, lib):
    class Silent(d.Distribution):
        pass

    silent = Silent(validate_args=False)
    for name in ("mean", "mode", "variance", "stddev"):
        with pytest.raises(NotImplementedError):
            getattr(silent, name)
    for call in (
        silent.sample,
        silent.rsample,
        silent.entropy,
        silent.perplexity,
        lambda: silent.log_prob(lib.tensor(1.0)),
        lambda: silent.cdf(lib.tensor(1.0)),
        lambda: silent.icdf(lib.tensor(1.0)),
        lambda: silent.expand((2,)),
    ):
        with pytest.raises(NotImplementedError):
            call()


def test_what_a_class_does_not_declare_is_not_checked():
    class Silent(modtree.distributions.Distribution):
        pass

    silent = Silent(validate_args=True)
    assert silent.arg_constraints == {} and silent.support is None
    silent._validate_sample(modtree.tensor(1.0))


def test_a_class_of_the_user_that_expands_what_it_adds(d, lib):
    class Shifted(d.Normal):
        def __init__(self, loc, scale, shift):
            self.shift = shift
            super().__init__(loc, scale)

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Shifted, _instance)
            new.shift = self.shift.expand(batch_shape)
            return super().expand(batch_shape, _instance=new)

    wide = Shifted(lib.zeros(3), 1.0, lib.ones(3)).expand((2, 3))
    assert tuple(wide.shift.shape) == tuple(wide.loc.shape) == tuple(wide.batch_shape) == (2, 3)


def test_subclasses_with_another_constructor_cannot_be_expanded(d):
    class Mine(d.Normal):
        def __init__(self):
            super().__init__(0.0, 1.0)

    with pytest.raises(NotImplementedError, match="custom __init__ method must also define"):
        Mine().expand((2,))


def test_numbers_make_tensors_of_the_dtype_of_the_others(d, lib):
    normal = d.Normal(lib.zeros(2, dtype=lib.float64), 1)
    assert normal.scale.dtype is lib.float64 and tuple(normal.scale.shape) == (2,)
    assert d.Normal(0, 1).loc.dtype is lib.float32
    assert tuple(d.Normal(0, 1).batch_shape) == ()


def test_parameters_keep_their_gradients(d, lib):
    scale = lib.ones(2, requires_grad=True)
    wide = d.Normal(0.0, scale).expand((3, 2))
    wide.log_prob(lib.ones(3, 2)).sum().backward()
    assert scale.grad.tolist() == [0.0, 0.0]
    with lib.no_grad():
        bernoulli = d.Bernoulli(logits=scale)
        probs = bernoulli.probs
    assert probs.requires_grad  # what follows from a parameter is computed with its gradient


def test_probabilities_of_zero(d, lib):
    zero = lib.tensor([0.0, 0.5, 0.5])
    assert math.isclose(float(d.Categorical(zero).entropy()), math.log(2), rel_tol=1e-5)


@each_case
def test_copy_and_pickle(case):
    distribution, _ = case.build(modtree)
    values = modtree.tensor(np.array(case.values, np.float64))
    if "Transformed" in case.name:
        distribution.transforms[0].inv  # noqa: B018  # a weak reference to it is kept
    want = distribution.log_prob(values)
    for other in (copy.deepcopy(distribution), pickle.loads(pickle.dumps(distribution))):
        assert other.log_prob(values).equal(want)


@each_case
def test_moments_of_samples(case):
    """Mean and variance of samples are those that the distribution tells."""
    modtree.manual_seed(5)
    distribution, _ = case.build(modtree)
    try:
        mean, variance = distribution.mean.numpy(), distribution.variance.numpy()
    except NotImplementedError:
        return
    samples = distribution.sample((20_000,)).numpy()
    if np.isnan(mean).all():  # of categories
        return
    error = np.sqrt(variance / len(samples))
    assert (np.abs(samples.mean(0) - mean) <= 5 * error).all()
    np.testing.assert_allclose(samples.var(0) / variance, 1.0, atol=0.15)


@each_case
def test_samples_follow_the_cdf(case):
    """The share of samples below a median-like value is its probability."""
    modtree.manual_seed(6)
    distribution, _ = case.build(modtree)
    point = modtree.tensor(np.array(case.values, np.float64))
    try:
        want = distribution.cdf(point).numpy()
    except NotImplementedError:
        return
    samples = distribution.sample((20_000,)).numpy()
    below = (
        samples.reshape(20_000, *(1,) * (point.ndim - samples.ndim + 1), *samples.shape[1:])
        <= point.numpy()
    ).mean(0)
    np.testing.assert_allclose(below, np.broadcast_to(want, below.shape), atol=0.02)


def test_draws_follow_the_generator():
    def draw():
        return modtree.distributions.Normal(2.0, 3.0).sample((4,))

    modtree.manual_seed(1)
    first = draw()
    modtree.manual_seed(1)
    assert draw().equal(first)
    assert not draw().equal(first)


def test_public_names_are_torchs(torch):
    """Of all names the distributions of layers and examples, and what they need."""
    ours = {name for name in vars(modtree.distributions) if name[0] != "_"}
    modules = {"constraints", "distribution", "families", "kl", "transforms", "utils"}
    assert ours - modules - {"annotations"} <= set(torch.distributions.__all__)
