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
    "Exp": (lambda d, lib: d.ExpTransform(), ROW),
    "Exp.inv": (lambda d, lib: d.ExpTransform().inv, [0.2, 1.0, 4.0]),
    "Power": (lambda d, lib: d.PowerTransform(lib.tensor(1.7)), [0.2, 1.0, 4.0]),
    "Power-negative": (lambda d, lib: d.PowerTransform(lib.tensor(-2.0)), [0.2, 1.0, 4.0]),
    "Sigmoid": (lambda d, lib: d.SigmoidTransform(), [-40.0, 0.3, 800.0]),
    "Tanh": (lambda d, lib: d.TanhTransform(), [-2.0, 0.3, 1.0]),
    "Softplus": (lambda d, lib: d.SoftplusTransform(), ROW),
    "Abs": (lambda d, lib: d.AbsTransform(), ROW),
    "Softmax": (lambda d, lib: d.SoftmaxTransform(), MATRIX),
    "StickBreaking": (lambda d, lib: d.StickBreakingTransform(), MATRIX),
    "LowerCholesky": (lambda d, lib: d.LowerCholeskyTransform(), MATRIX),
    "PositiveDefinite": (lambda d, lib: d.PositiveDefiniteTransform(), MATRIX),
    "CorrCholesky": (lambda d, lib: d.CorrCholeskyTransform(), MATRIX),
    "Affine": (lambda d, lib: d.AffineTransform(1.0, -2.5), ROW),
    "Affine-tensors": (
        lambda d, lib: d.AffineTransform(lib.tensor(ROW), lib.tensor([2.0, -1.0, 0.1])),
        MATRIX,
    ),
    "Affine-vector": (
        lambda d, lib: d.AffineTransform(1.0, lib.tensor([2.0, 0.5, -3.0]), event_dim=1),
        MATRIX,
    ),
    "Compose": (
        lambda d, lib: d.ComposeTransform(
            [d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()]
        ),
        MATRIX,
    ),
    "Compose.inv": (
        lambda d, lib: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)]).inv,
        [1.2, 3.0],
    ),
    "Compose-none": (lambda d, lib: d.ComposeTransform([]), ROW),
    "Independent": (lambda d, lib: d.IndependentTransform(d.ExpTransform(), 1), MATRIX),
    "Reshape": (lambda d, lib: d.ReshapeTransform((3, 3), (9,)), MATRIX),
    "Cat": (
        lambda d, lib: d.CatTransform([d.ExpTransform(), d.SigmoidTransform()], 0, [1, 2]),
        MATRIX,
    ),
    "Cat-vectors": (
        lambda d, lib: d.CatTransform(
            [d.ExpTransform(), d.ComposeTransform([d.AffineTransform(0.0, 2.0)])], -1, [1, 2]
        ),
        MATRIX,
    ),
    "Stack": (
        lambda d, lib: d.StackTransform(
            [d.ExpTransform(), d.SigmoidTransform(), d.AffineTransform(0.0, 3.0)], 1
        ),
        MATRIX,
    ),
    "Distribution": (
        lambda d, lib: d.CumulativeDistributionTransform(d.Normal(0.5, 2.0)),
        ROW,
    ),
}


