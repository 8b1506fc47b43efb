# SPDX-License-Identifier: BSD-3-Clause
"""vmap, scan, remat, eval_shape and pure calls with modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from jax_nets import Counting, Layer, Net, assert_untouched, batch, loss, snapshot

import modtree.jax as mj
from modtree import nn


def stacked(*modules: Any) -> Any:
    """The modules as one with another dimension in front."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *modules)


def test_vmap_over_samples_and_over_an_ensemble() -> None:
    model, x = Net().eval(), batch()
    rows = mj.vmap(lambda m, row: m(row[None])[0], in_axes=(None, 0))(model, x)
    np.testing.assert_allclose(rows, model(x), rtol=1e-5, atol=1e-6)

    models = [Net(), Net()]
    models[1].layers[0].w = models[0].layers[1].w
    ensemble = stacked(*models)
    result = mj.vmap(lambda m, x: m(x), in_axes=(0, None))(ensemble, x)
    for i, one in enumerate(models):
        np.testing.assert_allclose(result[i], one(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ensemble.norm.mean[i], one.norm.mean, rtol=1e-5)
    np.testing.assert_array_equal(ensemble.norm.count, [1, 1])


def test_vmap_by_patterns() -> None:
    model = Layer()
    model.w = nn.Parameter(jnp.stack([model.w, model.w * 2]))
    result = mj.vmap(lambda m, x: m(x), in_axes=({"w": 0}, None))(model, batch())
    assert result.shape == (2, 4, 3) and model.b.shape == (3,)
    with pytest.raises(ValueError, match="'nothing' does not match"):
        mj.vmap(lambda m, x: m(x), in_axes=({"nothing": 0}, None))(model, batch())
    with pytest.raises(TypeError, match="expected an int, None, or a dict"):
        mj.vmap(lambda m, x: m(x), in_axes=("w", None))(model, batch())
    with pytest.raises(ValueError, match="1 items for 2 arguments"):
        mj.vmap(lambda m, x: m(x), in_axes=(0,))(model, batch())


def test_vmap_that_changes_a_shared_buffer() -> None:
    model = Net()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"norm\.mean: changed inside the function"):
        mj.vmap(lambda m, row: m(row[None])[0], in_axes=(None, 0))(model, batch())
    assert_untouched(model, before)

    def averaged(m: Any, row: Any) -> Any:
        m.norm.mean = jax.lax.pmean(row, "batch")
        m.norm.count = m.norm.count + 1
        return row

    mj.vmap(averaged, in_axes=(None, 0), axis_name="batch")(model, batch())
    np.testing.assert_allclose(model.norm.mean, batch().mean(0), atol=1e-6)
    assert int(model.norm.count) == 1


def test_gradients_per_sample() -> None:
    model, x = Layer(), batch()
    each = mj.vmap(mj.grad(lambda m, row: loss(m, row)), in_axes=(None, 0))(model, x)
    total = mj.grad(loss)(model, x)
    assert each["w"].shape == (4, 3, 3)
    np.testing.assert_allclose(each["w"].sum(0), total["w"], rtol=1e-5)


def test_vmap_makes_an_ensemble() -> None:
    class Random(nn.Module):
        def __init__(self, key: Any) -> None:
            super().__init__()
            self.w = nn.Parameter(jax.random.normal(key, (3,)))

    made = mj.vmap(Random)(jax.random.split(jax.random.key(0), 5))
    assert type(made) is Random and made.w.shape == (5, 3) and made.w.requires_grad


def test_scan_over_a_stack_of_layers() -> None:
    layers = [Layer(3, i) for i in range(4)]
    stack, x = stacked(*layers), batch()
    last, _ = mj.jit(lambda s, x: mj.scan(lambda h, layer: (layer(h), None), x, s))(stack, x)
    for layer in layers:
        x = layer(x)
    np.testing.assert_allclose(last, x, rtol=1e-5, atol=1e-6)


