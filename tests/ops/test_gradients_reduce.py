# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of reductions, scans and sorting, against torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.gradients import Case, away_from, between, check, distinct, imaginary, of, suite, whole

import modtree as mt

torch = pytest.importorskip("torch")

AROUND_0 = between(-2, 2)
ALL = [((),), ((0,),), ((5,),), ((2, 3, 4),), ((2, 0, 3),)]
FULL = [((),), ((5,),), ((2, 3, 4),)]  # where torch refuses empty inputs
CUBE = [((2, 3, 4),)]
ROWS = [((5,),), ((2, 5),), ((3, 2, 4),)]
DIMS = {
    "the last dim": {"dim": -1},
    "dim 0, kept": {"dim": 0, "keepdim": True},
    "two dims": {"dim": (0, 2)},
    "two dims, kept": {"dim": (-1, 0), "keepdim": True},
}


def _over(name, dims, sample=AROUND_0, shapes=CUBE, **options):
    return [
        Case(
            f"{name} over {dim}",
            lambda lib, x, kwargs=DIMS[dim]: getattr(lib, name)(x, **kwargs),
            shapes,
            sample,
            **options,
        )
        for dim in dims
    ]


def _all(name, shapes=FULL, sample=AROUND_0, **options):
    return Case(name, lambda lib, x: getattr(lib, name)(x), shapes, sample, **options)


ONE_DIM = ("the last dim", "dim 0, kept")
WITH_EMPTY = [((2, 3, 4),), ((2, 0, 3),)]

SUMS = [
    _all("sum", ALL),
    *_over("sum", DIMS, shapes=WITH_EMPTY),
    Case("sum to another dtype", lambda lib, x: x.sum(0, dtype=lib.float32), CUBE, tolerance=1e-5),
    _all("mean"),
    *_over("mean", DIMS),
    *[
        case
        for name in ("var", "std")
        for case in [
            _all(name, FULL[1:]),
            *_over(name, DIMS),
            Case(
                f"{name} with correction",
                lambda lib, x, name=name: getattr(lib, name)(x, 1, correction=0),
                CUBE,
            ),
            Case(
                f"{name} of one element",
                lambda lib, x, name=name: getattr(lib, name)(x, 0, correction=0),
                [((1, 3),)],
                twice=False,
            ),
            Case(
                f"{name} of a constant",
                lambda lib, x, name=name: getattr(lib, name)(x),
                [((4,),)],
                of(2.5),
                twice=False,
            ),
        ]
    ],
    Case("var_mean", lambda lib, x: lib.var_mean(x, 1), CUBE),
    *_over("logsumexp", DIMS),
    Case(
        "logsumexp with infinities",
        lambda lib, x: lib.logsumexp(x, -1),
        [((2, 3),)],
        of(-math.inf, 1.0, 2.0),
        twice=False,
    ),
]

PRODUCTS = [
    _all("prod", ALL),
    *_over("prod", ONE_DIM),
    Case("prod with a zero", lambda lib, x: lib.prod(x, -1), ROWS, of(1.5, 0.0, 2.0, 0.5, 3.0)),
    Case("prod with zeros", lambda lib, x: lib.prod(x, -1), ROWS, of(0.0, 2.0, 0.0, 0.5)),
    Case("prod of all with a zero", lambda lib, x: lib.prod(x), ROWS, of(1.5, 0.0, 2.0, 0.5, 3.0)),
    Case("prod over dim 0 with zeros", lambda lib, x: lib.prod(x, 0), ROWS, whole(0, 3)),
    *[
        Case(
            f"{name}{' over dim 0' if dim == 0 else ''}",
            lambda lib, x, name=name, dim=dim: getattr(lib, name)(x, dim),
            ALL if dim == 0 else [*ALL, *ROWS],
            away_from(0.3, 2),
        )
        for name in ("cumsum", "cumprod")
        for dim in (0, -1)
    ],
    Case(
        "cumprod with a zero", lambda lib, x: lib.cumprod(x, -1), ROWS, of(1.5, 0.0, 2.0, 0.5, 3.0)
    ),
    Case("cumprod with zeros", lambda lib, x: lib.cumprod(x, -1), ROWS, of(0.0, 2.0, 0.0, 0.5)),
    Case("cumprod over dim 0 with zeros", lambda lib, x: lib.cumprod(x, 0), ROWS, whole(0, 3)),
]

NORMS = [
    *[
        Case(
            f"norm of order {p}{label}",
            lambda lib, x, p=p, dims=dims: lib.norm(x, p, **dims),
            CUBE if dims else FULL[1:],
            away_from(0.2, 2),
            twice=p not in (0,),
        )
        for p in (0, 0.5, 1, 1.5, 2, 2.5, 3, math.inf, -math.inf, "fro")
        for label, dims in (
            ("", {}),
            (" over dim 1", {"dim": 1}),
            (" kept", {"dim": -1, "keepdim": True}),
        )
        if not (p == "fro" and dims)
    ],
    *[
        Case(
            f"norm of order {p} of zeros",
            lambda lib, x, p=p: lib.norm(x, p, dim=-1),
            [((2, 3),)],
            of(0.0, 0.0, 0.0, 1.0, 0.0, -2.0),
            twice=False,
        )
        for p in (0.5, 1, 1.5, 2, 3, math.inf)
    ],
]

