# SPDX-License-Identifier: BSD-3-Clause
"""Random classes before and behind Module, and what becomes of their modules while attributes are
written, classes patched, and ``__class__`` and ``__bases__`` assigned.

A program is a list of steps, drawn without a look at any world, so that a world runs it alone:
``outcomes`` gives a text for each step. ``tools/fuzz_differential --mixins`` compares those of
modtree with those of torch; with ``--dropin`` two processes do, of which one has the drop-in.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Step = tuple[Any, ...]

NAMES = ("x", "y", "z")
PLAIN, MODULES, OBJECTS = 4, 5, 5  # how many there are of each
TAKEN = ("__setattr__", "__delattr__", "__getattribute__", "__getattr__", "__reduce_ex__")
#: What a class may have under a name of TAKEN, beside nothing.
WAYS = {
    "__setattr__": ("pass on", "pass on", "change", "refuse", "object's"),
    "__delattr__": ("pass on", "pass on", "refuse"),
    "__getattribute__": ("pass on", "pass on", "answer", "refuse", "object's", "Module's"),
    "__getattr__": ("pass on", "answer"),
    "__reduce_ex__": ("pass on", "answer", "Module's"),
}
READING = ("read", "has", "copied")
VALUES = ("number", "number", "tensor", "parameter", "module", "none")


class Refused(Exception):
    """Raised by members on purpose."""


# -- programs --------------------------------------------------------------------------------------


def draw_members(rng: random.Random, most: int) -> list[Step]:
    """Rows of (name, way, the name of an attribute that the way is about)."""
    rows = []
    for _ in range(rng.randint(0, most)):
        name = rng.choice((*TAKEN, *TAKEN, *NAMES))
        way = rng.choice(WAYS[name]) if name in WAYS else rng.choice(("value", "property"))
        rows.append((name, way, rng.choice(NAMES)))
    return rows


def draw_bases(rng: random.Random) -> Step:
    """Numbers of classes, in front of what is a module and behind it."""
    front = rng.sample(range(PLAIN), rng.choice((0, 0, 1, 1, 2)))
    behind = rng.sample([i for i in range(PLAIN) if i not in front], rng.choice((0, 1, 1, 2)))
    return front, rng.randrange(-3, MODULES), behind


def draw_step(rng: random.Random) -> Step:
    m, name = rng.randrange(OBJECTS), rng.choice(NAMES)
    kind = rng.choices(list(STEPS), [weight for _, weight in STEPS.values()])[0]
    if kind == "write":
        return kind, m, rng.choice((*NAMES, "training")), rng.choice(VALUES), rng.randrange(OBJECTS)
    if kind == "write past":
        return kind, m, name, rng.choice(("object", "Module"))
    if kind == "patch":
        owner = rng.choice(("plain", "module")), rng.randrange(PLAIN)
        return kind, owner, rng.choice((*TAKEN, *NAMES)), draw_members(rng, 3), rng.random() < 0.4
    if kind == "new class":
        return kind, rng.randrange(MODULES), draw_bases(rng), draw_members(rng, 2)
    if kind == "new plain class":
        parent = rng.randrange(-2, PLAIN)
        return kind, rng.randrange(PLAIN), parent, draw_members(rng, 3)
    if kind in ("new object", "change class"):
        return kind, m, rng.randrange(MODULES)
    if kind == "change bases":
        return kind, rng.randrange(MODULES), draw_bases(rng)
    return kind, m, name


def draw_program(seed: int, count: int = 40) -> list[Step]:
    rng = random.Random(f"mixins {seed}")
    steps = [("new plain class", i, -1, draw_members(rng, 3)) for i in range(PLAIN)]
    for i in range(MODULES):
        front, _, behind = draw_bases(rng)
        steps.append(("new class", i, (front, rng.randrange(-2, i) if i else -1, behind), []))
    steps += [("new object", i, rng.randrange(MODULES)) for i in range(OBJECTS)]
    steps += [draw_step(rng) for _ in range(count)]
    return steps + [("look", i, "x") for i in range(OBJECTS)] + [("look at classes", 0, "x")]


# -- worlds ----------------------------------------------------------------------------------------


class World:
    def __init__(self, nn: Any, lib: Any) -> None:
        self.nn, self.lib = nn, lib
        self.log: list[str] = []
        self.kind = ""  # of the step that runs
        self.root = type("Root", (), {})  # `__bases__` of what derives from object is not assigned
        self.plain: list[Any] = [self.root] * PLAIN
        self.classes: list[Any] = [nn.Module] * MODULES
        self.objects: list[Any] = [nn.Module() for _ in range(OBJECTS)]

    def note(self, owner: str, name: str, about: str) -> None:
        """Only of names that the module system does not use for itself, and reads only where the
        program reads: how often it asks during a write is its own business.
        """
        reads = name in ("__getattribute__", "__getattr__")
        if about in (*NAMES, "training") and (not reads or self.kind in READING):
            self.log.append(f"{owner}.{name}({about})")

    def members(self, holder: list[Any], owner: str, rows: list[Step]) -> dict[str, Any]:
        return {name: self.member(holder, owner, *row) for row in rows for name in row[:1]}

    def member(self, holder: list[Any], owner: str, name: str, way: str, about: str) -> Any:
        if way == "value":
            return f"{owner}.{about}"
        if way == "property":
            return property(lambda self: f"{owner} has {name}")
        if way == "object's":
            return getattr(object, name)
        note, nn = self.note, self.nn

        def taken(self, *args):
            note(owner, name, args[0])
            if args[0] == about and way == "refuse":
                raise AttributeError(about) if "get" in name else Refused(about)
            if way == "answer" and (name == "__reduce_ex__" or args[0] == about):
                return (int, (7,)) if name == "__reduce_ex__" else f"{owner} answers"
            if way == "change" and args[0] == about:
                args = (about, "changed")
            if way == "Module's":
                return getattr(nn.Module, name)(self, *args)
            return getattr(super(holder[0], self), name)(*args)

        return taken

    def bases(self, drawn: Step) -> tuple[Any, ...]:
        front, module, behind = drawn
        middle = self.nn.Module if module < 0 else self.classes[module]
        return (*(self.plain[i] for i in front), middle, *(self.plain[i] for i in behind))

    def new(self, name: str, bases: tuple[Any, ...], rows: list[Step]) -> Any:
        holder: list[Any] = []
        holder.append(type(name, bases, self.members(holder, name, rows)))
        return holder[0]

    def value(self, kind: str, number: int) -> Any:
        if kind == "number":
            return number
        if kind == "none":
            return None
        if kind == "module":
            return self.objects[number]
        made = self.lib.zeros(2)
        return self.nn.Parameter(made) if kind == "parameter" else made

    def show(self, value: Any) -> str:
        if value is None or isinstance(value, (int, str, bool)):
            return repr(value)
        for i, known in enumerate(self.objects):
            if known is value:
                return f"object {i}"
        if issubclass(type(value), self.nn.Module):
            return f"a {type(value).__name__}"
        return type(value).__name__

    def look(self, m: Any) -> str:
        shown = vars(self.nn.Module).get("__dict__", vars(self.root).get("__dict__")).__get__(m)
        parts = []
        for key, value in shown.items():
            if isinstance(value, dict):
                parts.append(f"{key}: {[(k, self.show(v)) for k, v in value.items()]}")
            elif key in (*NAMES, "training"):
                parts.append(f"{key}: {self.show(value)}")
        return "; ".join(sorted(parts))

    # -- steps: each gives what it shows

    def write(self, m: Any, name: str, kind: str, number: int) -> None:
        value = self.value(kind, number)
        if kind != "module" or not self.reaches(value, m):
            setattr(m, name, value)

    def reaches(self, module: Any, target: Any) -> bool:
        children = object.__getattribute__(module, "_modules").values()
        return module is target or any(
            child is not None and self.reaches(child, target) for child in children
        )

    def write_past(self, m: Any, name: str, owner: str) -> None:
        (object if owner == "object" else self.nn.Module).__setattr__(m, name, 5)

    def read(self, m: Any, name: str) -> str:
        return self.show(getattr(m, name))

    def delete(self, m: Any, name: str) -> None:
        delattr(m, name)

    def register(self, m: Any, name: str) -> None:
        m.register_buffer(name, self.lib.zeros(1))

    def mode(self, m: Any, name: str) -> str:
        changed = self.nn.Sequential(m).train(name == "x")
        return self.show(changed[0].training)

    def names(self, m: Any, name: str) -> str:
        return str([list(m.state_dict()), [n for n, _ in m.named_modules()]])

    def copied(self, m: Any, name: str) -> str:
        made = copy.copy(m) if name == "x" else copy.deepcopy(m)
        return self.look(made) if issubclass(type(made), self.nn.Module) else self.show(made)

    def has(self, m: Any, name: str) -> bool:
        return hasattr(m, name)

    def patch(self, owner: Step, name: str, rows: list[Step], deletes: bool) -> None:
        kind, number = owner
        cls = (self.plain if kind == "plain" else self.classes)[number]
        if cls in (self.nn.Module, self.root):
            return
        if deletes and name in vars(cls):
            delattr(cls, name)
            return
        for key, member in self.members([cls], cls.__name__, rows).items():
            setattr(cls, key, member)

    def new_class(self, number: int, bases: Step, rows: list[Step]) -> None:
        self.classes[number] = self.new(f"M{number}", self.bases(bases), rows)

    def new_plain_class(self, number: int, parent: int, rows: list[Step]) -> None:
        base = self.root if parent < 0 else self.plain[parent]
        self.plain[number] = self.new(f"P{number}", (base,), rows)

    def new_object(self, m: int, number: int) -> None:
        self.objects[m] = self.classes[number]()

    def change_class(self, m: int, number: int) -> None:
        self.objects[m].__class__ = self.classes[number]

    def change_bases(self, number: int, bases: Step) -> None:
        if self.classes[number] is not self.nn.Module:
            self.classes[number].__bases__ = self.bases(bases)

    def look_at_classes(self, m: Any, name: str) -> str:
        own = [cls for cls in self.classes if cls is not self.nn.Module]
        return str([sorted(k for k in vars(cls) if k in WAYS) for cls in own])

    def reads_as_object(self) -> bool:
        """True if the class of a module has the reads of object from one of the classes drawn."""
        for cls in {type(m) for m in self.objects}:
            drawn = (c for c in cls.__mro__ if c.__name__[:1] + c.__name__[2:] in ("M", "P"))
            taken = (vars(c).get("__getattribute__") for c in drawn)
            if next(filter(None, taken), None) is object.__getattribute__:
                return True
        return False

    def run(self, step: Step) -> str:
        self.log.clear()
        kind, *arguments = step
        self.kind = kind
        method, _ = STEPS[kind]
        if kind not in ("patch", "new class", "new plain class", "new object") and (
            not kind.startswith("change")
        ):
            arguments[0] = self.objects[arguments[0]]
        try:
            result = str(method(self, *arguments))
            if kind in ("patch", "change bases") and self.reads_as_object():
                result = ENDS  # docs/lifetime.md: modules that were made before do not show all
        except Exception as error:
            result = f"{ENDS if may_end(step) else ''}{type(error).__name__}"
        return f"{result} {self.log}"


#: Name of a step -> what it does, and how often it is drawn.
STEPS: dict[str, tuple[Callable[..., Any], int]] = {
    "write": (World.write, 10),
    "write past": (World.write_past, 1),
    "read": (World.read, 8),
    "has": (World.has, 3),
    "delete": (World.delete, 4),
    "register": (World.register, 2),
    "mode": (World.mode, 1),
    "names": (World.names, 1),
    "copied": (World.copied, 2),
    "look": (lambda world, m, name: world.look(m), 1),
    "look at classes": (World.look_at_classes, 1),
    "patch": (World.patch, 6),
    "new class": (World.new_class, 2),
    "new plain class": (World.new_plain_class, 1),
    "new object": (World.new_object, 4),
    "change class": (World.change_class, 3),
    "change bases": (World.change_bases, 2),
}
ENDS = "ends: "  # how an outcome begins after which worlds may differ


def may_end(step: Step) -> bool:
    """True where a step that fails may leave torch's world as ours does not: a refused parameter or
    module has removed what was there, and CPython compares layouts before it assigns bases.
    """
    return step[0] == "change bases" or step[0] == "write" and step[3] in ("parameter", "module")


def outcomes(nn: Any, lib: Any, steps: list[Step]) -> Iterator[str]:
    world = World(nn, lib)
    for step in steps:
        yield world.run(step)


def difference(steps: list[Step], theirs: Any, ours: Any) -> str | None:
    """The first step that two worlds do not agree on, with what each showed."""
    for i, (a, b) in enumerate(zip(theirs, ours, strict=False)):
        ends = a.startswith(ENDS) or b.startswith(ENDS)
        if ends and (a != b or steps[i][0] != "change bases" or "Error" not in a):
            return None
        if a != b:
            listed = "\n".join(f"  {k}. {step}" for k, step in enumerate(steps[: i + 1]))
            return f"{listed}\n  torch {a}\n  ours  {b}"
    return None


def compare(kind: str, steps: list[Step]) -> str | None:
    """The first difference between torch and an implementation (``helpers.implementations``)."""
    from helpers.implementations import implementation

    worlds = [implementation(k) for k in ("torch", kind)]
    return difference(steps, *(outcomes(w.nn, w.lib, steps) for w in worlds))


def shortest(steps: list[Step], differs: Callable[[list[Step]], str | None]) -> str:
    """The difference of the shortest program that is found by leaving out steps."""
    found = differs(steps) or ""
    size = len(steps) // 2
    while size:
        for start in range(len(steps) - size, -1, -size):
            trial = steps[:start] + steps[start + size :]
            if text := differs(trial):
                steps, found = trial, text
        size //= 2
    return found


def in_process(seeds: range, *launcher: str) -> list[list[str]]:
    """What torch's Module, or the drop-in's, gives for the programs of some seeds."""
    command = [sys.executable, *launcher, "-m", "fuzz.mixins", str(seeds.start), str(seeds.stop)]
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return json.loads(run.stdout.splitlines()[-1])


def report(seed: int, rounds: int, most: int, dropin: bool) -> int:
    """Prints the differences of ``rounds`` programs, the first ones made short, and counts them."""
    count = 0
    if dropin:
        seeds = range(seed, seed + rounds)
        both = in_process(seeds), in_process(seeds, "-m", "modtree", "run")
        for number, theirs, ours in zip(seeds, *both, strict=True):
            if text := difference(draw_program(number), theirs, ours):
                count += 1
                print(f"\nseed {number} under the drop-in\n{text}" if count <= most else "", end="")
        print(f"\n{rounds} programs, {count} differ")
        return count
    for number in range(seed, seed + rounds):
        kind, steps = ("modtree", "modtree-torch")[number % 2], draw_program(number)
        if compare(kind, steps):
            count += 1
            if count <= most:
                text = shortest(steps, lambda trial, kind=kind: compare(kind, trial))
                print(f"\nseed {number}, {kind}\n{text}")
    print(f"\n{rounds} programs, {count} differ")
    return count


if __name__ == "__main__":
    import torch

    print(
        json.dumps(
            [
                list(outcomes(torch.nn, torch, draw_program(seed)))
                for seed in range(int(sys.argv[1]), int(sys.argv[2]))
            ]
        )
    )