def test_scan_carries_modules_and_stacks_changes() -> None:
    model = Counting()
    other = copy.deepcopy(model)
    xs = jnp.arange(24.0).reshape(2, 4, 3)
    (after, n), ys = mj.scan(
        lambda carry, x: ((carry[0], carry[1] + 1), carry[0](x)), (model, 0), xs
    )
    expected = [other(x) for x in xs]
    assert after is model and int(n) == 2 and int(model.count) == 2
    np.testing.assert_allclose(ys, jnp.stack(expected), rtol=1e-5)
    np.testing.assert_allclose(model.mean, other.mean, rtol=1e-5)

    stack = stacked(Counting(), Counting(), Counting())
    mj.scan(lambda h, m: (m(h), None), batch(), stack)
    np.testing.assert_array_equal(stack.count, [1, 1, 1])


def test_scan_with_length_and_modules_in_outputs() -> None:
    model = Layer()
    _, made = mj.scan(lambda m, _: (m, copy.deepcopy(m)), model, None, length=3)
    assert type(made) is Layer and made.w.shape == (3, 3, 3)
    with pytest.raises(TypeError, match="must have the modules"):
        mj.scan(lambda m, _: (Layer(), None), model, None, length=3)
    with pytest.raises(TypeError, match="must return"):
        mj.scan(lambda m, _: m, model, None, length=3)


def test_gradient_through_a_scan() -> None:
    model, x = Layer(), batch()

    def unrolled(m: Any, x: Any) -> Any:
        return (m(m(m(x))) ** 2).sum()

    def scanned(m: Any, x: Any) -> Any:
        (_, y), _ = mj.scan(lambda c, _: ((c[0], c[0](c[1])), None), (m, x), None, length=3)
        return (y**2).sum()

    one, other = mj.grad(unrolled)(model, x), mj.jit(mj.grad(scanned))(model, x)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6)


def test_remat_has_the_same_results() -> None:
    model, x = Net(), batch()
    other = copy.deepcopy(model)
    rematerialized = mj.value_and_grad(lambda m, x: (mj.remat(m)(x) ** 2).sum())(model, x)
    value, gradients = mj.value_and_grad(loss)(other, x)
    np.testing.assert_allclose(rematerialized[0], value, rtol=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(rematerialized[1][name], gradient, rtol=1e-5, atol=1e-6)
    assert int(model.norm.count) == 1
    text = str(jax.make_jaxpr(lambda x: mj.remat(model.eval())(x))(x))
    assert "remat" in text or "checkpoint" in text


def test_eval_shape_computes_and_changes_nothing() -> None:
    model = Net()
    before = snapshot(model)
    result = mj.eval_shape(model, jax.ShapeDtypeStruct((7, 3), jnp.float32))
    assert (result.shape, result.dtype) == ((7, 3), jnp.float32)
    assert_untouched(model, before)
    meta = mj.eval_shape(lambda: Net())
    assert isinstance(meta.layers[0].w, jax.ShapeDtypeStruct)
    assert mj.eval_shape(meta, batch()).shape == (4, 3)
    meta.load_state_dict(model.state_dict(), assign=True)
    np.testing.assert_allclose(meta.eval()(batch()), model.eval()(batch()))


def test_functional_call_is_pure_and_fits_custom_vjp() -> None:
    model, x = Net(), batch()
    before = snapshot(model)
    values = {name: value * 2 for name, value in mj.parameters(model).items()}
    result, changes = mj.functional_call(model, values, x, changes=True)
    assert_untouched(model, before)
    assert list(changes) == ["norm.count", "norm.mean"]
    assert result.shape == (4, 3)
    with pytest.raises(KeyError, match="'x' is not"):
        mj.functional_call(model, {"x": x}, x)

    @jax.custom_vjp
    def clipped(values: Any, x: Any) -> Any:
        return mj.functional_call(model, values, (x,), {})

    clipped.defvjp(
        lambda values, x: (clipped(values, x), (values, x)),
        lambda kept, g: (jax.tree.map(jnp.ones_like, kept[0]), jnp.zeros_like(kept[1])),
    )
    gradients = jax.grad(lambda v: clipped(v, x).sum())(mj.parameters(model))
    assert all((g == 1).all() for g in gradients.values())
    assert_untouched(model, before)
