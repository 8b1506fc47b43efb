# SPDX-License-Identifier: BSD-3-Clause
"""A net of small layers, tanh(x @ w + b), in the libraries that bench_jax compares: for each a list
of steps, beside the same steps on bare lists of arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

SIZE = 4
OPTIMIZER = optax.adam(1e-3)

Steps = dict[str, Callable[[], Any]]


def inputs() -> Any:
    return jnp.ones((2, SIZE))


def weights(layers: int) -> list[Any]:
    """Near the identity, so that nothing becomes so small that arithmetic is slow."""
    return [
        value
        for i in range(layers)
        for value in (
            jnp.eye(SIZE) + jax.random.normal(jax.random.key(i), (SIZE, SIZE)) * 0.05,
            jnp.zeros(SIZE),
        )
    ]


def forward(values: list[Any], x: Any) -> Any:
    for i in range(0, len(values), 2):
        x = jnp.tanh(x @ values[i] + values[i + 1])
    return x


def bare(layers: int) -> Steps:
    x, values = inputs(), weights(layers)
    held = {"values": values, "state": OPTIMIZER.init(values)}
    seen = [jnp.zeros(SIZE) for _ in range(layers)]

    @jax.jit
    def step(values: Any, state: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda v: (forward(v, x) ** 2).sum())(values)
        updates, state = OPTIMIZER.update(gradients, state, values)
        return loss, optax.apply_updates(values, updates), state

    @jax.jit
    def noting(values: Any, seen: Any, x: Any) -> Any:
        new = []
        for i, before in enumerate(seen):
            x = jnp.tanh(x @ values[2 * i] + values[2 * i + 1])
            new.append(before + x[0])
        return x, new

    call = jax.jit(forward)

    def train() -> Any:
        loss, held["values"], held["state"] = step(held["values"], held["state"], x)
        return loss

    def buffers() -> Any:
        nonlocal seen
        y, seen = noting(values, seen, x)
        return y

    return {"forward": lambda: call(values, x), "train": train, "buffers": buffers}


def with_modtree(layers: int) -> Steps:
    import modtree.jax as mj
    from modtree import _C, nn

    class Layer(nn.Module):
        def __init__(self, w: Any, b: Any, notes: bool) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(w), nn.Parameter(b)
            self.notes = notes
            if notes:
                self.register_buffer("seen", jnp.zeros(SIZE))

        def forward(self, x: Any) -> Any:
            x = jnp.tanh(x @ self.w + self.b)
            if self.notes:
                self.seen = self.seen + x[0]
            return x

    def net(notes: bool) -> Any:
        values = weights(layers)
        return nn.Sequential(*(Layer(*values[2 * i : 2 * i + 2], notes) for i in range(layers)))

    x, plain, trained, noting = inputs(), net(False), net(False), net(True)
    call = mj.jit(lambda model, x: model(x))
    held = {"state": OPTIMIZER.init(mj.parameters(trained))}

    @mj.jit
    def step(model: Any, state: Any, x: Any) -> Any:
        loss, gradients = mj.value_and_grad(lambda m, x: (m(x) ** 2).sum())(model, x)
        updates, state = OPTIMIZER.update(gradients, state, mj.parameters(model))
        mj.apply_updates(model, updates)
        return loss, state

    def train() -> Any:
        loss, held["state"] = step(trained, held["state"], x)
        return loss

    known = _C._split_modules(plain, None, True).structure

    def split_and_merge() -> None:
        split = _C._split_modules(plain, known, True)
        split.put(split.leaves)

    return {
        "forward": lambda: call(plain, x),
        "train": train,
        "buffers": lambda: call(noting, x),
        "split and merge": split_and_merge,
    }


def with_equinox(layers: int) -> Steps:
    import equinox as eqx

    class Layer(eqx.Module):
        w: Any
        b: Any
        seen: Any

        def __call__(self, x: Any) -> Any:
            return jnp.tanh(x @ self.w + self.b)

    class Net(eqx.Module):
        layers: list[Layer]

        def __call__(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    def net(notes: bool) -> Any:
        values = weights(layers)
        return Net(
            [
                Layer(*values[2 * i : 2 * i + 2], jnp.zeros(SIZE) if notes else None)
                for i in range(layers)
            ]
        )

    x, plain = inputs(), net(False)
    held = {"model": net(False), "noting": net(True)}
    held["state"] = OPTIMIZER.init(eqx.filter(held["model"], eqx.is_array))
    call = eqx.filter_jit(lambda model, x: model(x))

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any) -> Any:
        loss, gradients = eqx.filter_value_and_grad(lambda m: (m(x) ** 2).sum())(model)
        updates, state = OPTIMIZER.update(gradients, state, eqx.filter(model, eqx.is_array))
        return loss, eqx.apply_updates(model, updates), state

    @eqx.filter_jit
    def note(model: Any, x: Any) -> Any:
        new = []
        for layer in model.layers:
            x = layer(x)
            new.append(eqx.tree_at(lambda at: at.seen, layer, layer.seen + x[0]))
        return x, Net(new)

    def train() -> Any:
        loss, held["model"], held["state"] = step(held["model"], held["state"], x)
        return loss

    def buffers() -> Any:
        y, held["noting"] = note(held["noting"], x)
        return y

    def split_and_merge() -> None:
        eqx.combine(*eqx.partition(plain, eqx.is_array))

    return {
        "forward": lambda: call(plain, x),
        "train": train,
        "buffers": buffers,
        "split and merge": split_and_merge,
    }


def with_nnx(layers: int) -> Steps:
    from flax import nnx

    class Seen(nnx.Variable):
        pass

    class Layer(nnx.Module):
        def __init__(self, w: Any, b: Any, notes: bool) -> None:
            self.w, self.b = nnx.Param(w), nnx.Param(b)
            self.notes = notes
            if notes:
                self.seen = Seen(jnp.zeros(SIZE))

        def __call__(self, x: Any) -> Any:
            x = jnp.tanh(x @ self.w[...] + self.b[...])
            if self.notes:
                self.seen[...] = self.seen[...] + x[0]
            return x

    class Net(nnx.Module):
        def __init__(self, notes: bool) -> None:
            values = weights(layers)
            self.layers = nnx.List(Layer(*values[2 * i : 2 * i + 2], notes) for i in range(layers))

        def __call__(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    x, plain, trained, noting = inputs(), Net(False), Net(False), Net(True)
    call = nnx.jit(lambda model, x: model(x))
    optimizer = nnx.Optimizer(trained, OPTIMIZER, wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss, gradients = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
        optimizer.update(model, gradients)
        return loss

    return {
        "forward": lambda: call(plain, x),
        "train": lambda: step(trained, optimizer, x),
        "buffers": lambda: call(noting, x),
        "split and merge": lambda: nnx.merge(*nnx.split(plain)),
    }


SIDES = {"modtree": with_modtree, "equinox": with_equinox, "flax.nnx": with_nnx}


def measured(side: str, layers: int, seconds: float, only: list[str] | None) -> dict[str, Any]:
    """The least time of each step in seconds, of the library and of bare lists, which take turns
    call by call.
    """
    steps, floor = SIDES[side](layers), bare(layers)
    found: dict[str, Any] = {}
    for name, step in steps.items():
        if only and name not in only:
            continue
        calls = [step] + ([floor[name]] if name in floor else [])
        for call in calls:
            for _ in range(3):
                jax.block_until_ready(call())
        times: list[list[float]] = [[] for _ in calls]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[0]) < 5:
            for call, own in zip(calls, times, strict=True):
                start = time.perf_counter()
                jax.block_until_ready(call())
                own.append(time.perf_counter() - start)
        found[name] = [min(own) for own in times]
    return found