def results(lib, make, argument):
    """Value, inverse of it, change of volume, and gradients of both in the argument."""
    transform = make(lib.distributions, lib)
    x = lib.tensor(np.array(argument, np.float64)).requires_grad_()
    y = transform(x)
    found = {"y": y, "back": transform.inv(y), "slope": lib.autograd.grad(y.sin().sum(), x)[0]}
    try:
        change = transform.log_abs_det_jacobian(x, transform(x))
    except NotImplementedError:
        return found
    found["change"] = change
    if change.requires_grad:
        slope = lib.autograd.grad(change.sin().sum(), x, allow_unused=True)[0]
        found["change_slope"] = lib.zeros_like(x) if slope is None else slope
    return found


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values(name, torch):
    ours, theirs = (results(lib, *TRANSFORMS[name]) for lib in (modtree, torch))
    # torch's identity answers 0 where a constant has no gradient.
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert tuple(ours[key].shape) == tuple(value.shape), key
        np.testing.assert_allclose(
            ours[key].detach().numpy(), value.detach().numpy(), rtol=1e-6, atol=1e-8, err_msg=key
        )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_facts(name, torch):
    make, argument = TRANSFORMS[name]
    ours, theirs = (make(lib.distributions, lib) for lib in (modtree, torch))
    shape = np.shape(argument)

    def facts(transform):
        found = [transform.bijective, repr(transform)]
        for get in (
            lambda: transform.domain.event_dim,
            lambda: transform.codomain.event_dim,
            lambda: transform.event_dim,
            lambda: repr(transform.domain),
            lambda: repr(transform.codomain),
            lambda: tuple(transform.forward_shape(shape)),
            lambda: tuple(transform.inverse_shape(transform.forward_shape(shape))),
            lambda: np.asarray(transform.sign).tolist(),
        ):
            try:
                found.append(get())
            except (NotImplementedError, ValueError, AttributeError) as error:
                found.append(type(error).__name__)
        return found

    assert facts(ours) == facts(theirs)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_change_of_volume_is_that_of_the_jacobian(name):
    make, argument = TRANSFORMS[name]
    transform = make(modtree.distributions, modtree)
    if not transform.bijective or name == "Sigmoid":  # whose ends are cut off
        return
    x = modtree.tensor(np.array(argument, np.float64))
    y = transform(x)
    # The free parts of a result: of a simplex all but the last, of a factor what is below 1.
    if "Stick" in name or name == "Compose":
        select = lambda y: y[..., :-1]  # noqa: E731
    elif name == "CorrCholesky":
        rows, columns = np.tril_indices(y.shape[-1], -1)
        select = lambda y: y[..., rows, columns]  # noqa: E731
    else:
        select = lambda y: y  # noqa: E731
    jacobian = modtree.autograd.functional.jacobian(
        lambda v: select(transform(v)).reshape(-1), x
    ).reshape(-1, x.numel())
    total = np.linalg.slogdet(jacobian.numpy())[1]
    np.testing.assert_allclose(float(transform.log_abs_det_jacobian(x, y).sum()), total, atol=1e-8)


def test_the_scale_of_an_affine_transform_is_broadcast():
    """One factor of an event of three numbers counts three times."""
    transform = modtree.distributions.AffineTransform(1.0, modtree.tensor([2.0]), event_dim=1)
    x = modtree.zeros(4, 3)
    change = transform.log_abs_det_jacobian(x, transform(x))
    np.testing.assert_allclose(change.numpy(), np.full(4, 3 * np.log(2)), rtol=1e-6)


def test_cache(lib):
    d = lib.distributions
    calls = []

    class Counting(d.ExpTransform):
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
    assert plain.with_cache(0) is plain
    assert d.AffineTransform(0.0, 1.0).with_cache(1)._cache_size == 1
    for bad in (lambda: d.ExpTransform(cache_size=2), lambda: d.ExpTransform().with_cache(-1)):
        with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
            bad()


def test_equality(lib):
    d = lib.distributions
    assert d.ExpTransform() == d.ExpTransform()
    assert d.ExpTransform() != d.SigmoidTransform()
    assert d.AffineTransform(0.0, 1.0) == d.AffineTransform(0.0, 1.0)
    assert d.AffineTransform(0.0, 1.0) != d.AffineTransform(0.0, 2.0)
    assert d.AffineTransform(lib.zeros(2), 1.0) == d.AffineTransform(lib.zeros(2), 1.0)
    assert d.PowerTransform(lib.tensor(2.0)) == d.PowerTransform(lib.tensor(2.0))
    assert d.ComposeTransform([d.ExpTransform()]) == d.ComposeTransform([d.ExpTransform()])
    assert d.ExpTransform().inv == d.ExpTransform().inv
    assert d.IndependentTransform(d.ExpTransform(), 1) != d.IndependentTransform(
        d.ExpTransform(), 1
    )


