# SPDX-License-Identifier: BSD-3-Clause
"""Modules as pytrees, for jax and its libraries."""

from __future__ import annotations

import gc
import importlib
import weakref
from typing import Any

import pytest
from helpers.needs import needs

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from jax_nets import Layer, Net, assert_untouched, batch, loss, snapshot

import modtree.jax as mj
from modtree import nn


def test_tree_map_makes_a_module() -> None:
    model = Net()
    before = snapshot(model)
    zeros = jax.tree.map(jnp.zeros_like, model)
    assert type(zeros) is Net and zeros is not model and zeros.layers[1].size == 3
    assert not zeros.layers[0].w.any()
    assert_untouched(model, before)
    assert zeros.norm.count.dtype == jnp.int32
    assert zeros.state_dict().keys() == model.state_dict().keys()


def test_paths_and_structures() -> None:
    model = Net(1)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(model)]
    assert paths == [
        f"['{name}']" for name in ("layers.0.w", "layers.0.b", "norm.count", "norm.mean")
    ]
    one, other = jax.tree.structure(model), jax.tree.structure(Net(1))
    assert one == other and hash(one) == hash(other)
    assert jax.tree.structure(Net(1).eval()) != one
    with pytest.raises(ValueError):
        jax.tree.map(lambda *_: None, model, Net(2))


def test_ties_none_and_shared_modules_survive() -> None:
    model = Net()
    model.layers[1].w = model.layers[0].w
    model.again = model.norm
    model.register_buffer("nothing", None)
    assert len(jax.tree.leaves(model)) == 5
    copy = jax.tree.map(lambda x: x, model)
    assert copy.layers[1].w is copy.layers[0].w and copy.again is copy.norm
    assert copy.nothing is None


def test_leaves_of_any_kind_keep_the_structure() -> None:
    model = Net()
    model.layers[1].w = model.layers[0].w
    for value in (True, None, 0.0, jnp.zeros(2)):
        other = jax.tree.map(lambda _, value=value: value, model)
        again = jax.tree.map(lambda x, y: x, other, model, is_leaf=lambda x: x is None)
        assert again.layers[0]._parameters["b"] is value
        assert jax.tree.map(lambda x: x, other).norm._buffers["mean"] is value


def test_equinox_partitions_modules(equinox) -> None:
    model = Net()
    arrays, rest = equinox.partition(model, equinox.is_inexact_array)
    assert rest.layers[0].w is None and arrays.norm.count is None
    assert_untouched(equinox.combine(arrays, rest), snapshot(model))
    assert equinox.filter_jit(lambda m, x: m(x))(model, batch()).shape == (4, 3)


def test_jit_grad_and_vmap_of_jax() -> None:
    model, x = Net().eval(), batch()
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(model, x), model(x), rtol=1e-6)
    layer = Layer()
    gradients = jax.grad(loss)(layer, x)
    assert type(gradients) is Layer
    np.testing.assert_allclose(gradients.w, mj.grad(loss)(layer, x)["w"], rtol=1e-5)
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), layer, layer)
    assert jax.vmap(lambda m: m(x))(stack).shape == (2, 4, 3)
    made = jax.jit(lambda: Net())()
    assert type(made) is Net and made.norm.count.shape == ()


def test_jit_of_jax_counts_structures() -> None:
    traces = []

    @jax.jit
    def call(m: Any, x: Any) -> Any:
        traces.append(1)
        return m(x)

    model = Net()
    call(model, batch())
    call(Net(), batch())
    call(model.eval(), batch())
    assert len(traces) == 2


def test_classes_that_come_later_and_odd_ones() -> None:
    class Later(Layer):
        pass

    class Silent(nn.Module):
        def __init_subclass__(cls, **kwargs: Any) -> None:
            pass

    class BelowSilent(Silent):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(jnp.ones(2))

    assert len(jax.tree.leaves(Later())) == 2
    mj.register_module_class(BelowSilent)
    mj.register_module_class(BelowSilent)
    assert len(jax.tree.leaves(BelowSilent())) == 1


def test_optax_takes_modules(optax) -> None:
    model, x = Layer(), batch()
    transform = optax.adam(1e-2)
    state = transform.init(model)
    gradients = jax.grad(loss)(model, x)
    updates, state = transform.update(gradients, state, model)
    new = optax.apply_updates(model, updates)
    assert type(new) is Layer and float(loss(new, x)) < float(loss(model, x))