SOFTMAX = [
    Case(
        f"{name} over {dim}",
        lambda lib, x, name=name, dim=dim: getattr(lib, name)(x, dim),
        ALL,
    )
    for name in ("softmax", "log_softmax")
    for dim in (0, -1)
]

EXTREMES = [
    *[
        case
        for name in ("amax", "amin")
        for case in [
            _all(name, sample=distinct),
            *_over(name, DIMS, distinct),
            Case(
                f"{name} of equals",
                lambda lib, x, name=name: getattr(lib, name)(x, (0, 2)),
                CUBE,
                whole(0, 3),
            ),
        ]
    ],
    *[
        case
        for name in ("max", "min")
        for case in [
            _all(name, sample=distinct),
            Case(
                f"{name} of equals",
                lambda lib, x, name=name: getattr(lib, name)(x),
                FULL,
                whole(0, 3),
            ),
            Case(
                f"{name} along a dim",
                lambda lib, x, name=name: getattr(lib, name)(x, 1),
                CUBE,
                distinct,
            ),
            Case(
                f"{name} along a dim, kept",
                lambda lib, x, name=name: getattr(lib, name)(x, -1, keepdim=True),
                CUBE,
                distinct,
            ),
        ]
    ],
    *[
        Case(
            f"{name} along a dim of equals",
            lambda lib, x, name=name: getattr(lib, name)(x, -1),
            CUBE,
            of(1.0, 2.0, 2.0, 1.0),
        )
        for name in ("max", "min")
    ],
    Case("sort", lambda lib, x: lib.sort(x, 1), CUBE, distinct),
    Case(
        "sort downwards", lambda lib, x: x.sort(dim=-1, descending=True), [*ROWS, ((),)], distinct
    ),
    Case("topk", lambda lib, x: lib.topk(x, 2), ROWS, distinct),
    Case(
        "topk of the smallest", lambda lib, x: lib.topk(x, 2, dim=0, largest=False), ROWS, distinct
    ),
    Case(
        "topk of many", lambda lib, x: lib.topk(x, 2, dim=1), [((3, 40),), ((2, 30, 2),)], distinct
    ),
    Case("smallest of many", lambda lib, x: x.topk(3, -1, largest=False), [((50,),)], distinct),
    Case(
        "take_along_dim",
        lambda lib, x: lib.take_along_dim(x, lib.tensor([[0, 2, 1], [1, 1, 1]]), 1),
        [((2, 3),)],
    ),
    Case(
        "take_along_dim, broadcast",
        lambda lib, x: lib.take_along_dim(x, lib.tensor([[1, 1, 0]]), -1),
        [((2, 3),)],
    ),
    Case(
        "take_along_dim of all",
        lambda lib, x: lib.take_along_dim(x, lib.tensor([5, 0, 5])),
        [((2, 3),)],
        layouts=False,  # torch flattens by view()
    ),
]

COMPLEX = [
    Case(f"complex {name}", function, [((4,),)], imaginary, twice=twice)
    for name, function, twice in [
        ("sum", lambda lib, x: x.sum(), True),
        ("mean", lambda lib, x: x.mean(), True),
        ("prod", lambda lib, x: x.prod(), True),
        ("cumsum", lambda lib, x: x.cumsum(0), True),
        ("cumprod", lambda lib, x: x.cumprod(0), True),
        ("var", lambda lib, x: x.var(), True),
        ("std", lambda lib, x: x.std(), True),
        ("norm", lambda lib, x: x.norm(), True),
        ("norm of order 3", lambda lib, x: x.norm(3), True),
        ("norm of order 1", lambda lib, x: x.norm(1), True),
    ]
]

test_gradients = suite([*SUMS, *PRODUCTS, *NORMS, *SOFTMAX, *EXTREMES, *COMPLEX])


@pytest.mark.parametrize(
    "function",
    [
        lambda lib, x: x.argmax(0),
        lambda lib, x: x.argmin(),
        lambda lib, x: lib.argsort(x),
        lambda lib, x: lib.count_nonzero(x),
        lambda lib, x: lib.all(x > 0),
        lambda lib, x: lib.any(x, 0),
        lambda lib, x: lib.max(x, 0).indices,
        lambda lib, x: lib.sort(x).indices,
    ],
)
def test_results_without_gradient(function):
    for lib in (mt, torch):
        assert not function(lib, lib.ones(3, 2, requires_grad=True)).requires_grad


UNUSUAL = [
    [math.inf, 1.0, 2.0],
    [-math.inf, 1.0, 2.0],
    [-math.inf] * 3,
    [math.inf, math.inf, 1.0],
    [math.inf, -math.inf, 0.0],
    [math.nan, 1.0, 2.0],
    [1.0, math.nan, math.nan],
    [0.0, -0.0, 0.0],
    [1e200, 1e200, 1.0],
    [1e-200, 0.0, 1e-200],
]


