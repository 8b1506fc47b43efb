# SPDX-License-Identifier: BSD-3-Clause
"""The kinds of arguments that operations take."""

from __future__ import annotations

import random
from typing import Any

from .allowed import avoided
from .observe import REGISTRIES
from .program import OPERATIONS, Kind, Step, run_step

NAMES = ("a", "b", "c", "weight", "bias", "0", "1", "ünï", "a b", "_x")
ODD_NAMES = (
    *("a.b", "", ".", "klass", "method", "ro", "rw", "bad", "training", "forward", "keys"),
    *("_version", "T", "dump_patches"),
)
ODD_VALUES = (3, "text", 1.5, [1], True, {"a": 1}, ())


def held_names(m: Any) -> list[str]:
    """What the registries of ``m`` hold, by name."""
    names: list[str] = []
    for registry in REGISTRIES:
        found = getattr(m, registry, None)
        if isinstance(found, dict):
            names += [k for k in found if isinstance(k, str)]
    return names


class Choice(Kind):
    def __init__(self, *values: Any) -> None:
        self.values = values

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        return rng.choice(self.values)


class Number(Kind):
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        return rng.randint(self.low, self.high)


class Options(Kind):
    """Some of these keyword arguments, each with one of its values."""

    def __init__(self, chance: float = 0.4, **values: tuple[Any, ...]) -> None:
        self.chance, self.values = chance, values

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        return {k: rng.choice(v) for k, v in self.values.items() if rng.random() < self.chance}


class Member(Kind):
    """One of the world's slots."""

    def __init__(self, slots: str) -> None:
        self.slots = slots

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        return rng.randrange(len(getattr(world, self.slots)))

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        return getattr(world, self.slots)[data]


class Slot(Member):
    """The number of a slot that the operation fills."""

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        return data


class Several(Kind):
    def __init__(self, kind: Kind, most: int = 3) -> None:
        self.kind, self.most = kind, most

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        return [self.kind.draw(rng, world, so_far) for _ in range(rng.randint(0, self.most))]

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        return [self.kind.find(world, d, so_far) for d in data]


class Container(Member):
    """A module slot that holds a container of this kind; without one, another operation is
    drawn.
    """

    def __init__(self, *classes: str) -> None:
        super().__init__("modules")
        self.classes = classes

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        kinds = tuple(getattr(world.impl.nn, c) for c in self.classes)
        fitting = [i for i, m in enumerate(world.modules) if isinstance(m, kinds)]
        if not fitting:
            raise LookupError("no such container")
        return rng.choice(fitting)

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        kinds = tuple(getattr(world.impl.nn, c) for c in self.classes)
        found = world.modules[data]
        return found if isinstance(found, kinds) else None


class Name(Kind):
    """A name, more often than not one that the module ``m`` has."""

    def __init__(self, held: float = 0.5, odd: float = 0.15) -> None:
        self.held, self.odd = held, odd

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        if rng.random() < self.held and "m" in so_far:
            names = held_names(so_far["m"])
            if names:
                return rng.choice(names)
        return rng.choice(ODD_NAMES if rng.random() < self.odd else NAMES)


class Path(Kind):
    """A dotted path, mostly one below ``m``."""

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        m, atoms = so_far["m"], []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            names = held_names(m)
            if not names or rng.random() < 0.1:
                atoms.append(rng.choice((*NAMES, "", "klass", "training")))
                break
            atoms.append(rng.choice(names))
            m = getattr(m, "_modules", {}).get(atoms[-1])
        return "" if rng.random() < 0.05 else ".".join(atoms)


class Value(Kind):
    """Anything that a name may be given: (kind, which)."""

    def __init__(self, **weights: int) -> None:
        self.weights = weights

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        kind = rng.choices(list(self.weights), list(self.weights.values()))[0]
        if kind in ("modules", "params", "tensors"):
            return kind, rng.randrange(len(getattr(world, kind)))
        return kind, rng.choice(ODD_VALUES) if kind == "odd" else None

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        kind, which = data
        if kind in ("params", "tensors"):
            return getattr(world, kind)[which]
        if kind != "modules":
            return which
        value, parent = world.modules[which], so_far.get("m")
        if not world.cycles and parent is not None and world.reaches(value, parent):
            return None
        return value


class Part(Kind):
    """A slice."""

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        n = 4
        bounds = [rng.choice([None, rng.randint(-n - 1, n + 1)]) for _ in range(2)]
        return (*bounds, rng.choice([None, None, 1, 2, -1, -2]))

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        return slice(*data)


class Position(Kind):
    """An index into ``m``, at times beyond its ends or of a wrong type."""

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        if rng.random() < 0.05:
            return rng.choice(("0", 1.5, None, True))
        try:
            n = len(so_far["m"])
        except Exception:
            n = 2
        return rng.randint(-n - 2, n + 1)


class Inner(Kind):
    """A step of another operation, to run inside a hook or an override; gives a function without
    arguments.
    """

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        names = [n for n, op in OPERATIONS.items() if not op.group.startswith("rare")]
        operation = OPERATIONS[rng.choice(names)]
        if any(isinstance(k, (Inner, Behaviour)) for k in operation.kinds.values()):
            operation = OPERATIONS["set_attribute"]
        return operation.draw(rng, world)

    def find(self, world: Any, data: Step, so_far: dict[str, Any]) -> Any:
        return lambda: None if avoided(world, data) else world.inside(lambda: run_step(world, data))


class Behaviour(Kind):
    """What a hook does besides noting that it ran: (action, data)."""

    def __init__(self, *actions: str) -> None:
        self.actions = actions

    def draw(self, rng: random.Random, world: Any, so_far: dict[str, Any]) -> Any:
        action = rng.choice(("pass", *self.actions))
        if action == "step":
            return action, Inner().draw(rng, world, so_far)
        if action == "odd":
            return action, rng.choice((0, False, "", [], {}, (), [1, 2], "text", (1, 2, 3)))
        if action == "remove":
            return action, rng.randrange(len(world.handles))
        return action, rng.randrange(4)

    def find(self, world: Any, data: Any, so_far: dict[str, Any]) -> Any:
        action, what = data
        if action == "step":
            return action, Inner().find(world, what, so_far)
        return action, what


MODULE, PARAM, TENSOR, CLASS = (
    Member("modules"),
    Member("params"),
    Member("tensors"),
    Member("classes"),
)
SAVED, WALK, HANDLE, BLOB = Member("saved"), Member("walks"), Member("handles"), Member("blobs")
MODULE_SLOT, PARAM_SLOT, TENSOR_SLOT = Slot("modules"), Slot("params"), Slot("tensors")
SAVED_SLOT, WALK_SLOT, HANDLE_SLOT = Slot("saved"), Slot("walks"), Slot("handles")
BLOB_SLOT, CLASS_SLOT = Slot("blobs"), Slot("classes")
NAME, PATH, BOOL = Name(), Path(), Choice(True, False)
CHILD = Value(modules=10, none=1, odd=1, params=1)
ANY_MODULE = Value(modules=10, none=1)
VALUE = Value(params=6, modules=6, tensors=6, none=3, odd=2)
PARAM_VALUE = Value(params=10, none=2, tensors=1, odd=1)
BUFFER_VALUE = Value(tensors=10, none=2, params=1, odd=1)
REGISTRY = Choice(*REGISTRIES)
PREFIX = ("", "p", "p.", "p.q")
