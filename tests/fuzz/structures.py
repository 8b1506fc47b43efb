# SPDX-License-Identifier: BSD-3-Clause
"""Random modules with random plain attributes, random changes in place, and what ``modtree.jax``
makes of them, against descriptions in plain Python.

``tools/fuzz_differential --structures --rounds 1000 --seed 1``. A description (:func:`described`)
has all that a structure must tell apart. After each change the native split, ``mj.jit``,
``jax.tree.map`` and a function that fails must do what it says.
"""

from __future__ import annotations

import random
import struct
import time
import zlib
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import modtree.jax as mj
from modtree import _C, nn

Pair = namedtuple("Pair", "first second")
MUTABLE = (list, dict, OrderedDict, set)
NAMES = ("one", "two", "three", "four")


class Node(nn.Module):
    """A module with an array of each kind."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.w = nn.Parameter(jnp.full((2,), number))
        self.register_buffer("b", jnp.full((), number))


class Config:
    """Compared by a value of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


class Failed(Exception):
    pass


# -- values ----------------------------------------------------------------------------------------


class Values:
    """Draws values; some of them are met again."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.containers: list[Any] = []
        self.objects: list[Any] = [np.ones(2), jnp.ones(2), object(), len, Node(0.0)]

    def atom(self) -> Any:
        atoms = (0, 1, True, 1.0, 0.0, -0.0, float("nan"), "a", "b", None, b"c", 2j, -1, 10**30)
        return self.rng.choice(atoms)

    def hashable(self) -> Any:
        if self.rng.random() < 0.7:
            return self.atom()
        items = [self.hashable() for _ in range(self.rng.randrange(3))]
        return self.rng.choice((tuple, frozenset))(items)

    def draw(self, depth: int = 0) -> Any:
        rng = self.rng
        chance = rng.random()
        if chance < 0.3 or depth > 4:
            return self.atom()
        if chance < 0.4:
            return rng.choice((*self.objects, Config(rng.randrange(2))))
        if chance < 0.5 and self.containers:
            return rng.choice(self.containers)
        if chance < 0.6:
            return rng.choice((set, frozenset))(self.hashable() for _ in range(rng.randrange(5)))
        items = [self.draw(depth + 1) for _ in range(rng.randrange(4))]
        if rng.random() < 0.02:
            items = [self.atom() for _ in range(300)]
        kind = rng.choice((list, list, tuple, Pair, dict, OrderedDict))
        if kind is Pair:
            return Pair(self.draw(depth + 1), items)
        if kind in (dict, OrderedDict):
            made = kind((self.hashable(), item) for item in items)
            if kind is OrderedDict and made:
                made.move_to_end(rng.choice(list(made)), last=False)
        else:
            made = kind(items)
        if kind in MUTABLE:
            self.containers.append(made)
        return made


# -- descriptions ----------------------------------------------------------------------------------


class Described:
    """Describes values; mutable containers by number, in the order in which they are met."""

    def __init__(self, ids: bool, objects: bool = True) -> None:
        self.ids = ids
        self.objects = objects
        self.numbers: dict[int, int] = {}

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in (float, complex):
            number = complex(value)
            return kind, struct.pack("dd", number.real, number.imag)
        if kind in (bool, int, str, bytes, type(None)):
            return kind, value
        if kind in (tuple, frozenset) and not value:
            return kind, ()
        if kind in MUTABLE:
            if id(value) in self.numbers:
                return "met", self.numbers[id(value)]
            self.numbers[id(value)] = id(value) if self.ids else len(self.numbers)
        if kind in (set, frozenset):
            items = [self.value(item) for item in value]
            all_items = frozenset(items) if self.objects else tuple(sorted(map(repr, items)))
            return kind, all_items, self.numbers.get(id(value))
        if kind in (dict, OrderedDict):
            pairs = [(self.value(key), self.value(item)) for key, item in value.items()]
            return kind, tuple(pairs), self.numbers[id(value)]
        if kind in (list, tuple, Pair):
            return kind, tuple(map(self.value, value)), self.numbers.get(id(value))
        if kind is Config and not self.ids:
            return kind, value.number
        return kind, id(value) if self.objects else None


def plain(module: Any) -> dict[str, Any]:
    slots = dict.fromkeys(vars(nn.Module()))
    return {n: v for n, v in _C.ModuleBase.__getstate__(module).items() if n not in slots}


def described(root: Any, ids: bool = False) -> Any:
    """All that tells structures apart; with ``ids``, also which containers and arrays there are."""
    describe = Described(ids)
    leaves: dict[int, int] = {}
    found = []
    for path, module in root.named_modules():
        entries = []
        for table in (module._parameters, module._buffers):
            for name, leaf in table.items():
                number = leaves.setdefault(id(leaf), len(leaves))
                entries.append((name, id(leaf) if ids else number))
            entries.append(None)
        children = [(name, type(child)) for name, child in module._modules.items()]
        hooks = describe.value(module._forward_hooks) if module._forward_hooks else None
        values = [(name, describe.value(value)) for name, value in plain(module).items()]
        found.append(
            (path, type(module), module.training, tuple(entries), tuple(children), hooks)
            + (frozenset(module._non_persistent_buffers_set), tuple(values))
        )
    return tuple(found)


def containers_of(root: Any) -> dict[int, Any]:
    """Every mutable container in plain attributes, by id."""
    found: dict[int, Any] = {}
    waiting = [value for module in root.modules() for value in plain(module).values()]
    while waiting:
        value = waiting.pop()
        if type(value) in (tuple, frozenset, Pair):
            waiting += value
        elif type(value) in MUTABLE and id(value) not in found:
            found[id(value)] = value
            waiting += value if type(value) in (list, set) else [*value.keys(), *value.values()]
    return found


def seen_number(root: Any) -> float:
    """A number that depends on all plain values but the identity of objects."""
    text = Described(ids=False, objects=False)
    parts = [
        (module.training, name, text.value(value))
        for module in root.modules()
        for name, value in [*plain(module).items(), ("", None)]
    ]
    return float(zlib.crc32(repr(parts).encode()) % 1000)


# -- changes ---------------------------------------------------------------------------------------


def change_container(rng: random.Random, values: Values, container: Any) -> None:
    if type(container) is list:
        action = rng.randrange(4)
        if action == 0 or not container:
            container.append(values.draw(3))
        elif action == 1:
            container.pop(rng.randrange(len(container)))
        elif action == 2:
            container[rng.randrange(len(container))] = values.draw(3)
        else:
            container.reverse()
    elif type(container) is set:
        item = values.hashable()
        container.discard(item) if rng.random() < 0.5 else container.add(item)
    else:
        keys = list(container)
        if not keys or rng.random() < 0.4:
            container[values.hashable()] = values.draw(3)
        elif type(container) is OrderedDict and rng.random() < 0.5:
            container.move_to_end(rng.choice(keys), last=rng.random() < 0.5)
        else:
            key = rng.choice(keys)
            value = container.pop(key)
            if rng.random() < 0.5:
                container[key] = value


def change(rng: random.Random, values: Values, root: Any, steps: range = range(12)) -> None:
    module = rng.choice(list(root.modules()))
    step = rng.choice(steps)
    if step < 4:
        found = list(containers_of(root).values())
        if found:
            change_container(rng, values, rng.choice(found))
    elif step < 7:
        value = values.draw()
        setattr(module, rng.choice(NAMES), [value] if isinstance(value, nn.Module) else value)
    elif step == 7:
        for name in list(plain(module))[:1]:
            delattr(module, name)
    elif step == 8:
        root.train(rng.random() < 0.5)
    elif step == 9:
        if module._forward_hooks and rng.random() < 0.6:
            key = rng.choice(list(module._forward_hooks))
            module._forward_hooks.move_to_end(key, last=rng.random() < 0.5)
        else:
            module.register_forward_hook(max, prepend=rng.random() < 0.5)
    elif step == 10:
        name = rng.choice(NAMES) + "_child"
        if name in module._modules:
            delattr(module, name)
        else:
            module.add_module(name, root.child if module is root else Node(2.0))
    else:
        module.w = rng.choice((root.w, module.w * 2))


# -- one round -------------------------------------------------------------------------------------


class Round:
    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.values = Values(self.rng)
        self.root = Node(1.0)
        self.root.child = Node(2.0)
        self.kept: list[Any] = []  # so that no id is used twice
        self.known: list[tuple[Any, Any]] = []
        self.traced: list[Any] = []
        self.jitted = mj.jit(self.evaluate)

    def evaluate(self, root: Any, x: Any) -> Any:
        self.traced.append(described(root)) if isinstance(x, jax.core.Tracer) else None
        return x + seen_number(root) + root.w.sum() + root.b

    def run(self, steps: int) -> None:
        for _ in range(steps):
            change(self.rng, self.values, self.root)
            self.kept += containers_of(self.root).values()
            self.kept += [*self.root.modules(), *mj.state(self.root).values()]
            self.check_split()
            check = self.rng.choice(CHECKS)
            before = described(self.root, ids=True)
            check(self)
            assert described(self.root, ids=True) == before, check.__name__

    def check_split(self) -> None:
        found = described(self.root)
        candidates = [known for known, _ in self.known[-4:]]
        structure = _C._split_modules(self.root, candidates, self.rng.random() < 0.5).structure
        for known, description in self.known[-20:]:
            assert (structure == known) == (found == description), (found, description)
            if structure == known:
                assert hash(structure) == hash(known)
        self.known.append((structure, found))

    def check_made(self, copy: Any) -> None:
        assert described(copy) == described(self.root)
        assert not containers_of(copy).keys() & containers_of(self.root).keys()

    def check_make(self) -> None:
        split = _C._split_modules(self.root, None, False)
        leaves = [jnp.zeros(2) for _ in split.leaves]
        copies = [split.structure.make(leaves, None)[0] for _ in range(2)]
        for copy in copies:
            self.check_made(copy)
        assert not containers_of(copies[0]).keys() & containers_of(copies[1]).keys()

    def check_map(self) -> None:
        copy = jax.tree.map(lambda leaf: leaf + 1, self.root)
        self.check_made(copy)
        assert jax.tree.structure(copy) == jax.tree.structure(self.root)
        for name, leaf in mj.state(copy).items():
            np.testing.assert_array_equal(leaf, mj.state(self.root)[name] + 1)
        same = jax.tree.map(lambda leaf: self.rng.choice((None, True)), self.root)
        again = jax.tree.map(lambda *pair: pair[1], same, copy, is_leaf=lambda leaf: leaf is None)
        self.check_made(again)

    def check_jit(self) -> None:
        found = described(self.root)
        expected = self.evaluate(self.root, 1.0)
        before, known = len(self.traced), found in self.traced
        for _ in range(2):
            result = self.jitted(self.root, 1.0)
            np.testing.assert_allclose(result, expected, rtol=1e-5)
        assert len(self.traced) == before + (not known), "a trace too many, or too few"

    def check_failure(self) -> None:
        def fails(root: Any, x: Any) -> Any:
            for _ in range(3):
                change(self.rng, self.values, root)
            raise Failed

        transform: Callable[..., Any] = self.rng.choice((mj.jit, mj.grad, mj.remat))
        try:
            transform(fails)(self.root, 1.0)
        except Failed:
            pass

    def check_captured(self) -> None:
        root = self.root

        def changes(x: Any) -> Any:
            change(self.rng, self.values, root, range(4, 9))
            return x

        before = described(root, ids=True)
        try:
            mj.jit(changes)(1.0)
        except (RuntimeError, jax.errors.UnexpectedTracerError) as error:
            assert "pass the module" in str(error)
            return
        assert described(root, ids=True) == before


CHECKS = (
    Round.check_make,
    Round.check_map,
    Round.check_jit,
    Round.check_jit,
    Round.check_failure,
    Round.check_captured,
)


def report(seed: int, rounds: int, steps: int, seconds: float) -> int:
    """Runs rounds, and prints the seeds of those that failed; returns how many."""
    began, failed, done = time.monotonic(), 0, 0
    for number in range(seed, seed + rounds):
        if time.monotonic() - began > seconds:
            break
        done += 1
        try:
            Round(str(number)).run(steps)
        except Exception as error:
            failed += 1
            print(f"seed {number}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
    print(f"{done} rounds, {failed} failed, {time.monotonic() - began:.0f} s")
    return failed