def test_errors(lib):
    d = lib.distributions
    for bad, message in (
        (lambda: d.ReshapeTransform((2,), (3,)), "in_shape, out_shape have different numbers"),
        (lambda: d.ReshapeTransform((2,), (1, 2)).forward_shape((3,)), "Shape mismatch"),
        (lambda: d.ReshapeTransform((2,), (1, 2)).forward_shape(()), "Too few dimensions"),
        (lambda: d.StickBreakingTransform().forward_shape(()), "Too few dimensions"),
        (lambda: d.SoftmaxTransform().inverse_shape(()), "Too few dimensions"),
        (lambda: d.CorrCholeskyTransform().forward_shape((4,)), "not a flattened lower-diagonal"),
        (lambda: d.IndependentTransform(d.ExpTransform(), 1)(lib.tensor(1.0)), "Too few dimen"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()
    with pytest.raises(NotImplementedError):
        d.AbsTransform().log_abs_det_jacobian(lib.ones(1), lib.ones(1))
    with pytest.raises(AssertionError):
        d.CatTransform([d.ExpTransform()], 0, [2])(lib.ones(3))
    with pytest.raises(AssertionError):
        d.StackTransform([3])


@pytest.mark.parametrize("name", TRANSFORMS)
def test_copy_and_pickle(name):
    make, argument = TRANSFORMS[name]
    transform = make(modtree.distributions, modtree)
    transform.inv(transform(modtree.tensor(argument)))
    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert other(modtree.tensor(argument)).equal(transform(modtree.tensor(argument)))
    home = type(transform).__module__
    assert home == "modtree.distributions.transforms"


CONSTRAINTS = {
    "real": lambda c, lib: c.real,
    "real_vector": lambda c, lib: c.real_vector,
    "positive": lambda c, lib: c.positive,
    "nonnegative": lambda c, lib: c.nonnegative,
    "greater_than": lambda c, lib: c.greater_than(lib.tensor([-1.0, 2.0, 0.0])),
    "greater_than_eq": lambda c, lib: c.greater_than_eq(-3),
    "less_than": lambda c, lib: c.less_than(2.5),
    "interval": lambda c, lib: c.interval(-1.0, lib.tensor(4.0)),
    "half_open_interval": lambda c, lib: c.half_open_interval(0, 1),
    "unit_interval": lambda c, lib: c.unit_interval,
    "simplex": lambda c, lib: c.simplex,
    "lower_cholesky": lambda c, lib: c.lower_cholesky,
    "positive_definite": lambda c, lib: c.positive_definite,
    "corr_cholesky": lambda c, lib: c.corr_cholesky,
    "cat": lambda c, lib: c.cat([c.positive, c.real], -1, [1, 2]),
    "stack": lambda c, lib: c.stack([c.positive, c.real, c.unit_interval], -1),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries(lib, name, registry):
    d = lib.distributions
    constraint = CONSTRAINTS[name](d.constraints, lib)
    if registry == "biject_to" and name in ("lower_cholesky", "positive_definite"):
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            d.biject_to(constraint)
        return
    transform = getattr(d, registry)(constraint)
    x = lib.tensor(MATRIX)
    y = transform(x)
    assert bool(constraint.check(y).all())
    assert transform.bijective or registry == "transform_to"
    np.testing.assert_allclose(transform(transform.inv(y)).numpy(), y.numpy(), rtol=2e-4, atol=1e-5)


def test_registries_take_more(lib):
    d = lib.distributions

    class Even(d.constraints.Constraint):
        pass

    with pytest.raises(NotImplementedError, match="Cannot transform Even constraints"):
        d.biject_to(Even())

    @d.biject_to.register(Even)
    def make(constraint):
        return d.ExpTransform()

    assert isinstance(d.biject_to(Even()), d.ExpTransform)
    with pytest.raises(TypeError, match="Expected constraint to be either a Constraint subclass"):
        d.biject_to.register(3, make)
