# SPDX-License-Identifier: BSD-3-Clause
"""Transforms: values, inverses, changes of volume, caches, shapes, equality."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import modtree

ROW = [0.3, -1.2, 2.0]
MATRIX = [[0.3, -1.2, 2.0], [1.1, 0.2, -0.4], [0.5, 0.9, -0.1]]

#: Name -> (makes it from lib.distributions and lib, an argument).
TRANSFORMS = {
    "Tanh": (lambda d, lib: d.TanhTransform(), [-2.0, 0.3, 1.0]),
    "Tanh.inv": (lambda d, lib: d.TanhTransform().inv, [-0.9, 0.3, 0.0]),
    "Affine": (lambda d, lib: d.AffineTransform(1.0, -2.5), ROW),
    "Affine-tensors": (
        lambda d, lib: d.AffineTransform(lib.tensor(ROW), lib.tensor([2.0, -1.0, 0.1])),
        MATRIX,
    ),
    "Affine.inv": (lambda d, lib: d.AffineTransform(lib.tensor(ROW), 2.0).inv, MATRIX),
}


def results(lib, make, argument):
    """Value, inverse of it, change of volume, and gradients of both in the argument."""
    transform = make(lib.distributions, lib)
    x = lib.tensor(np.array(argument, np.float64)).requires_grad_()
    y = transform(x)
    change = transform.log_abs_det_jacobian(x, y)
    found = {"y": y, "back": transform.inv(y), "change": change}
    found["slope"] = lib.autograd.grad(y.sin().sum(), x, retain_graph=True)[0]
    if change.requires_grad:
        found["change_slope"] = lib.autograd.grad(change.sin().sum(), x)[0]
    return found


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values(name, torch):
    ours, theirs = (results(lib, *TRANSFORMS[name]) for lib in (modtree, torch))
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert tuple(ours[key].shape) == tuple(value.shape), key
        np.testing.assert_allclose(
            ours[key].detach().numpy(), value.detach().numpy(), rtol=1e-6, atol=1e-8, err_msg=key
        )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_facts(name, torch):
    make, argument = TRANSFORMS[name]

    def facts(transform):
        return (
            transform.bijective,
            repr(transform),
            repr(transform.domain),
            repr(transform.codomain),
            tuple(transform.forward_shape(np.shape(argument))),
        )

    ours, theirs = (make(lib.distributions, lib) for lib in (modtree, torch))
    assert facts(ours) == facts(theirs)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_change_of_volume_is_that_of_the_jacobian(name):
    make, argument = TRANSFORMS[name]
    transform = make(modtree.distributions, modtree)
    x = modtree.tensor(np.array(argument, np.float64))
    jacobian = modtree.autograd.functional.jacobian(lambda v: transform(v).reshape(-1), x)
    total = np.linalg.slogdet(jacobian.reshape(-1, x.numel()).numpy())[1]
    change = transform.log_abs_det_jacobian(x, transform(x))
    np.testing.assert_allclose(float(change.sum()), total, atol=1e-8)


def test_cache(lib):
    d = lib.distributions
    calls = []

    class Counting(d.TanhTransform):
        def _call(self, x):
            calls.append("forward")
            return super()._call(x)

        def _inverse(self, y):
            calls.append("inverse")
            return super()._inverse(y)

    plain, cached = Counting(), Counting(cache_size=1)
    x = lib.ones(2)
    assert plain.inv(plain(x)) is not x
    calls.clear()
    y = cached(x)
    assert cached.inv(y) is x and cached(x) is y and cached.inv.inv is cached
    assert calls == ["forward"]
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        d.TanhTransform(cache_size=2)


def test_equality(lib):
    d = lib.distributions
    assert d.TanhTransform() == d.TanhTransform()
    assert d.TanhTransform() != d.AffineTransform(0.0, 1.0)
    assert d.TanhTransform().inv == d.TanhTransform().inv
    assert d.AffineTransform(0.0, 1.0) == d.AffineTransform(0.0, 1.0)
    assert d.AffineTransform(0.0, 1.0) != d.AffineTransform(0.0, 2.0)
    assert d.AffineTransform(lib.zeros(2), 1.0) == d.AffineTransform(lib.zeros(2), 1.0)
    assert d.Transform() != d.Transform()


def test_a_transform_of_the_user(lib):
    """A squashed normal distribution, as programs write their own."""
    d = lib.distributions

    class Double(d.Transform):
        domain = codomain = d.constraints.real
        bijective = True

        def _call(self, x):
            return 2 * x

        def _inverse(self, y):
            return y / 2

        def log_abs_det_jacobian(self, x, y):
            return lib.full_like(x, 2.0).log()

    twice = d.TransformedDistribution(d.Normal(lib.zeros(3), 1.0), [Double(cache_size=1)])
    value = lib.tensor(ROW)
    want = d.Normal(0.0, 2.0).log_prob(value)
    np.testing.assert_allclose(twice.log_prob(value).numpy(), want.numpy(), rtol=1e-6)


def test_transforms_of_vectors_are_refused():
    d = modtree.distributions

    class OfVectors(d.Transform):
        domain = codomain = d.constraints.real_vector

    with pytest.raises(NotImplementedError, match="transforms of vectors"):
        d.TransformedDistribution(d.Normal(modtree.zeros(3), 1.0), OfVectors())


@pytest.mark.parametrize("name", TRANSFORMS)
def test_copy_and_pickle(name):
    make, argument = TRANSFORMS[name]
    transform = make(modtree.distributions, modtree)
    transform.inv(transform(modtree.tensor(argument)))
    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert other(modtree.tensor(argument)).equal(transform(modtree.tensor(argument)))
        assert other == transform
    assert type(transform).__module__ == "modtree.distributions.transforms"
