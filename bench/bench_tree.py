# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the table that concern whole trees. ``micro.py`` has those of a single module."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from . import trees
from .common import FLOOR, OURS, OURS_TORCH, TORCH, TORCH_FLOOR, Budget, Row
from .trees import Side


class Walked:
    """One tree per side, and what the floors need: its names and tensors in lists."""

    def __init__(self, label: str, build: Callable[[Side], Any], sides: list[Side]) -> None:
        self.label = label
        self.sides = {s.name: s for s in sides}
        self.trees = {s.name: build(s) for s in sides}
        reference = self.trees[next(iter(self.trees))]
        self.names = [n for n, _ in reference.named_parameters()]
        self.entries = list(reference.state_dict())
        self.module_names = [n for n, _ in reference.named_modules()]
        self.modules = list(reference.modules())
        self.parameters = list(reference.parameters())
        self.arrays = [np.zeros(trees.SHAPE, np.float32) for _ in self.entries]
        self.other_arrays = [np.ones(trees.SHAPE, np.float32) for _ in self.entries]

    def each(self, operation: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
        return {name: (lambda m=tree: operation(m)) for name, tree in self.trees.items()}

    def torch_side(self) -> Side | None:
        return self.sides.get(TORCH) or self.sides.get(OURS_TORCH)

    def state(self, name: str) -> dict[str, Any]:
        """A state dict of tensors that belong to no module."""
        return {key: self.sides[name].zeros() for key in self.entries}


def _joined(names: list[str]) -> tuple[list[str], list[str]]:
    """The names split before their last part: joining them again is the least that a walk does for
    a name.
    """
    cuts = [n.rfind(".") + 1 for n in names]
    return [n[:c] for n, c in zip(names, cuts, strict=True)], [
        n[c:] for n, c in zip(names, cuts, strict=True)
    ]


def _by_owner(names: list[str], values: list[Any]) -> dict[str, dict[str, Any]]:
    """A dict like a module's registry for every module that has entries, by the module's prefix."""
    owners: dict[str, dict[str, Any]] = {}
    for prefix, key, value in zip(*_joined(names), values, strict=True):
        owners.setdefault(prefix, {})[key] = value
    return owners


def walks(w: Walked, fresh: Callable[[Side], Callable[[], Any]] | None) -> list[Row]:
    """Reading rows: traversal and state_dict. ``fresh`` makes, for a side, a function that builds a
    new tree.
    """
    label, count = w.label, len(w.names)
    prefixes, keys = _joined(w.names)
    module_prefixes, module_keys = _joined(w.module_names)
    registries = list(_by_owner(w.names, w.parameters).values())
    parameters, modules, entries = w.parameters, w.modules, w.entries

    def floor_parameters() -> list[Any]:
        return list(itertools.chain.from_iterable(map(dict.values, registries)))

    def floor_named() -> list[Any]:
        names = map(operator.add, prefixes, keys)
        return list(zip(names, parameters))  # noqa: B905 (the least work)

    def floor_modules() -> list[Any]:
        return list(zip(map(operator.add, module_prefixes, module_keys), modules))  # noqa: B905

    listed = [
        (
            "parameters",
            "list(m.parameters())",
            lambda m: list(m.parameters()),
            floor_parameters,
            count,
            (30, 15, None),
        ),
        (
            "named_parameters",
            "list(m.named_parameters())",
            lambda m: list(m.named_parameters()),
            floor_named,
            count,
            (1.5, 1.1, FLOOR),
        ),
        (
            "named_modules",
            "list(m.named_modules())",
            lambda m: list(m.named_modules()),
            floor_modules,
            len(modules),
            (1.5, 1.1, FLOOR),
        ),
    ]
    rows = []
    for key, title, operation, floor, items, (first, repeated, of) in listed:
        if fresh is not None:
            runs = {FLOOR: floor} | {name: (lambda m, f=operation: f(m)) for name in w.trees}
            setups = {name: fresh(s) for name, s in w.sides.items()}
            budgets = (Budget(first, OURS, of), Budget(first, OURS_TORCH, of))
            rows.append(
                Row(
                    f"{label}.{key}.first",
                    f"`{title}`, first",
                    "item",
                    items,
                    runs,
                    setups,
                    budgets,
                )
            )
        runs = {FLOOR: floor} | w.each(operation)
        budgets = (Budget(repeated, OURS, of), Budget(repeated, OURS_TORCH, of))
        rows.append(
            Row(
                f"{label}.{key}.repeated",
                f"`{title}`, repeated",
                "item",
                items,
                runs,
                budgets=budgets,
            )
        )

    floor = {FLOOR: lambda: dict(zip(entries, w.arrays))}  # noqa: B905
    runs = floor | w.each(lambda m: m.state_dict())
    torch_side = w.torch_side()
    if torch_side is not None:
        tensors = [torch_side.parameter() for _ in entries]
        pairs = list(zip(entries, tensors, strict=True))
        runs[TORCH_FLOOR] = lambda: {name: tensor.detach() for name, tensor in pairs}
    budgets = (Budget(4), Budget(1.2, OURS_TORCH, TORCH_FLOOR))
    rows.append(
        Row(f"{label}.state_dict", "`m.state_dict()`", "entry", len(entries), runs, budgets=budgets)
    )
    return rows


def loads(w: Walked) -> list[Row]:
    """``load_state_dict``, copying and assigning."""
    arrays, others, count = w.arrays, w.other_arrays, len(w.entries)

    def floor_copy() -> None:
        for target, source in zip(arrays, others):  # noqa: B905
            target[...] = source

    states = {name: w.state(name) for name in w.trees}
    runs: dict[str, Callable[..., Any]] = {FLOOR: floor_copy}
    runs |= {
        name: (lambda m=m, sd=states[name]: m.load_state_dict(sd)) for name, m in w.trees.items()
    }
    torch_side = w.torch_side()
    if torch_side is not None:
        no_grad = torch_side.lib.no_grad
        targets = [torch_side.parameter() for _ in w.entries]
        sources = [torch_side.zeros() for _ in w.entries]

        def torch_copy() -> None:
            with no_grad():
                for target, source in zip(targets, sources):  # noqa: B905
                    target.copy_(source)

        runs[TORCH_FLOOR] = torch_copy
    budgets = (Budget(3), Budget(1.3, OURS_TORCH, TORCH_FLOOR))
    rows = [
        Row(f"{w.label}.load", "`m.load_state_dict(sd)`", "entry", count, runs, budgets=budgets)
    ]

    owners = _by_owner(w.entries, others)
    slots = [((owners[o], key), o + key) for o, key in zip(*_joined(w.entries), strict=True)]
    source = dict(zip(w.entries, others, strict=True))

    def floor_assign() -> None:
        for (registry, key), name in slots:
            registry[key] = source[name]

    # Assigning replaces the parameters of the tree by those of the state dict: they are parameters
    # already here.
    def assigning(name: str, m: Any) -> Callable[[], Any]:
        parameters = {n for n, _ in m.named_parameters()}
        s = w.sides[name]
        sd = {key: s.parameter() if key in parameters else s.zeros() for key in w.entries}
        return lambda: m.load_state_dict(sd, assign=True)

    runs = {FLOOR: floor_assign} | {name: assigning(name, m) for name, m in w.trees.items()}
    budgets = (Budget(5), Budget(5, OURS_TORCH))
    rows.append(
        Row(
            f"{w.label}.load.assign",
            "`m.load_state_dict(sd, assign=True)`",
            "entry",
            count,
            runs,
            budgets=budgets,
        )
    )
    return rows


def _identity(tensor: Any) -> Any:
    return tensor


def whole(w: Walked) -> list[Row]:
    """Rows that change every module or every tensor."""
    label, arrays, count = w.label, w.arrays, len(w.entries)
    modes = {name: itertools.cycle((True, False)) for name in w.trees}
    runs = {
        name: (lambda m=m, mode=modes[name]: m.train(next(mode))) for name, m in w.trees.items()
    }
    budgets = (Budget(15, OURS, None), Budget(15, OURS_TORCH, None))
    rows = [
        Row(
            f"{label}.train",
            "`m.train()` / `m.eval()`",
            "module",
            len(w.modules),
            runs,
            budgets=budgets,
        )
    ]

    runs = {FLOOR: lambda: list(map(_identity, arrays))} | w.each(lambda m: m._apply(_identity))
    budgets = (Budget(3), Budget(3, OURS_TORCH))
    rows.append(
        Row(f"{label}.apply", "`m._apply(identity)`", "tensor", count, runs, budgets=budgets)
    )

    dtypes = {n: itertools.cycle((s.lib.float64, s.lib.float32)) for n, s in w.sides.items()}
    runs = {FLOOR: lambda: [a.astype(np.float64) for a in arrays]}
    runs |= {name: (lambda m=m, d=dtypes[name]: m.to(next(d))) for name, m in w.trees.items()}
    rows.append(
        Row(
            f"{label}.to", "`m.to(dtype)`, a real cast", "tensor", count, runs, budgets=(Budget(4),)
        )
    )

    def with_grads(name: str, m: Any) -> Callable[[], None]:
        def set_grads() -> None:
            m.to(w.sides[name].lib.float32)
            grad = w.sides[name].zeros()
            for p in m.parameters():
                p.grad = grad

        return set_grads

    runs = {name: (lambda _, m=m: m.zero_grad()) for name, m in w.trees.items()}
    setups = {name: with_grads(name, m) for name, m in w.trees.items()}
    budgets = (Budget(25, OURS, None), Budget(25, OURS_TORCH, None))
    rows.append(
        Row(
            f"{label}.zero_grad",
            "`m.zero_grad()`",
            "parameter",
            len(w.names),
            runs,
            setups,
            budgets,
        )
    )
    return rows


def copies(w: Walked) -> list[Row]:
    """deepcopy and pickle; the floor is the same tree as nested dicts of arrays."""
    count = len(w.modules)
    if len(w.names) == 47_092:
        nested: Any = trees.nested_dicts(iter(w.arrays))
    else:
        nested = dict(zip(w.entries, w.arrays, strict=True))
    nested = copy.deepcopy(nested)
    budgets = (Budget(5),)
    dumped: dict[str, bytes] = {}

    def dumps(name: str, value: Any) -> Callable[[], bytes]:
        return lambda: pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads_of(name: str, value: Any) -> Callable[[], bytes]:
        def setup() -> bytes:
            if name not in dumped:
                dumped[name] = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            return dumped[name]

        return setup

    values = {FLOOR: nested} | w.trees
    key, per = f"{w.label}.", "module"
    return [
        Row(
            key + "deepcopy",
            "`copy.deepcopy(m)`",
            per,
            count,
            {n: (lambda v=v: copy.deepcopy(v)) for n, v in values.items()},
            budgets=budgets,
        ),
        Row(
            key + "dumps",
            "`pickle.dumps(m)`",
            per,
            count,
            {n: dumps(n, v) for n, v in values.items()},
            budgets=budgets,
        ),
        Row(
            key + "loads",
            "`pickle.loads(...)`",
            per,
            count,
            dict.fromkeys(values, pickle.loads),
            {n: loads_of(n, v) for n, v in values.items()},
            budgets,
        ),
    ]


def construction(w: Walked) -> Row:
    """Building the tree from tensors that are there already; the floor builds plain Python
    objects.
    """
    sides = {FLOOR: trees.side(FLOOR)} | w.sides

    def maker(s: Side) -> Callable[[], Any]:
        leaves = list(itertools.islice(s.leaves(), len(w.names)))
        return lambda: trees.expert_tree(s, iter(leaves))

    budgets = (Budget(400, OURS, None), Budget(400, OURS_TORCH, None))
    runs = {name: maker(s) for name, s in sides.items()}
    return Row(
        f"{w.label}.construct",
        "construct the tree, its tensors given",
        "module",
        len(w.modules),
        runs,
        budgets=budgets,
    )


def expert_rows(sides: list[Side]) -> list[Row]:
    w = Walked("experts", trees.expert_tree, sides)

    def fresh(s: Side) -> Callable[[], Any]:
        leaves = list(itertools.islice(s.leaves(), len(w.names)))
        return lambda: trees.expert_tree(s, iter(leaves))

    # to(dtype) leaves other parameters behind and copies follow them: the order of the rows matters
    # little, but everything that reads comes first.
    return [construction(w), *walks(w, fresh), *loads(w), *whole(w), *copies(w)]


def resnet_rows(sides: list[Side]) -> list[Row]:
    w = Walked("resnet50", trees.resnet50, sides)
    return [*walks(w, None), *loads(w), *whole(w), *copies(w)]


def chain_rows(sides: list[Side]) -> list[Row]:
    w = Walked("chain900", trees.chain, sides)
    return [*walks(w, None), *loads(w), *whole(w)]