def test_equinox_and_diffrax_take_modules(diffrax) -> None:
    model = Layer()
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, m: m(y)),
        diffrax.Euler(),
        t0=0.0,
        t1=1.0,
        dt0=0.5,
        y0=batch(),
        args=model,
    )
    y = batch()
    for _ in range(2):
        y = y + 0.5 * model(y)
    np.testing.assert_allclose(solution.ys[0], y, rtol=1e-5)


@needs("orbax.checkpoint")
def test_orbax_saves_and_restores_modules(tmp_path: Any) -> None:
    ocp = importlib.import_module("orbax.checkpoint")
    model, other = Net(), Net().eval()
    model.norm.count = model.norm.count + 5
    model.layers[0].w = model.layers[0].w + 1
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", mj.state(model))
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "state", mj.state(other))
    mj.update(other, restored)
    for name, value in mj.state(model).items():
        np.testing.assert_array_equal(mj.state(other)[name], value)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "module", model)
        checkpointer.wait_until_finished()
        again = checkpointer.restore(tmp_path / "module", Net())
    np.testing.assert_array_equal(jax.tree.leaves(again)[0], model.layers[0].w)


def test_flattening_does_not_leak() -> None:
    model = Net()
    jax.tree.map(lambda x: x, model)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        jax.tree.map(lambda x: x, model)
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_a_class_that_cannot_be_hashed_is_not_a_pytree() -> None:
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            return cls is other

        __hash__ = None  # type: ignore[assignment]

    class Odd(nn.Module, metaclass=Meta):
        pass

    assert len(jax.tree.leaves(Odd())) == 1


def test_containers_of_a_made_module_are_its_own() -> None:
    one, other = Layer(), Layer()
    one.log, other.log = [], []
    jax.tree.leaves(one)
    made = jax.tree.map(lambda x: x * 2, other)
    gradients = jax.grad(loss)(other, batch())
    make = mj.jit(lambda: Logging())
    results = make(), make()
    for module in (made, gradients, *results):
        module.log.append(1)
    assert one.log == other.log == [] and results[0].log == [1]
    assert jax.tree.structure(other) == jax.tree.structure(jax.tree.map(lambda x: x, one))


class Logging(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []


def test_objects_of_a_made_module_are_those_of_its_own_origin() -> None:
    class Config:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config)

        def __hash__(self) -> int:
            return 1

    one, other = Layer(), Layer()
    one.config, other.config = Config(), Config()
    jax.tree.leaves(one)
    assert jax.tree.map(lambda x: x, other).config is other.config


def test_plain_attributes_of_a_dead_module_are_not_kept() -> None:
    class Data:
        pass

    model = Layer()
    model.data = Data()
    dies = weakref.ref(model.data)
    jax.tree.map(lambda x: x, model)
    jax.tree.map(lambda x: None, model)
    del model
    gc.collect()
    assert dies() is None


def test_changes_after_leaves_of_one_object() -> None:
    made = jax.tree.map(lambda _: True, Net())
    array = jnp.zeros((3, 3))
    made.layers[0]._parameters["w"] = made.layers[1]._parameters["w"] = array
    assert len(jax.tree.leaves(made)) == 5
    assert len(jax.tree.leaves(made.layers[0])) == 2
    arrays = jax.tree.map(lambda x: x, Net())
    arrays.layers[1].w = arrays.layers[0].w
    assert len(jax.tree.leaves(arrays)) == 5


def test_update_does_not_mark_the_arrays_of_the_caller() -> None:
    model, other, array = Net(), nn.Module(), jnp.ones((3, 3))
    mj.update(model, {"layers.0.w": array, "layers.1.w": array})
    other.x = array
    assert not other._parameters and model.layers[0].w is model.layers[1].w
    assert model.layers[0].w.requires_grad

    def call(m: Any, x: Any) -> Any:
        m.layers[0].w = x
        return m(x).sum()

    x = jnp.ones((3, 3))
    mj.jit(call)(model, x)
    mj.grad(call)(model, x)
    other.y = x
    assert not other._parameters and model.layers[0].w.requires_grad