@pytest.mark.parametrize(
    "name",
    (
        "sum mean prod var std amax amin max min sort logsumexp softmax log_softmax "
        "cumsum cumprod norm "
        "logcumsumexp"
    ).split(),
)
def test_infinities_zeros_and_nan(name):
    for row in UNUSUAL:
        x = np.array(row)
        if name not in ("norm",):
            check(lambda lib, x: getattr(lib, name)(x, 0), x)
        if name in ("sum", "mean", "prod", "var", "std", "max", "min", "norm"):
            check(lambda lib, x: getattr(lib, name)(x), x)
    if name in ("max", "min", "sort"):
        check(lambda lib, x: getattr(lib, name)(x, 0), np.array(2.0))


@pytest.mark.parametrize(
    "with_numpy,with_torch",
    [
        (lambda t: np.sum(t, axis=1), lambda t: t.sum(1)),
        (lambda t: np.sum(t, axis=(0, 1), keepdims=True), lambda t: t.sum((0, 1), keepdim=True)),
        (lambda t: np.prod(t), lambda t: t.prod()),
        (lambda t: np.mean(t, -1), lambda t: t.mean(-1)),
        (lambda t: np.var(t, axis=0), lambda t: t.var(0, correction=0)),
        (lambda t: np.std(t, ddof=1), lambda t: t.std()),
        (lambda t: np.max(t, axis=0), lambda t: t.amax(0)),
        (lambda t: np.min(t), lambda t: t.amin()),
        (lambda t: np.cumsum(t, axis=1), lambda t: t.cumsum(1)),
        (lambda t: np.cumprod(t), lambda t: t.reshape(-1).cumprod(0)),
        (lambda t: np.sort(t), lambda t: t.sort().values),
        (lambda t: np.linalg.norm(t, axis=1), lambda t: t.norm(dim=1)),
        (lambda t: np.take_along_axis(t, np.argsort(t, 0), 0), lambda t: t.sort(0).values),
    ],
)
def test_numpy_functions_record_like_methods(with_numpy, with_torch):
    x = np.random.default_rng(0).uniform(0.3, 1, (3, 4))
    t, u = mt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    ours, theirs = with_numpy(t), with_torch(u)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy())
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), u.grad.numpy())


def test_what_numpy_alone_can_do_is_refused_where_it_would_lose_the_gradient():
    t = mt.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="would lose its gradient"):
        np.sum(t, where=np.array([True, False, True]))
    with pytest.raises(RuntimeError, match="would lose its gradient"):
        np.convolve(t, t)
    assert np.shape(t) == (3,) and np.allclose(t, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda lib, x: x.max(1).values,
        lambda lib, x: x.max(1).indices.float() + x.sum(1),
        lambda lib, x: x.sort(0).values,
        lambda lib, x: x.topk(2).values,
        lambda lib, x: x.amax(0, keepdim=True),
        lambda lib, x: x.max(),
        lambda lib, x: x.logcumsumexp(1),
        lambda lib, x: x.cumprod(0),
        lambda lib, x: x.prod(),
        lambda lib, x: x.std((0, 1)),
        lambda lib, x: x.norm(dim=1),
        lambda lib, x: x.logsumexp(1, keepdim=True),
        lambda lib, x: lib.cdist(x, x),
    ],
)
def test_shapes_alone_go_forward_and_backward_on_meta(function):
    shapes = []
    for lib in (mt, torch):
        x = lib.empty(2, 3, device="meta", requires_grad=True)
        result = function(lib, x)
        assert result.is_meta
        result.sum().backward()
        assert x.grad.is_meta and x.grad.shape == x.shape and x.grad.dtype == lib.float32
        shapes.append(tuple(result.shape))
    assert shapes[0] == shapes[1]


def test_topk_of_many_takes_nan_for_the_largest():
    x = np.random.default_rng(0).normal(size=(4, 50))
    x[1, 3] = x[1, 7] = np.nan
    for largest in (True, False):
        ours = mt.topk(mt.tensor(x), 3, largest=largest).values.numpy()
        theirs = torch.topk(torch.tensor(x), 3, largest=largest).values.numpy()
        np.testing.assert_array_equal(ours, theirs)
    assert mt.topk(mt.ones(2, 50), 0).values.shape == (2, 0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_along_any_dim_of_unusual_rows(name):
    x = np.array([*UNUSUAL[:-2], [1000.0, 0.0, -1000.0]])
    for array, dim in ((x, 1), (np.ascontiguousarray(x.T), 0), (x.T, 0)):
        for dtype in (np.float64, np.float32):
            check(
                lambda lib, t, dim=dim: getattr(lib, name)(t, dim),
                array.astype(dtype),
                tolerance=1e-6,
            )
    assert getattr(mt, name)(mt.ones(0, 3), 0).shape == (0, 3)
    assert getattr(mt, name)(mt.ones(2, 3).half(), 0).dtype == mt.float16
