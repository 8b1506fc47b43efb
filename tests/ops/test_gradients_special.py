# SPDX-License-Identifier: BSD-3-Clause
"""Special functions, statistics, running extremes, differences and distances: values and gradients,
against torch's.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.gradients import (
    Case,
    between,
    check,
    of,
    suite,
)

import modtree as mt

torch = pytest.importorskip("torch")

CUBE = [((2, 3, 4),)]
ROWS = [((5,),), ((2, 5),), ((3, 2, 4),)]
WITH_NAN = of(1.0, math.nan, 2.5, -1.0, 0.5, 3.0)

SPECIAL = [
    # torch's own values of some derivatives are less exact.
    Case("digamma", lambda lib, x: lib.digamma(x), sample=between(0.3, 4), tolerance=1e-8),
    Case("lgamma", lambda lib, x: lib.lgamma(x), sample=between(0.3, 4), tolerance=1e-8),
    Case("lgamma below 0", lambda lib, x: x.lgamma(), [((3,),)], of(-0.3, -1.7, -2.2), twice=False),
    Case(
        "digamma below 0",
        lambda lib, x: x.digamma(),
        [((3,),)],
        of(-0.3, -1.7, -2.2),
        tolerance=1e-8,
    ),
    Case("logit", lambda lib, x: lib.logit(x), sample=between(0.05, 0.95)),
    Case("logit with eps", lambda lib, x: lib.logit(x, eps=0.2), sample=between(-0.2, 1.2)),
    Case("logit outside", lambda lib, x: lib.logit(x), sample=of(-0.5, 0.5, 1.5), twice=False),
    Case("positive", lambda lib, x: lib.positive(x) * 2),
]

STATISTICS = [
    Case("std_mean", lambda lib, x: lib.std_mean(x, 1), CUBE),
    Case("std_mean of all", lambda lib, x: lib.std_mean(x), CUBE),
    Case(
        "logcumsumexp", lambda lib, x: lib.logcumsumexp(x, -1), [*ROWS, ((),), ((0,),)], twice=False
    ),
    Case("logcumsumexp over dim 0", lambda lib, x: x.logcumsumexp(0), ROWS),
    *[
        Case(
            f"cdist of order {p}",
            lambda lib, x, y, p=p: lib.cdist(x, y, p),
            [((3, 4), (2, 4)), ((2, 3, 4), (2, 5, 4))],
            twice=False,  # torch has no second derivative
            mixed=False,
            single=False,
        )
        for p in (1.0, 2.0, 3.0)
    ],
    Case(
        "polar",
        lambda lib, x, y: lib.polar(x, y),
        [((3,), (3,)), ((2, 3), (3,))],
        (between(0.5, 2), between(-2, 2)),
        mixed=False,
    ),
]

test_gradients = suite([*SPECIAL, *STATISTICS])


def test_values_where_functions_have_poles():
    x = [0.0, -0.0, -1.0, -2.0, 1.0, math.inf, math.nan]
    for name in ("digamma", "sgn"):
        ours = getattr(mt, name)(mt.tensor(x)).numpy()
        np.testing.assert_allclose(ours, getattr(torch, name)(torch.tensor(x)).numpy(), atol=1e-6)


def test_derivatives_of_digamma_are_exact():
    def derivative(n, values, dtype):
        x = mt.tensor(values, dtype=dtype, requires_grad=True)
        y = x.digamma()
        for _ in range(n):
            (y,) = mt.autograd.grad(y.sum(), x, create_graph=True)
        return y.tolist()

    for dtype, bound in ((mt.float64, 1e-14), (mt.float32, 1e-6)):
        first = derivative(1, [1.0, 0.5], dtype)
        assert first == pytest.approx([math.pi**2 / 6, math.pi**2 / 2], rel=bound)
        assert derivative(2, [1.0], dtype) == pytest.approx([-2 * 1.2020569031595943], rel=bound)
        far = derivative(1, [-2000.5, math.inf], dtype)
        assert far == pytest.approx([math.pi**2 - 1 / 2001, 0.0], rel=bound, abs=1e-9)
        assert derivative(2, [-0.0, -3.0], dtype) == [-math.inf] * 2


def test_the_second_derivative_of_a_power_of_0_is_0():
    x = mt.tensor([0.5, 2.0], requires_grad=True)
    (slope,) = mt.autograd.grad((0.0**x).sum(), x, create_graph=True)
    slope.sum().backward()
    assert slope.tolist() == x.grad.tolist() == [0, 0]


def test_gradients_of_running_sums_of_exponentials_do_not_overflow():
    check(lambda lib, x: lib.logcumsumexp(x, 0), np.array([1000.0, -1000, 0, 1001]))
    check(lambda lib, x: lib.logit(x), np.array([0.0, -0.0, 1.0, 0.25]))


def test_cdist_has_second_derivatives():
    rng = np.random.default_rng(0)
    x, y = (
        mt.tensor(rng.normal(size=(3, 4)), requires_grad=True),
        mt.tensor(rng.normal(size=(2, 4))),
    )
    (first,) = mt.autograd.grad(mt.cdist(x, y).sum(), x, create_graph=True)
    first.square().sum().backward()
    u = torch.tensor(x.detach().numpy(), requires_grad=True)
    distances = (u[:, None] - torch.tensor(y.numpy())).norm(dim=-1)
    (slope,) = torch.autograd.grad(distances.sum(), u, create_graph=True)
    slope.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), u.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "expression",
    [],
)
def test_counting_and_looking_up(expression):
    i = np.array([1, 1, 3, 0, 3, 3])
    x = np.random.default_rng(0).normal(size=8)
    results = [
        eval(expression, {"m": lib, "i": lib.from_numpy(i), "x": lib.from_numpy(x)})  # noqa: S307
        for lib in (mt, torch)
    ]
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in results)
    for mine, other in zip(ours, theirs, strict=True):
        assert str(mine.dtype)[8:] == str(other.dtype)[6:]
        np.testing.assert_allclose(mine.numpy(), other.numpy())


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.logit_(),
        lambda x: x.nan_to_num_(),
        lambda x: x.cumsum_(0),
        lambda x: x.cumprod_(0),
        lambda x: x.negative_().absolute_().multiply_(3).divide_(2).subtract_(1),
    ],
)
def test_methods_that_write_in_place(change):
    x = np.random.default_rng(0).uniform(0.1, 0.9, (3, 2))
    check(lambda lib, x: change(x * 1.0), x, tolerance=1e-8)
