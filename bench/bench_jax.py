# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_jax``: jitted steps of a net of small layers, tanh(x @ w + b), with
modules, beside equinox and bare lists of arrays. Needs jax and optax; without equinox it is left
out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import ROOT, machine

#: The most that modtree may take at 200 layers, as a multiple of bare lists.
TARGETS = {"forward": 1.3, "train": 1.5, "buffers": 1.6}
#: The most seconds of a split and merge at 200 layers.
SPLIT_AND_MERGE = 1e-4

PACKAGES = {"modtree": "modtree", "equinox": "equinox"}

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


SIDES = {"modtree": with_modtree, "equinox": with_equinox}


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


def run(side: str, layers: int, seconds: float, only: list[str] | None) -> dict[str, Any]:
    """What a process of its own measures."""
    code = (
        "import json; from bench.bench_jax import measured; "
        f"print(json.dumps(measured({side!r}, {layers}, {seconds}, {only!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def least(found: list[dict[str, Any]]) -> dict[str, list[float]]:
    """The least of several processes."""
    return {
        name: [min(values) for values in zip(*(one[name] for one in found), strict=True)]
        for name in found[0]
    }


def row(name: str, layers: int, sides: dict[str, dict[str, list[float]]]) -> str:
    """A line of the table."""
    floors = [found[name][1] for found in sides.values() if len(found[name]) > 1]
    cells = [f"{1e3 * min(floors):.3f}" if floors else ""]
    for found in sides.values():
        values = found[name]
        more = f" ({values[0] / values[1]:.2f})" if len(values) > 1 else ""
        cells.append(f"{1e3 * values[0]:.3f}{more}")
    return f"| {name}, {layers} layers | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="*", default=[10, 200, 2000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each step in a process")
    parser.add_argument("--steps", nargs="*", help="forward, train, buffers, 'split and merge'")
    parser.add_argument("--only", nargs="*", help="libraries")
    given = parser.parse_args()
    names = [
        side
        for side, package in PACKAGES.items()
        if importlib.util.find_spec(package) and (not given.only or side in given.only)
    ]
    print(machine())
    print(
        f"\nms; in brackets the multiple of bare lists in the same process\n\n"
        f"| step | bare lists | {' | '.join(names)} |\n|---|{'---|' * (len(names) + 1)}"
    )
    missed = []
    for layers in given.layers:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in names}
        for _ in range(given.rounds):
            for side in names:
                found[side].append(run(side, layers, given.seconds, given.steps))
        sides = {side: least(parts) for side, parts in found.items()}
        for name in next(iter(sides.values())):
            print(row(name, layers, sides), flush=True)
        if layers == 200 and "modtree" in sides:
            own = sides["modtree"]
            missed += [
                f"{name}: {own[name][0] / own[name][1]:.2f}, at most {most}"
                for name, most in TARGETS.items()
                if name in own and own[name][0] > most * own[name][1]
            ]
            merged = own.get("split and merge", [0.0])[0]
            if merged > SPLIT_AND_MERGE:
                missed.append(f"split and merge: {1e3 * merged:.3f} ms, at most 0.1")
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
