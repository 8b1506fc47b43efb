# SPDX-License-Identifier: BSD-3-Clause
"""Gradients by modules, and steps of optimizers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from jax_nets import Layer, Net, assert_untouched, batch, loss, snapshot

import modtree.jax as mj
from modtree import nn


def reference(model: Any, x: Any) -> tuple[Any, dict[str, Any]]:
    """Value and gradients by jax alone, of a function of a dict."""
    return jax.value_and_grad(lambda values: (mj.functional_call(model, values, x) ** 2).sum())(
        mj.parameters(model)
    )


def assert_same(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    for name in other:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def test_gradients_by_path_and_buffers_written_back() -> None:
    model, x = Net(), batch()
    expected = reference(model, x)
    value, gradients = mj.value_and_grad(loss)(model, x)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    assert type(gradients) is mj.State
    assert_same(gradients, expected[1])
    assert list(gradients) == [name for name, _ in model.named_parameters()]
    assert int(model.norm.count) == 1 and isinstance(model.norm.mean, jax.Array)
    assert not isinstance(model.norm.mean, jax.core.Tracer)
    assert_same(mj.grad(loss)(model.eval(), x), mj.value_and_grad(loss)(model, x)[1])


def test_frozen_parameters_and_patterns() -> None:
    model, x = Net(), batch()
    model.layers[0].w.requires_grad = False
    assert list(mj.grad(loss)(model, x)) == ["layers.0.b", "layers.1.w", "layers.1.b"]
    assert list(mj.jit(mj.grad(loss))(model, x)) == ["layers.0.b", "layers.1.w", "layers.1.b"]
    assert list(mj.grad(loss, wrt="**.w")(model, x)) == ["layers.1.w"]
    with pytest.raises(ValueError, match="does not have a parameter that requires a gradient and"):
        mj.grad(loss, wrt="none.*")(model, x)
    with pytest.raises(ValueError, match="does not have a parameter"):
        mj.grad(loss)(model.requires_grad_(False), x)


def test_tied_parameters_once() -> None:
    model, x = Net().eval(), batch()
    model.layers[1].w = model.layers[0].w
    gradients = mj.grad(loss)(model, x)
    assert list(gradients) == ["layers.0.w", "layers.0.b", "layers.1.b"]
    untied = copy.deepcopy(model)
    untied.layers[1].w = nn.Parameter(model.layers[0].w + 0)
    both = mj.grad(loss)(untied, x)
    np.testing.assert_allclose(
        gradients["layers.0.w"], both["layers.0.w"] + both["layers.1.w"], rtol=1e-4
    )


def test_several_arguments_containers_and_aux() -> None:
    one, two, x = Layer(), Layer(3, 1), batch()

    def call(models: Any, scale: Any, x: Any, *, power: int) -> Any:
        y = models["b"][0](models["a"](x)) * scale * models["t"]
        return (y**power).sum(), {"y": y, "model": models["a"]}

    tree = {"a": one, "b": [two], "t": jnp.ones(3)}
    (value, aux), (by_models, by_scale) = mj.value_and_grad(call, (0, 1), has_aux=True)(
        tree, 2.0, x, power=2
    )
    assert aux["model"] is one and aux["y"].shape == (4, 3)
    assert list(by_models["a"]) == ["w", "b"] and list(by_models["b"][0]) == ["w", "b"]
    assert by_models["t"].shape == (3,)
    np.testing.assert_allclose(by_scale, value, rtol=1e-5)
    gradients, more = mj.grad(call, has_aux=True)(tree, 2.0, x, power=2)
    np.testing.assert_allclose(gradients["a"]["w"], by_models["a"]["w"])
    assert more["model"] is one
    with pytest.raises(TypeError, match="argnums=5"):
        mj.grad(call, 5)(tree, 2.0, x, power=2)


def test_arrays_and_modules_in_keywords() -> None:
    model = Net()
    gradient = mj.grad(lambda x, *, m: loss(m, x))(batch(), m=model)
    assert gradient.shape == (4, 3) and int(model.norm.count) == 1


def test_second_derivatives_and_jit_around_and_inside() -> None:
    model, x = Layer(), batch()

    def penalty(m: Any, x: Any) -> Any:
        return sum((g**2).sum() for g in mj.grad(loss)(m, x).values())

    expected = mj.grad(penalty)(model, x)
    assert_same(mj.jit(mj.grad(penalty))(model, x), expected)
    assert_same(mj.grad(mj.jit(penalty))(model, x), expected)
    assert_same(mj.grad(mj.remat(penalty))(model, x), expected)


def test_exception_and_escape_restore_the_module() -> None:
    model, x = Net(), batch()
    before = snapshot(model)

    def failing(m: Any, x: Any) -> Any:
        m(x)
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        mj.grad(failing)(model, x)
    assert_untouched(model, before)

    def escaping(m: Any, x: Any) -> Any:
        m.layers[0].seen = m(x)
        return loss(m, x)

    with pytest.raises(jax.errors.UnexpectedTracerError, match="layers.0.seen"):
        mj.grad(escaping)(model, x)
    assert_untouched(model, before)
    assert not hasattr(model.layers[0], "seen")


def test_plain_attributes_and_modes_stay_changed_where_the_function_runs_each_time() -> None:
    def call(m: Any, x: Any) -> Any:
        m.calls = getattr(m, "calls", 0) + 1
        m.eval()
        if hasattr(m, "old"):
            del m.old
        return loss(m, x)

    model = Net()
    model.old = 1
    mj.grad(call)(model, batch())
    mj.grad(call)(model, batch())
    assert model.calls == 2 and not model.training and not hasattr(model, "old")


@pytest.mark.parametrize("name", ["adam", "sgd", "adamw", "lion"])
def test_steps_of_optax_are_those_on_a_dict(name: str, optax) -> None:
    transform = getattr(optax, name)(1e-2)
    model, x = Net().eval(), batch()
    values = mj.parameters(model)
    plain = copy.deepcopy(model)
    state, plain_state = transform.init(mj.parameters(model)), transform.init(values)

    @mj.jit
    def step(m: Any, state: Any, x: Any) -> Any:
        value, gradients = mj.value_and_grad(loss)(m, x)
        updates, state = transform.update(gradients, state, mj.parameters(m))
        mj.apply_updates(m, updates)
        return value, state

    for _ in range(3):
        _, state = step(model, state, x)
        gradients = jax.grad(lambda v: (mj.functional_call(plain, v, x) ** 2).sum())(values)
        updates, plain_state = transform.update(gradients, plain_state, values)
        values = optax.apply_updates(values, updates)
    assert_same(mj.parameters(model), values)


def test_update_refuses_unknown_paths_and_keeps_dtypes() -> None:
    model = Layer()
    before = snapshot(model)
    with pytest.raises(KeyError, match="'x' is not a parameter or buffer of Layer"):
        mj.update(model, {"w": jnp.ones((3, 3)), "x": jnp.ones(1)})
    with pytest.raises(KeyError, match="'x' is not"):
        mj.apply_updates(model, {"x": jnp.ones(1)})
    assert_untouched(model, before)
    model.to(jnp.bfloat16)
    mj.apply_updates(model, {"w": jnp.ones((3, 3)), "b": None})
    assert model.w.dtype == jnp.bfloat16 and model.w.requires_grad


def test_states_are_pytrees() -> None:
    model = Net()
    state = mj.parameters(model)
    doubled = jax.tree.map(lambda x: x * 2, state)
    assert type(doubled) is mj.State and list(doubled) == list(state)
    leaves = jax.tree_util.tree_leaves_with_path(state)
    assert jax.tree_util.keystr(leaves[0][0]) == "['layers.0.w']"
    assert list(mj.buffers(model)) == ["norm.count", "norm.mean"]
    assert list(mj.state(model)) == [*state, *mj.buffers(model)]
    assert repr(mj.State(a=1)) == "State({'a': 1})"
    with pytest.raises(TypeError, match="expected a module, got int"):
        mj.parameters(3)
