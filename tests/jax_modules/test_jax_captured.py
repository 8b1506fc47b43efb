# SPDX-License-Identifier: BSD-3-Clause
"""Modules that a traced function reaches without having them as arguments."""

from __future__ import annotations

import functools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from jax_nets import Counting, Layer, Net, assert_untouched, batch, loss, snapshot

import modtree.jax as mj
from modtree import nn

Leaked = jax.errors.UnexpectedTracerError

norm = Counting()


class Trainer:
    def __init__(self, model: Any) -> None:
        self.model = model

    def step(self, x: Any) -> Any:
        return self.model(x)


def by_global(x: Any) -> Any:
    return norm(x)


def second_of(model: Any) -> Any:
    return lambda x: model[1](x)


def m_of(box: Any) -> Any:
    return lambda x: box.m(x)


REACHED: dict[str, Any] = {
    "closure": (lambda m: lambda x: m(x), "m.count"),
    "part": (lambda m: second_of(nn.Sequential(Layer(), m)), "model.1.count"),
    "list": (lambda m: lambda x, box=[m]: box[0](x), r"box\[0\].count"),
    "dict": (lambda m: lambda x, *, box={"a": m}: box["a"](x), r"box\['a'\].count"),
    "partial": (lambda m: functools.partial(lambda m, x: m(x), m), r"args\[0\].count"),
    "object": (lambda m: Trainer(m).step, "self.model.count"),
    "namespace": (lambda m: m_of(SimpleNamespace(m=m)), "box.m.count"),
    "function": (lambda m: functools.partial(lambda f, x: f(x), lambda x: m(x)), "m.count"),
    "attribute": (lambda m: lambda x: setattr(m, "mean", x[0]), "m.mean"),
    "registry": (lambda m: lambda x: m._buffers.update(mean=x[0]), "m.mean"),
    "plain": (lambda m: lambda x: setattr(m, "last", x), "m.last"),
    "held": (lambda m: lambda x: m.log.append(x), "m.log"),
}

TRANSFORMED: dict[str, Any] = {
    "jit": lambda f, x: mj.jit(f)(x),
    "grad": lambda f, x: mj.grad(lambda layer, x: jnp.sum(f(layer(x)) or 0.0))(Layer(), x),
    "remat": lambda f, x: mj.remat(f)(x),
    "eval_shape": lambda f, x: mj.eval_shape(f, x),
    "vmap": lambda f, x: mj.vmap(lambda row: f(row[None]))(x),
    "scan": lambda f, x: mj.scan(lambda carry, row: (carry, f(row[None])), 0.0, x),
    "jit of grad": lambda f, x: mj.jit(lambda x: jax.grad(lambda x: (f(x), x.sum())[1])(x))(x),
    "nested": lambda f, x: mj.jit(lambda m, x: mj.jit(lambda x: f(x))(m(x)))(Layer(), x),
}


@pytest.mark.parametrize("reached", REACHED)
def test_change_is_an_error_with_the_path(reached: str) -> None:
    make, path = REACHED[reached]
    module = Counting()
    module.log = []
    before = snapshot(module)
    for _ in range(2):
        with pytest.raises(Leaked, match=f"{path}: .*pass the module"):
            mj.jit(make(module))(batch())
    assert_untouched(module, before)
    assert module.log == [] and not hasattr(module, "last")
    module(batch())
    assert int(module.count) == 1


@pytest.mark.parametrize("kind", TRANSFORMED)
def test_every_transformation_finds_it(kind: str) -> None:
    module = Counting()
    before = snapshot(module)

    def call(x: Any) -> Any:
        module.mean = x.mean(0)

    with pytest.raises(Leaked, match=r"module\.mean: the buffer was changed"):
        TRANSFORMED[kind](call, batch())
    assert_untouched(module, before)


def test_module_of_a_global_name() -> None:
    with pytest.raises(Leaked, match=r"norm\.count"):
        mj.jit(by_global)(batch())


def test_change_without_tracers_is_one_where_a_function_runs_once() -> None:
    module = Counting()

    def call(change: Any, x: Any) -> Any:
        change()
        return x

    for change, name in (
        (lambda: module.eval(), "training"),
        (lambda: setattr(module, "n", 1), "n"),
        (lambda: delattr(module, "mean"), "mean"),
        (lambda: module.register_forward_hook(print), "_forward_hooks"),
        (lambda: module.add_module("child", Layer()), "_modules"),
    ):
        with pytest.raises(RuntimeError, match=rf"\.{name}: .*pass the module"):
            mj.jit(functools.partial(call, change))(batch())
    assert module.training and not module._forward_hooks and not module._modules
    mj.grad(lambda layer: (setattr(module, "n", 1), loss(layer, batch()))[1])(Layer())
    assert module.n == 1


def test_reading_and_modules_of_the_trace_are_fine() -> None:
    frozen = Net().eval()

    def call(m: Any, x: Any) -> Any:
        made = Counting()
        made(x)
        return m(frozen(x)) + made.mean

    model = Net()
    mj.jit(call)(model, batch())
    assert int(model.norm.count) == 1
    counting = Counting()
    mj.grad(lambda layer: loss(layer, batch()) + 0 * counting(batch()).sum())(Layer())
    assert int(counting.count) == 1
    assert not isinstance(counting.mean, jax.core.Tracer)


def test_change_by_an_inner_function_is_found_outside() -> None:
    model, x = Net(), batch()
    before = snapshot(model)
    inner = mj.jit(lambda m, x: m(x))
    inner(Net(), x)
    for call in (
        lambda x: inner(model, x),
        lambda x: mj.grad(loss)(model, x),
        lambda x: mj.update(model, {"layers.0.w": x[:3]}),
    ):
        with pytest.raises(Leaked, match="pass the module"):
            mj.jit(call)(x)
        assert_untouched(model, before)


def test_outer_tracers_may_be_stored_in_outer_modules_within_a_gradient() -> None:
    def step(m: Any, other: Any, x: Any) -> Any:
        def inner(m: Any) -> Any:
            other.count = other.count + 1
            return loss(m, x)

        return mj.grad(inner)(m)["w"]

    other = Counting()
    mj.jit(step)(Layer(), other, batch())
    assert int(other.count) == 1


def test_list_of_an_argument_that_is_changed_in_place() -> None:
    model = Layer()
    model.log = []

    def call(m: Any, x: Any) -> Any:
        m.log.append(1)
        return m(x)

    with pytest.raises(RuntimeError, match="log: the attribute was changed in place"):
        mj.jit(call)(model, batch())
    assert model.log == []
    mj.grad(lambda m: call(m, batch()).sum())(model)
    assert model.log == [1]


def test_plain_attributes_change_once_in_vmap() -> None:
    model = Layer()
    model.calls = 0

    def call(m: Any, x: Any) -> Any:
        m.calls += 1
        return m(x)

    mj.vmap(call, (None, 0))(model, batch())
    assert model.calls == 1


def test_other_threads_use_modules_meanwhile() -> None:
    module, x = Counting(), batch()

    def call(x: Any) -> Any:
        thread = threading.Thread(target=lambda: module(np.ones((1, 3))))
        thread.start()
        thread.join()
        return x

    mj.jit(call)(x)
    assert int(module.count) == 1
