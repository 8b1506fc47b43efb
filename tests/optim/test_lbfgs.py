# SPDX-License-Identifier: BSD-3-Clause
"""optim.LBFGS takes torch's steps, with and without a line search, and goes on from its state."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")


def valley(lib, p):
    """Rosenbrock's function in several dimensions."""
    return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()


def bowl(lib, p):
    return (p * p * lib.arange(1.0, len(p) + 1).double()).sum() + p.sin().sum()


def steep(lib, p):
    """Needs steps much shorter and, from far away, much longer than the first."""
    return (1e-3 * p**2).sum() + (p.exp() - p).sum().log()


def runs(function, steps, start=(-1.2, 1.0, 0.7), **options):
    """Parameters, losses and counts after each step, in both libraries."""
    results = []
    for lib in (mt, torch):
        p = lib.nn.Parameter(lib.tensor(start, dtype=lib.float64))
        optimizer = lib.optim.LBFGS([p], **options)
        seen, losses = [], []

        def closure(lib=lib, p=p, optimizer=optimizer, losses=losses):
            optimizer.zero_grad()
            loss = function(lib, p)
            loss.backward()
            losses.append(loss.item())
            return loss

        for _ in range(steps):
            first = optimizer.step(closure).item()
            state = optimizer.state[p]
            seen += [first, *p.tolist(), state["n_iter"], state["func_evals"]]
        results.append((seen, losses))
    return results


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("function", [valley, bowl, steep])
@pytest.mark.parametrize(
    "options",
    [{}, {"max_iter": 4}, {"history_size": 2, "max_iter": 7}, {"max_eval": 3}],
    ids=str,
)
def test_steps(function, search, options):
    rate = 1 if search else 1e-3
    ours, theirs = runs(function, 4, lr=rate, line_search_fn=search, **options)
    assert len(ours[1]) == len(theirs[1]) > 4
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6, atol=1e-9)


def test_first_steps_are_equal_to_rounding():
    ours, theirs = runs(valley, 2, max_iter=5, line_search_fn="strong_wolfe")
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-11)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-11)


def test_it_finds_the_lowest_point():
    ours, _ = runs(valley, 10, line_search_fn="strong_wolfe")
    np.testing.assert_allclose(ours[0][-5:-2], 1.0, atol=1e-5)


def test_several_parameters_and_missing_gradients():
    results = []
    for lib in (mt, torch):
        a = lib.nn.Parameter(lib.ones(2, 2).double())
        b = lib.nn.Parameter(lib.tensor(3.0).double())
        unused = lib.nn.Parameter(lib.ones(2).double())
        optimizer = lib.optim.LBFGS([a, unused, b], lr=0.5)

        def closure(a=a, b=b, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((a * b - 2) ** 2).sum() + (b - 1) ** 4
            loss.backward()
            return loss

        optimizer.step(closure)
        results.append([*a.flatten().tolist(), b.item(), *unused.tolist()])
    np.testing.assert_allclose(*results, rtol=1e-9)


def test_state_goes_on():
    p = mt.nn.Parameter(mt.tensor([-1.2, 1.0]).double())
    q = mt.nn.Parameter(p.detach().clone())
    first = mt.optim.LBFGS([p], max_iter=5, line_search_fn="strong_wolfe")
    second = mt.optim.LBFGS([q], max_iter=5, line_search_fn="strong_wolfe")

    def step(optimizer, p):
        def closure():
            optimizer.zero_grad()
            loss = valley(mt, p)
            loss.backward()
            return loss

        optimizer.step(closure)

    step(first, p)
    with mt.no_grad():
        q.copy_(p)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    step(first, p)
    step(second, q)
    assert p.tolist() == q.tolist()


def test_errors():
    for lib in (mt, torch):
        p = lib.nn.Parameter(lib.ones(1))
        with pytest.raises(ValueError, match="Invalid learning rate"):
            lib.optim.LBFGS([p], lr=-1)
        with pytest.raises(ValueError, match="doesn't support per-parameter options"):
            lib.optim.LBFGS([{"params": [p]}, {"params": [lib.nn.Parameter(lib.ones(1))]}])
    with pytest.raises(ValueError, match="strong_wolfe"):
        mt.optim.LBFGS([p], line_search_fn="other")
