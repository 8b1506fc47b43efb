# SPDX-License-Identifier: BSD-3-Clause
"""Operations, and programs: rows of steps as plain data, drawn on torch's world while they run
there.

An operation is a function of a world and of arguments whose kinds are its defaults::

    @operation("tree", 14)
    def set_attribute(w, m=MODULE, name=NAME, value=VALUE):
        setattr(m, name, value)
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any, NamedTuple


class Step(NamedTuple):
    """An operation and its arguments as data."""

    name: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


class Program(NamedTuple):
    """Steps, and the world they start in."""

    kind: str
    seed: int
    look: str
    cycles: bool
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        lines = "".join(f"\n  {i}. {step!r}" for i, step in enumerate(self.steps))
        return (
            f"{self.kind}, seed {self.seed}, look={self.look!r}, cycles={self.cycles}, "
            f"{len(self.steps)} steps:{lines}"
        )


class Kind:
    """A kind of argument. ``draw`` gives data, ``find`` the object in a world; ``so_far`` holds the
    arguments before this one.
    """

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        raise NotImplementedError

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        return data


class Operation(NamedTuple):
    name: str
    group: str
    weight: int
    run: Callable[..., Any]
    kinds: dict[str, Kind]

    def draw(self, rng: random.Random, world: Any) -> Step:
        """The arguments' data; kinds see the objects of the ones before."""
        data: dict[str, Any] = {}
        found: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            data[name] = kind.draw(rng, world, found)
            found[name] = kind.find(world, data[name], found)
        return Step(self.name, data)


OPERATIONS: dict[str, Operation] = {}


def operation(group: str, weight: int = 2) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(fn).parameters.items())[1:]
        name = fn.__name__.rstrip("_")
        assert name not in OPERATIONS, name
        OPERATIONS[name] = Operation(name, group, weight, fn, {n: p.default for n, p in parameters})
        return fn

    return add


def find_arguments(world: Any, step: Step) -> dict[str, Any]:
    """The objects that a step's data stand for in this world."""
    found: dict[str, Any] = {}
    for name, kind in OPERATIONS[step.name].kinds.items():
        found[name] = kind.find(world, step.arguments[name], found)
    return found


def run_step(world: Any, step: Step) -> Any:
    return OPERATIONS[step.name].run(world, **find_arguments(world, step))


def draw_step(rng: random.Random, world: Any, weights: dict[str, int]) -> Step:
    name = rng.choices(list(weights), list(weights.values()))[0]
    return OPERATIONS[name].draw(rng, world)


def choose_weights(rng: random.Random) -> dict[str, int]:
    """Each program takes some groups of operations and some operations of each, so that programs go
    deep in different places.
    """
    groups = sorted({op.group for op in OPERATIONS.values()})
    taken = {g for g in groups if g == "tree" or rng.random() < 0.5}
    if len(taken) == 1:
        taken.add(rng.choice(groups))
    weights = {}
    for name, op in OPERATIONS.items():
        if op.group in taken and rng.random() < 0.8:
            weights[name] = op.weight * rng.choice((1, 1, 1, 2, 4))
    return weights
