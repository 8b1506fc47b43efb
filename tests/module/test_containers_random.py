# SPDX-License-Identifier: BSD-3-Clause
"""The same random operations on a container of torch and on ours: after each, everything visible
must agree.

What differs deliberately (docs/compat.md, Containers) is not drawn: ``skip`` of each kind says what
that is.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import re
from collections import OrderedDict

import pytest
from helpers.containers_common import tagger
from helpers.implementations import implementation, needs_torch

pytestmark = needs_torch

SEEDS = range(30)
STEPS = 40
NAMES = ["a", "b", "c", "0", "1", "x.y", "", "keys", "training"]
POOL = 6

# The texts that a message of ours must contain when torch's does.
TEXTS = (
    "is out of range",
    "Index out of range",
    "is not a Module subclass",
    "add operator supports only objects of Sequential class",
    "Non-positive multiplication factor",
    "ModuleList.extend should be called with an iterable, but got",
    "ModuleDict.update should be called with an iterable of key/value pairs, but got",
    "ParameterList.extend should be called with an iterable, but got",
    "should be Iterable; is",
    "2 is required",
    "cannot be used as a key as it is not a string",
    "already exists",
    "can't contain",
    "can't be empty string",
    "popitem(): dictionary is empty",
    "cannot assign",
)


class World:
    """One implementation with its pool: modules, parameters and tensors that both worlds name by
    number.
    """

    def __init__(self, kind):
        self.impl = implementation(kind)
        lib, nn = self.impl.lib, self.impl.nn
        tag = tagger(self.impl)
        self.modules = [tag(i % 3) for i in range(POOL)] + [None]
        self.values = [nn.Parameter(lib.zeros(i + 1)) for i in range(POOL)]
        self.values += [lib.zeros(2), nn.Buffer(lib.zeros(3)), None, 7, "text", self.modules[0]]

    def module(self, i):
        return self.modules[i] if isinstance(i, int) else i[1]

    def show(self, value):
        """``value`` by its place in the pool, or its structure, without the names of the
        libraries.
        """
        for pool in ("modules", "values"):
            for i, known in enumerate(getattr(self, pool)):
                if value is known and value is not None:
                    return f"{pool}[{i}]"
        if isinstance(value, self.impl.nn.Module):
            return self.state(value)
        if isinstance(value, (tuple, list)):
            return [self.show(v) for v in value]
        if isinstance(value, self.impl.lib.Tensor):
            return ("tensor", isinstance(value, self.impl.nn.Parameter), tuple(value.shape))
        return repr(value)

    def state(self, container):
        text = re.sub(r"\[[\w.]+?\.(\w+) of size", r"[\1 of size", repr(container))
        return {
            "class": type(container).__name__,
            "modules": [(k, self.show(v)) for k, v in container._modules.items()],
            "parameters": [(k, self.show(v)) for k, v in container._parameters.items()],
            "plain": [k for k in container.__dict__ if not k.startswith("_") and k != "training"],
            "size": getattr(container, "_size", None),
            "keys": list(getattr(container, "_keys", ())),
            "length": len(container),
            "repr": text,
            "dir": [k for k in dir(container) if k[:1] in "abc0123456789" and len(k) == 1],
            "state_dict": list(container.state_dict()),
        }


def outcome(world, act):
    try:
        value = act()
    except Exception as error:
        return type(error), str(error.args[0]) if error.args else ""
    return "returned", world.show(value)


def index(rng, n):
    low, high = -n - 2, n + 2
    if rng.random() < 0.05:
        return rng.choice(["0", 1.5, None])
    return rng.randint(low, high)


def part(rng, n):
    bounds = [rng.choice([None, rng.randint(-n - 1, n + 1)]) for _ in range(2)]
    return slice(*bounds, rng.choice([None, 1, 2, -1, -2]))


# -- Sequential and ModuleList ---------------------------------------------------------------------


def numbered(keys):
    return keys == [str(i) for i in range(len(keys))]


def draw_row(rng, keys, sequential):
    """An operation for a Sequential or ModuleList with these names: a label and plain arguments."""
    n = len(keys)
    module = rng.randrange(POOL + 1) if rng.random() < 0.9 else ("bad", rng.choice([3, "x"]))
    several = [rng.randrange(POOL + 1) for _ in range(rng.randint(0, 3))]
    common = [
        "get",
        "slice",
        "set",
        "del",
        "del slice",
        "append",
        "extend",
        "iadd",
        "insert",
        "pop",
    ]
    common += ["pop slice", "add", "attribute", "delattr", "copy", "wrong", "iterate"]
    only = ["mul", "rmul", "imul", "call"] if sequential else []
    op = rng.choice(common + only)
    if op in ("get", "del", "pop"):
        return op, index(rng, n)
    if op in ("slice", "del slice", "pop slice"):
        return op, part(rng, n)
    if op == "set":
        return op, index(rng, n), module
    if op == "insert":
        return op, rng.randint(-n - 1, n + 1), module
    if op == "append":
        return op, module
    if op in ("extend", "iadd", "add"):
        return op, several
    if op in ("attribute", "delattr"):
        return op, rng.choice("abc"), module
    if op == "wrong":
        return op, rng.choice(["extend", "iadd", "add"]), rng.choice([3, None])
    if op in ("mul", "rmul", "imul"):
        return op, rng.choice([-1, 0, 1, 2, 2, 3, True, 1.5, "2"])
    return (op,)


def row_skip(op, keys, sequential):
    """Is this where we differ on purpose?"""
    n = len(keys)
    name, *args = op
    if name in ("del", "pop", "del slice", "pop slice"):
        if any(not key.isdigit() for key in keys):
            return True
    if not sequential and name in ("del", "pop", "del slice", "pop slice") and not numbered(keys):
        return True
    if name == "append":
        return str(n) in keys
    if name in ("extend", "iadd"):
        return any(str(n + i) in keys for i in range(len(args[0])))
    if name == "imul":
        return "0" in keys and not numbered(keys)
    if name == "insert":
        i, module = args
        at_end = i == n
        if not sequential and (not 0 <= i <= n or isinstance(module, tuple)):
            return True
        return str(n) in keys if at_end else not numbered(keys)
    return False


def act_row(world, container, op):
    """Does it; returns a function to call and the container that is looked at from now on."""
    name, *args = op
    nn = world.impl.nn
    sequential = isinstance(container, nn.Sequential)
    several = lambda: [world.module(i) for i in args[0]]  # noqa: E731
    other = lambda: nn.Sequential(*several()) if sequential else several()  # noqa: E731
    acts = {
        "get": lambda: container[args[0]],
        "slice": lambda: container[args[0]],
        "set": lambda: container.__setitem__(args[0], world.module(args[1])),
        "del": lambda: container.__delitem__(args[0]),
        "del slice": lambda: container.__delitem__(args[0]),
        "pop": lambda: container.pop(args[0]),
        "pop slice": lambda: container.pop(args[0]),
        "append": lambda: container.append(world.module(args[0])) is container,
        "extend": lambda: container.extend(several()) is container,
        "iadd": lambda: container.__iadd__(other()) is container,
        "insert": lambda: container.insert(args[0], world.module(args[1])),
        "add": lambda: container + other(),
        "attribute": lambda: setattr(container, args[0], world.module(args[1])),
        "delattr": lambda: delattr(container, args[0]),
        "copy": lambda: copy.copy(container),
        "wrong": lambda: {
            "extend": container.extend,
            "iadd": container.__iadd__,
            "add": container.__add__,
        }[args[0]](args[1]),
        "iterate": lambda: [
            list(container),
            list(reversed(container)),
            world.modules[1] in container,
        ],
        "mul": lambda: container * args[0],
        "rmul": lambda: args[0] * container,
        "imul": lambda: container.__imul__(args[0]) is container,
        "call": lambda: container([]),
    }
    return acts[name]


@pytest.mark.parametrize(
    "kind", ["Sequential", "Sequential named", "Sequential part", "ModuleList"]
)
def test_rows(kind):
    for seed in SEEDS:
        rng = random.Random(f"{kind} {seed}")
        worlds = [World("torch"), World("modtree")]
        start = [rng.randrange(POOL) for _ in range(rng.randint(0, 5))]
        pairs = list(zip(rng.sample("abcdef", len(start)), start, strict=True))
        containers = []
        for w in worlds:
            modules = [w.module(i) for i in start]
            nn = w.impl.nn
            if kind == "Sequential named":
                containers.append(nn.Sequential(OrderedDict((k, w.module(i)) for k, i in pairs)))
            elif kind == "ModuleList":
                containers.append(nn.ModuleList(modules))
            else:
                containers.append(nn.Sequential(*modules)[1 if "part" in kind else 0 :])
        run(f"{kind}, seed {seed}", rng, worlds, containers, draw_row, row_skip, act_row)


def run(label, rng, worlds, containers, draw, skip, act):
    sequential = type(containers[0]).__name__ == "Sequential"
    done = []
    for _ in range(STEPS):
        keys = list(containers[0]._modules)
        op = draw(rng, keys, sequential)
        if skip(op, keys, sequential) or len(keys) > 60:
            continue
        done.append(op)
        compare(
            f"{label}: {done}",
            worlds,
            containers,
            [act(w, c, op) for w, c in zip(worlds, containers, strict=True)],
        )


def compare(label, worlds, containers, acts):
    theirs, ours = (outcome(w, act) for w, act in zip(worlds, acts, strict=True))
    if isinstance(theirs[0], type):
        expected = theirs[0]
        if (
            expected is AttributeError
            and isinstance(ours[0], type)
            and issubclass(ours[0], KeyError)
        ):
            expected = ours[0]  # a missing key of a ParameterDict is both
            assert issubclass(expected, AttributeError), (label, theirs, ours)
        assert ours[0] is expected, (label, theirs, ours)
        for text in TEXTS:
            assert text not in theirs[1] or text in ours[1], (label, theirs, ours)
    else:
        assert theirs == ours, (label, theirs, ours)
    states = [w.state(c) for w, c in zip(worlds, containers, strict=True)]
    assert states[0] == states[1], (label, states)


# -- ModuleDict, ParameterList, ParameterDict ------------------------------------------------------


def draw_dict(rng, world_size, kind):
    value = rng.randrange(world_size)
    pairs = [(rng.choice(NAMES[:3]), rng.randrange(world_size)) for _ in range(rng.randint(0, 3))]
    name = rng.choice(NAMES[:5] + NAMES[:3] * 3) if kind == "ParameterDict" else rng.choice(NAMES)
    common = [
        "get",
        "set",
        "del",
        "pop",
        "in",
        "update",
        "update pairs",
        "update wrong",
        "attribute",
    ]
    common += ["views", "clear", "copy", "pickle"]
    only = [
        "popitem",
        "setdefault",
        ".get",
        "or",
        "ror",
        "ior",
        "fromkeys",
        "dict copy",
        "reversed",
    ]
    return rng.choice(common + (only if kind == "ParameterDict" else [])), name, value, pairs


def act_dict(world, d, op, kind):
    what, name, value, pairs = op
    pool = world.modules if kind == "ModuleDict" else world.values
    made = lambda: {k: pool[i] for k, i in pairs}  # noqa: E731
    acts = {
        "get": lambda: d[name],
        "set": lambda: d.__setitem__(name, pool[value]),
        "del": lambda: d.__delitem__(name),
        "pop": lambda: d.pop(name),
        "in": lambda: name in d,
        "update": lambda: d.update(made()),
        "update pairs": lambda: d.update([[k, pool[i]] for k, i in pairs]),
        "update wrong": lambda: d.update([3, [3], [(1, 2, 3)], ["a"], None][value % 5]),
        "attribute": lambda: setattr(d, name[:1] + "_", world.modules[value % POOL]),
        "views": lambda: [list(d.keys()), list(d.items()), list(d.values()), list(d), len(d)],
        "clear": lambda: d.clear() if value == 0 else None,
        "copy": lambda: copy.copy(d),
        "pickle": lambda: list(pickle.loads(pickle.dumps(list(d.keys())))),
        "popitem": lambda: d.popitem(),
        "setdefault": lambda: d.setdefault(name, pool[value]),
        ".get": lambda: d.get(name, 5),
        "or": lambda: d | made(),
        "ror": lambda: list((made() | d).items()),
        "ior": lambda: d.__ior__(made()) is d,
        "fromkeys": lambda: d.fromkeys([k for k, _ in pairs], pool[value]),
        "dict copy": lambda: d.copy(),
        "reversed": lambda: list(reversed(d)),
    }
    return acts[what]


@pytest.mark.parametrize("leaves", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("kind", ["ModuleDict", "ParameterDict"])
def test_dicts(kind, leaves):
    for seed in SEEDS:
        rng = random.Random(f"{kind} {seed}")
        worlds = [World("torch"), World(leaves)]
        containers = [getattr(w.impl.nn, kind)() for w in worlds]
        size = len(worlds[0].modules if kind == "ModuleDict" else worlds[0].values)
        done = []
        for _ in range(STEPS):
            op = draw_dict(rng, size, kind)
            if not set_is_clean(containers[0], op, kind, worlds[0]):
                continue
            done.append(op)
            acts = [act_dict(w, d, op, kind) for w, d in zip(worlds, containers, strict=True)]
            compare(f"{kind}, seed {seed}: {done}", worlds, containers, acts)


def set_is_clean(d, op, kind, world):
    """Would torch leave no dangling key behind? (Tried on a copy, so that the real one stays
    whole.)
    """
    if kind == "ModuleDict":
        return True
    trial = copy.deepcopy(d)
    with contextlib.suppress(Exception):
        act_dict(world, trial, op, kind)()
    return all(hasattr(trial, key) for key in trial._keys if isinstance(key, str))


def draw_list(rng, n, size):
    several = [rng.randrange(size) for _ in range(rng.randint(0, 3))]
    op = rng.choice(
        ["get", "slice", "set", "append", "extend", "iadd", "self", "iterate", "wrong", "copy"]
    )
    argument = part(rng, n) if op == "slice" else index(rng, n)
    return op, argument, rng.randrange(size), several


def act_list(world, entries, op):
    what, argument, value, several = op
    pool = world.values
    return {
        "get": lambda: entries[argument],
        "slice": lambda: entries[argument],
        "set": lambda: entries.__setitem__(argument, pool[value]),
        "append": lambda: entries.append(pool[value]) is entries,
        "extend": lambda: entries.extend(pool[i] for i in several) is entries,
        "iadd": lambda: entries.__iadd__([pool[i] for i in several]) is entries,
        "self": lambda: entries.extend(entries[:2]) is entries,
        "iterate": lambda: [list(entries), len(entries), bool(entries)],
        "wrong": lambda: entries.extend([3, None, world.values[0]][value % 3]),
        "copy": lambda: copy.copy(entries),
    }[what]


@pytest.mark.parametrize("leaves", ["modtree", "modtree-torch"])
def test_parameter_lists(leaves):
    for seed in SEEDS:
        rng = random.Random(f"ParameterList {seed}")
        worlds = [World("torch"), World(leaves)]
        containers = [w.impl.nn.ParameterList() for w in worlds]
        done = []
        for _ in range(STEPS):
            done.append(draw_list(rng, len(containers[0]), len(worlds[0].values)))
            acts = [act_list(w, c, done[-1]) for w, c in zip(worlds, containers, strict=True)]
            compare(f"ParameterList, seed {seed}: {done}", worlds, containers, acts)
