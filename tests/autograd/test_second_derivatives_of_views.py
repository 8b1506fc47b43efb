# SPDX-License-Identifier: BSD-3-Clause
"""Second derivatives go through changes of views in place, as in torch."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs


def second(lib: Any, function: Any, *arrays: Any) -> list[Any]:
    """Value, first derivatives, and those of a function of the first derivatives."""
    tensors = [lib.tensor(a, requires_grad=True) for a in arrays]
    value = function(lib, *tensors)
    first = lib.autograd.grad(
        (value.sin() * value).sum(), tensors, create_graph=True, allow_unused=True
    )
    total = sum((g.cos() * g).sum() for g in first if g is not None and g.requires_grad)
    again = lib.autograd.grad(total, tensors, allow_unused=True)
    return [
        np.zeros(a.shape) if t is None else t.detach().numpy()
        for a, t in zip(
            [np.zeros(tuple(value.shape)), *arrays, *arrays], [value, *first, *again], strict=True
        )
    ]


def row(m, x, y):
    b = x * 1
    b[0] = y[1] * b[1].clone()
    return b


def view_times(m, x, y):
    b = x * 2
    v = b[1:]
    v.mul_(y[:1])
    return b * v.sum()


def exp_of_a_column(m, x, y):
    b = x.clone()
    b[:, 1].exp_()
    return b * y


def a_view_made_before(m, x, y):
    b = x.clone()
    v = b.t()
    b[0].mul_(y[0])
    return v * v


def chain_of_views(m, x, y):
    b = x.clone()
    v = b.t()[1:]
    w = v[0]
    w.mul_(y[:, 0])
    v.sin_()
    return b + v.sum() * w.sum()


def strided_base(m, x, y):
    b = (x.t() * 1).t()
    b[:, ::2].mul_(y[:, :2])
    return b**2


def diagonal(m, x, y):
    b = x[:, :2] * 1
    b.diagonal().mul_(y[0, :2])
    return b**3


def zero_and_add(m, x, y):
    b = x * y
    b[0].zero_()
    b[1].add_(x[0] * y[0])
    return b**2


def fill(m, x, y):
    b = x * y
    b[:, 0].copy_(y[:, 1] ** 2)
    return b * x


def masked(m, x, y):
    b = x.clone()
    b[1:].masked_fill_(m.tensor([[True, False, True]]), 2.0)
    return b * y


def expanded_view(m, x, y):
    b = x.clone()
    v = b[:1].expand(2, 3)
    b.mul_(y)
    return v * v * b


def flat(m, x, y):
    b = x.clone()
    b.view(-1)[1:4].mul_(y.reshape(-1)[:3])
    return b**2


FUNCTIONS = [
    row, view_times, exp_of_a_column, a_view_made_before, chain_of_views, strided_base, diagonal,
    zero_and_add, fill, masked, expanded_view, flat,
]  # fmt: skip


@needs("torch")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_equals_torch(function):
    rng = np.random.default_rng(4)
    arrays = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    theirs, ours = (
        second(importlib.import_module(name), function, *arrays) for name in ("torch", "modtree")
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_third_derivative_by_hand():
    modtree = importlib.import_module("modtree")
    x = modtree.tensor([2.0, 3.0], requires_grad=True)
    b = x * 1
    b[0].mul_(x[1] * x[0])  # x0**2 * x1
    (g,) = modtree.autograd.grad(b[0] * x[0], x, create_graph=True)  # of x0**3 * x1
    (h,) = modtree.autograd.grad(g[0], x, create_graph=True)  # of 3 * x0**2 * x1
    assert h.tolist() == [36.0, 12.0]
    (t,) = modtree.autograd.grad(h[0], x)  # of 6 * x0 * x1
    assert t.tolist() == [18.0, 12.0]


def test_gradgradcheck():
    modtree = importlib.import_module("modtree")
    rng = np.random.default_rng(1)
    for function in FUNCTIONS:
        tensors = [
            modtree.tensor(rng.standard_normal((2, 3)), requires_grad=True) for _ in range(2)
        ]
        assert modtree.autograd.gradgradcheck(
            lambda a, b, function=function: function(modtree, a, b), tensors
        )


@needs("torch")
@pytest.mark.parametrize("seed", range(100))
def test_random_changes(seed):
    """Random chains of views and changes in place, derived twice."""
    rng = np.random.default_rng(seed)
    views = [
        lambda v: v[0] if v.ndim > 1 else v[1:],
        lambda v: v[..., 1:],
        lambda v: v.transpose(0, -1),
        lambda v: v[..., ::2],
        lambda v: v.unsqueeze(0),
        lambda v: v[-1:],
        lambda v: v.diagonal() if v.ndim > 1 else v,
        lambda v: v.reshape(-1) if v.is_contiguous() else v,
    ]
    changes = [
        lambda v, x: v.mul_(x.mean().cos()),
        lambda v, x: v.add_((x * x).mean()),
        lambda v, x: v.sin_(),
        lambda v, x: v.tanh_(),
        lambda v, x: v.zero_(),
        lambda v, x: v.copy_(v.detach() * 0 + x.sum()),
        lambda v, x: v.sub_(v.clone().tanh() ** 2),
    ]
    plan = [
        (
            [views[i] for i in rng.integers(0, len(views), rng.integers(1, 4))],
            changes[rng.integers(len(changes))],
            rng.integers(3),
        )
        for _ in range(4)
    ]

    def function(m, x, y):
        base = x * y
        kept = [base.t()]
        for path, change, which in plan:
            v = base if which < 2 else kept[-1]
            for step in path:
                v = step(v)
            change(v, x if which else y)
            kept.append(v)
        return base / 9 + sum((v * v).mean() for v in kept)

    arrays = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    try:
        theirs = second(importlib.import_module("torch"), function, *arrays)
    except RuntimeError as error:
        pytest.skip(f"torch: {str(error)[:60]}")
    if max(np.abs(t).max() for t in theirs) > 1e6:
        pytest.skip("too large to be compared")
    ours = second(importlib.import_module("modtree"), function, *arrays)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)
