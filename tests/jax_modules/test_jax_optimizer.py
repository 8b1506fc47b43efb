# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.jax.Optimizer``, and what the package shows."""

from __future__ import annotations

import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402

import modtree as mt  # noqa: E402
import modtree.jax as mj  # noqa: E402
from modtree import nn  # noqa: E402


def made():
    mt.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return mt.to_family(model, "jax")


def loss_of(model, x):
    return (model(x) ** 2).mean()


X = jnp.arange(12.0).reshape(3, 4) / 12


def by_hand(steps):
    """What optax does without the class."""
    model, adam = made(), optax.adam(1e-2)
    state = adam.init(mj.parameters(model))
    for _ in range(steps):
        gradients = mj.grad(loss_of)(model, X)
        updates, state = adam.update(gradients, state, mj.parameters(model))
        mj.apply_updates(model, updates)
    return mj.parameters(model), state


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: jnp.allclose(a, b, atol=1e-6), one, other))


def test_step_is_that_of_optax():
    model = made()
    optimizer = mj.Optimizer(model, optax.adam(1e-2))
    for _ in range(3):
        optimizer.update(model, mj.grad(loss_of)(model, X))
    parameters, state = by_hand(3)
    assert same(mj.parameters(model), parameters)
    assert same(optimizer.state, state)


def test_jitted_step_changes_model_and_state():
    model = made()
    optimizer = mj.Optimizer(model, optax.adam(1e-2))
    traced = []

    @mj.jit
    def step(model, optimizer, x):
        traced.append(1)
        loss, gradients = mj.value_and_grad(loss_of)(model, x)
        optimizer.update(model, gradients)
        return loss

    losses = [float(step(model, optimizer, X)) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    assert traced == [1]
    assert same(mj.parameters(model), by_hand(3)[0])


def test_state_is_saved_and_loaded():
    model = made()
    optimizer = mj.Optimizer(model, optax.adam(1e-2))
    optimizer.update(model, mj.grad(loss_of)(model, X))
    again = mj.Optimizer(made(), optax.adam(1e-2))
    again.load_state_dict(optimizer.state_dict())
    assert same(again.state, optimizer.state)


def test_frozen_parameters_stay():
    model = made()
    model[0].requires_grad_(False)
    before = model[0].weight
    optimizer = mj.Optimizer(model, optax.sgd(1e-2))
    optimizer.update(model, mj.grad(loss_of)(model, X))
    assert model[0].weight is before


def test_package_shows_its_public_names():
    assert sorted(dir(mj)) == sorted(mj.__all__)
    with mj.keys(0):
        one = nn.functional.dropout(X)
    with mj.keys(0):
        assert jnp.array_equal(nn.functional.dropout(X), one)
