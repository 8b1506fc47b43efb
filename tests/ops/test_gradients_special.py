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
    distinct,
    of,
    suite,
    whole,
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
    Case("nansum", lambda lib, x: lib.nansum(x), ROWS, WITH_NAN),
    Case("nansum over a dim", lambda lib, x: lib.nansum(x, 0, keepdim=True), ROWS, WITH_NAN),
    Case("nanmean", lambda lib, x: lib.nanmean(x), ROWS, WITH_NAN),
    Case("nanmean over a dim", lambda lib, x: x.nanmean(-1), CUBE, WITH_NAN),
    Case("std_mean", lambda lib, x: lib.std_mean(x, 1), CUBE),
    Case("std_mean of all", lambda lib, x: lib.std_mean(x), CUBE),
    Case("aminmax", lambda lib, x: lib.aminmax(x), ROWS, whole(0, 3)),
    Case("aminmax along a dim", lambda lib, x: x.aminmax(dim=-1, keepdim=True), ROWS, whole(0, 3)),
    *[
        Case(
            f"{name}{label}",
            lambda lib, x, name=name, dim=dim: getattr(lib, name)(x, dim),
            [*ROWS, ((),)],
            sample,
        )
        for name in ("cummax", "cummin")
        for label, dim, sample in (("", -1, distinct), (" of equals", 0, whole(0, 3)))
    ],
    Case(
        "logcumsumexp", lambda lib, x: lib.logcumsumexp(x, -1), [*ROWS, ((),), ((0,),)], twice=False
    ),
    Case("logcumsumexp over dim 0", lambda lib, x: x.logcumsumexp(0), ROWS),
    Case("diff", lambda lib, x: lib.diff(x), ROWS),
    Case("diff of diff", lambda lib, x: lib.diff(x, 2, dim=0), ROWS),
    Case(
        "diff, extended",
        lambda lib, x, y: x.diff(prepend=y, append=y),
        [((2, 5), (2, 1))],
        mixed=False,
    ),
    Case("trapezoid", lambda lib, y: lib.trapezoid(y, dx=0.5), ROWS),
    Case(
        "trapezoid at points",
        lambda lib, y, x: lib.trapezoid(y, x),
        [((5,), (5,)), ((2, 5), (5,))],
        mixed=False,
    ),
    Case("trapezoid along dim 0", lambda lib, y: lib.trapz(y, dim=0), ROWS),
    Case("cumulative_trapezoid", lambda lib, y: lib.cumulative_trapezoid(y), ROWS),
    *[
        Case(
            f"dist of order {p}",
            lambda lib, x, y, p=p: lib.dist(x, y, p),
            [((3,), (3,)), ((2, 3), (3,)), ((), (4,))],
            (between(0, 1), between(1.2, 3)),
            mixed=False,
        )
        for p in (1, 2, 3, math.inf)
    ],
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
    Case("renorm", lambda lib, x: lib.renorm(x, 2, 0, 1.5), ROWS[1:]),
    Case("renorm of order 1", lambda lib, x: x.renorm(1, -1, 2.0), ROWS[1:]),
    *[
        Case(
            f"quantile, {mode}",
            lambda lib, x, mode=mode: lib.quantile(x, 0.3, dim=-1, interpolation=mode),
            ROWS,
            distinct,
        )
        for mode in ("linear", "lower", "higher", "midpoint", "nearest")
    ],
    Case(
        "several quantiles of all",
        lambda lib, x: lib.quantile(x, lib.tensor([0.0, 0.25, 0.5, 1.0], dtype=x.dtype)),
        ROWS,
        distinct,
    ),
    Case("quantile, kept", lambda lib, x: x.quantile(0.6, dim=0, keepdim=True), ROWS, distinct),
    Case("mode", lambda lib, x: lib.mode(x, 0), CUBE, distinct),
    Case(
        "mode of equals",
        lambda lib, x: x.mode(keepdim=True),
        [((3, 7),)],
        of(2.0, 1.0, 1.0, 2.0, 3.0),
    ),
    Case("nanmedian", lambda lib, x: lib.nanmedian(x), ROWS, WITH_NAN),
    Case("nanmedian along a dim", lambda lib, x: x.nanmedian(-1), ROWS, WITH_NAN),
    Case("cov", lambda lib, x: lib.cov(x), [((3, 5),), ((5,),)]),
    Case("cov, uncorrected", lambda lib, x: lib.cov(x, correction=0), [((3, 5),)]),
    Case(
        "cov, counted and weighted",
        lambda lib, x: lib.cov(
            x,
            fweights=lib.tensor([1, 2, 1, 3]),
            aweights=lib.tensor([0.5, 1.0, 2.0, 0.1]).to(x.dtype),
        ),
        [((3, 4),)],
    ),
    Case("corrcoef", lambda lib, x: lib.corrcoef(x), [((3, 5),), ((5,),)], twice=False),
    Case(
        "polar",
        lambda lib, x, y: lib.polar(x, y),
        [((3,), (3,)), ((2, 3), (3,))],
        (between(0.5, 2), between(-2, 2)),
        mixed=False,
    ),
    Case("msort", lambda lib, x: lib.msort(x), ROWS, distinct),
]

