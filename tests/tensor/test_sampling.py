# SPDX-License-Identifier: BSD-3-Clause
"""Random tensors: shapes, dtypes, errors as torch's; means and spreads of many draws."""

from __future__ import annotations

import copy
import importlib
import math
import pickle

import pytest
from helpers.implementations import needs_torch

import modtree as mt

KINDS = ["modtree", pytest.param("torch", marks=needs_torch)]
MANY = 20_000


@pytest.fixture(params=KINDS)
def lib(request):
    lib = importlib.import_module(request.param)
    lib.manual_seed(3)
    return lib


def close(value, expected, error):
    """Within 5 standard errors of what is expected."""
    return abs(float(value) - expected) < 5 * error


def test_a_generator_that_has_drawn_nothing_is_copied_with_its_seed():
    generator = mt.Generator()
    others = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    drawn = mt.rand(3, generator=generator).tolist()
    assert [mt.rand(3, generator=other).tolist() for other in others] == [drawn, drawn]
    with pytest.raises(AttributeError, match="no attribute 'draws'"):
        generator.draws  # noqa: B018


def test_normal_of_numbers(lib):
    x = lib.normal(2.0, 3.0, size=(MANY,))
    assert close(x.mean(), 2.0, 3 / math.sqrt(MANY)) and close(x.std(), 3.0, 3 / math.sqrt(MANY))
    assert lib.normal(0.0, 1.0, (2, 3), dtype=lib.float64, requires_grad=True).requires_grad
    assert lib.normal(0.0, 1.0, (2,), dtype=lib.float64).dtype == lib.float64


def test_normal_of_tensors(lib):
    mean = lib.tensor([0.0, 100.0, -5.0])
    x = lib.normal(mean, lib.tensor([0.0, 0.0, 1e-6]))
    assert x[:2].tolist() == [0.0, 100.0] and close(x[2], -5.0, 1e-5)
    assert tuple(lib.normal(lib.zeros(3, 1), lib.ones(4)).shape) == (3, 4)
    assert tuple(lib.normal(mean=0.5, std=lib.arange(1.0, 6.0)).shape) == (5,)
    assert tuple(lib.normal(mean=mean).shape) == (3,)
    out = lib.empty(3)
    assert lib.normal(mean, 1.0, out=out) is out
    with pytest.raises(RuntimeError, match="std"):
        lib.normal(mean, -1.0)
    with pytest.raises(RuntimeError, match="std"):
        lib.normal(mean, lib.tensor([1.0, -1.0, 1.0]))


def test_generator_repeats(lib):
    def draws():
        g = lib.Generator().manual_seed(7)
        p = lib.full((5,), 0.5)
        return [
            lib.normal(0.0, 1.0, (3,), generator=g).tolist(),
            lib.multinomial(p, 3, generator=g).tolist(),
            lib.bernoulli(p, generator=g).tolist(),
            lib.poisson(p, generator=g).tolist(),
        ]

    assert draws() == draws()


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_follows_the_weights(lib, replacement):
    weights = lib.tensor([1.0, 0.0, 3.0, 6.0]).expand(MANY, 4)
    picks = lib.multinomial(weights, 2, replacement)
    assert tuple(picks.shape) == (MANY, 2) and picks.dtype == lib.int64
    first = lib.nn.functional.one_hot(picks[:, 0], 4).float().mean(0)
    for share, expected in zip(first.tolist(), (0.1, 0.0, 0.3, 0.6), strict=True):
        assert close(share, expected, 0.5 / math.sqrt(MANY)) if expected else share == 0
    same = (picks[:, 0] == picks[:, 1]).float().mean()
    assert close(same, 0.46, 0.5 / math.sqrt(MANY)) if replacement else same == 0
    second = (picks[:, 1] == 3).float().mean()  # 0.1 * 6/9 + 0.3 * 6/7 without replacement
    assert close(second, 0.6 if replacement else 0.1 * 6 / 9 + 0.3 * 6 / 7, 0.5 / math.sqrt(MANY))


def test_multinomial_of_a_vector_and_errors(lib):
    p = lib.tensor([0.2, 0.8, 0.0])
    assert sorted(p.multinomial(2).tolist()) == [0, 1]
    assert lib.multinomial(p, 5, True).max() <= 1
    for weights, count, text in [
        (p, 4, "without replacement"),
        (p, 0, "n_sample <= 0"),
        (-p, 1, "`inf`, `nan` or element < 0"),
        (p * float("nan"), 1, "`inf`, `nan` or element < 0"),
        (p * 0, 1, "sum of probabilities <= 0"),
        (p.reshape(1, 1, 3), 1, "prob_dist must be 1 or 2 dim"),
        (p.long(), 1, "only supports floating-point dtypes"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            lib.multinomial(weights, count)


def test_bernoulli(lib):
    p = lib.tensor([0.0, 1.0, 0.25]).expand(MANY, 3)
    x = lib.bernoulli(p)
    means = x.mean(0)
    assert x.dtype == p.dtype and means[:2].tolist() == [0.0, 1.0]
    assert close(means[2], 0.25, 0.5 / math.sqrt(MANY))
    assert set(lib.zeros(50).bernoulli(0.5).tolist()) == {0.0, 1.0}
    with pytest.raises(RuntimeError, match="p_in"):
        lib.bernoulli(p * 2)


def test_counts(lib):
    x = lib.poisson(lib.full((MANY,), 4.0))
    assert close(x.mean(), 4.0, 2 / math.sqrt(MANY)) and (x == x.round()).all()


def test_typed_constructors(lib):
    assert lib.FloatTensor([1, 2]).dtype == lib.float32
    assert lib.LongTensor([[1, 2]]).tolist() == [[1, 2]]
    assert lib.LongTensor([[1, 2]]).dtype == lib.int64
    assert lib.BoolTensor([0, 1]).tolist() == [False, True]
    assert tuple(lib.DoubleTensor(2, 3).shape) == (2, 3)
    assert tuple(lib.ByteTensor().shape) == (0,)
    x = lib.ones(2)
    assert isinstance(x, lib.FloatTensor) and not isinstance(x, lib.LongTensor)
    assert x.type(lib.LongTensor).dtype == lib.int64
    for made, shape in [(x.new(2, 3), (2, 3)), (x.new([1, 2, 3]), (3,)), (x.new(), (0,))]:
        assert (tuple(made.shape), made.dtype) == (shape, x.dtype)
    assert tuple(x.double().new(x.shape).shape) == (2,)
    assert x.double().new([1]).dtype == lib.float64


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_default_tensor_type(lib):
    try:
        lib.set_default_tensor_type(lib.DoubleTensor)
        assert lib.zeros(1).dtype == lib.float64
    finally:
        lib.set_default_tensor_type(f"{lib.__name__}.FloatTensor")
    assert lib.zeros(1).dtype == lib.float32