test_gradients = suite([*SPECIAL, *STATISTICS])


def test_values_where_functions_have_poles():
    x = [0.0, -0.0, -1.0, -2.0, 1.0, math.inf, math.nan]
    for name in ("digamma", "sgn"):
        ours = getattr(mt, name)(mt.tensor(x)).numpy()
        np.testing.assert_allclose(ours, getattr(torch, name)(torch.tensor(x)).numpy(), atol=1e-6)


def test_quantile_of_nan_is_nan_and_refuses_wrong_arguments():
    for lib in (mt, torch):
        x = lib.tensor([[1.0, math.nan, 2.0], [1.0, 2.0, 3.0]])
        assert lib.quantile(x, 0.5, dim=1).tolist()[1] == 2.0
        assert lib.quantile(x, 0.5, dim=1)[0].isnan()
        with pytest.raises(RuntimeError, match=r"range \[0, 1\]"):
            lib.quantile(x, 1.5)
        with pytest.raises(RuntimeError, match="interpolation"):
            lib.quantile(x, 0.5, interpolation="cubic")


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_report_their_places(name):
    for x in ([1.0, 3.0, 3.0, 2.0, 5.0], [2, 1, 1, 4], [1.0, math.nan, 3.0]):
        ours, theirs = getattr(mt, name)(mt.tensor(x), 0), getattr(torch, name)(torch.tensor(x), 0)
        assert ours.indices.tolist() == theirs.indices.tolist()
        np.testing.assert_array_equal(ours.values.numpy(), theirs.values.numpy())


def test_diff_of_bools_is_exclusive_or():
    for lib in (mt, torch):
        assert lib.diff(lib.tensor([True, True, False])).tolist() == [False, True]
        assert lib.diff(lib.tensor([1]), 3).shape == (0,)
        with pytest.raises(RuntimeError, match="at least one-dimensional"):
            lib.diff(lib.tensor(1.0))


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
    [
        "m.bincount(i)",
        "m.bincount(i, minlength=9)",
        "m.bincount(i, x[:6])",
        "m.histc(x, 4)",
        "m.histc(x, bins=5, min=-1, max=1)",
        "m.searchsorted(x.sort().values, x * 0.9)",
        "m.searchsorted(i.sort().values, i, right=True)",
        "m.searchsorted(m.stack([x, x + 1]).sort(-1).values, m.stack([x, x]), side='right')",
        "m.bucketize(x, m.tensor([-1.0, 0.0, 0.5]))",
        "m.isin(i, m.tensor([1, 3]))",
        "m.isin(i, m.tensor([1, 3]), invert=True)",
        "m.unique_consecutive(i)",
        "m.unique_consecutive(i, return_inverse=True, return_counts=True)",
        "m.mode(i)",
    ],
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
        lambda x: x.renorm_(2, 0, 0.5),
    ],
)
def test_methods_that_write_in_place(change):
    x = np.random.default_rng(0).uniform(0.1, 0.9, (3, 2))
    check(lambda lib, x: change(x * 1.0), x, tolerance=1e-8)
