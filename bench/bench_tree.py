# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the table that read or load whole trees. ``tree_changes.py`` has those that change or
copy them, ``tree_calls.py`` those per call and of the chain, ``micro.py`` those of one module.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from . import trees
from .common import CALLS, FLOOR, OURS_TORCH, TORCH, TORCH_FLOOR, Budget, Row
from .tree_changes import construction, copies, whole
from .trees import Side

SMALL = 496  # modules: 990 parameters


class Walked:
    """One tree per side that is only read, and what the floors need.

    The floors have a tree of their own, which lies in memory as the others do: a list of a side's
    leaves or modules would be a second holder of them, on that side only.
    """

    def __init__(self, label: str, build: Callable[..., Any], sides: list[Side]) -> None:
        self.label = label
        self.build = build
        self.sides = {s.name: s for s in sides}
        self.trees = self.fresh()
        reference = build(sides[0])
        self.leaves = list(reference.parameters())
        self.modules = list(reference.modules())
        self.names = [n for n, _ in reference.named_parameters()]
        self.entries = list(reference.state_dict())
        self.module_names = [n for n, _ in reference.named_modules()]
        self.arrays = self.fresh_arrays()

    def fresh(self) -> dict[str, Any]:
        """A new tree per side, for a row that changes it: no row sees what another has done."""
        return {name: self.build(s) for name, s in self.sides.items()}

    def fresh_arrays(self) -> list[Any]:
        """An array for each entry: for a floor beside fresh() trees, which lies in memory as they
        do, with what other rows have left free in between.
        """
        return [np.zeros(trees.SHAPE, np.float32) for _ in self.entries]

    def each(self, operation: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
        return {name: (lambda m=tree: operation(m)) for name, tree in self.trees.items()}

    def torch_side(self) -> Side | None:
        return self.sides.get(TORCH) or self.sides.get(OURS_TORCH)

    def state(self, name: str) -> dict[str, Any]:
        """A state dict of tensors that belong to no module."""
        return {key: self.sides[name].zeros() for key in self.entries}


def joined(names: list[str]) -> tuple[list[str], list[str]]:
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
    for prefix, key, value in zip(*joined(names), values, strict=True):
        owners.setdefault(prefix, {})[key] = value
    return owners


def _both(of_floor: float) -> tuple[Budget, ...]:
    return (Budget(of_floor), Budget(of_floor, OURS_TORCH))


def _named_floor(names: list[str], values: list[Any]) -> Callable[[], list[Any]]:
    prefixes, keys = joined(names)
    return lambda: list(zip(map(operator.add, prefixes, keys), values))  # noqa: B905 (least work)


def _values_floor(names: list[str], values: list[Any]) -> Callable[[], list[Any]]:
    registries = list(_by_owner(names, values).values())
    return lambda: list(itertools.chain.from_iterable(map(dict.values, registries)))


def walks(w: Walked, first: bool) -> Iterator[Row]:
    """Traversals: on a tree that was walked before and, with ``first``, on one just built."""
    leaves, modules = w.leaves, w.modules
    listed = [
        ("parameters", lambda m: list(m.parameters()), _values_floor(w.names, leaves), 1.2),
        ("modules", lambda m: list(m.modules()), _values_floor(w.module_names, modules), 1.2),
        (
            "named_parameters",
            lambda m: list(m.named_parameters()),
            _named_floor(w.names, leaves),
            1.1,
        ),
        (
            "named_modules",
            lambda m: list(m.named_modules()),
            _named_floor(w.module_names, modules),
            1.1,
        ),
    ]
    for key, operation, floor, reach in listed:
        title = f"`list(m.{key}())`"
        items = len(modules) if key.endswith("modules") else len(leaves)
        if first:
            runs = {FLOOR: floor} | dict.fromkeys(w.sides, operation)
            # Nothing but the tree holds its leaves, as in a program.
            setups = {name: (lambda s=s: w.build(s)) for name, s in w.sides.items()}
            yield Row(f"{w.label}.{key}.first", f"{title}, first", "item", items, runs, setups)
        runs = {FLOOR: floor} | w.each(operation)
        yield Row(
            f"{w.label}.{key}.repeated",
            f"{title}, repeated",
            "item",
            items,
            runs,
            budgets=_both(reach),
        )


def state_dicts(w: Walked) -> Iterator[Row]:
    """``state_dict()``: against floors whose names are ready, and against floors that make them."""
    entries, arrays = w.entries, w.arrays
    prefixes, keys = joined(entries)
    side = w.torch_side()
    tensors = [] if side is None else [side.parameter() for _ in entries]
    ready = w.each(lambda m: m.state_dict())
    fresh = dict(ready)
    ready[FLOOR] = lambda: dict(zip(entries, arrays))  # noqa: B905
    fresh[FLOOR] = lambda: dict(zip(map(operator.add, prefixes, keys), arrays))  # noqa: B905
    if tensors:
        pairs = list(zip(entries, tensors, strict=True))
        parts = list(zip(prefixes, keys, tensors, strict=True))
        ready[TORCH_FLOOR] = lambda: {name: tensor.detach() for name, tensor in pairs}
        fresh[TORCH_FLOOR] = lambda: {p + k: tensor.detach() for p, k, tensor in parts}
    budgets = (Budget(2.5), Budget(1.15, OURS_TORCH, TORCH_FLOOR))
    title, count = "`m.state_dict()`", len(entries)
    yield Row(f"{w.label}.state_dict", title, "entry", count, ready, budgets=budgets)
    title += ", the floors join the names"
    yield Row(f"{w.label}.state_dict.names", title, "entry", count, fresh)


def _copying(w: Walked) -> Row:
    arrays, others = w.fresh_arrays(), w.fresh_arrays()

    def floor() -> None:
        for target, source in zip(arrays, others):  # noqa: B905
            target[...] = source

    runs: dict[str, Callable[..., Any]] = {FLOOR: floor}
    for name, m in w.fresh().items():
        runs[name] = functools.partial(m.load_state_dict, w.state(name))
    side = w.torch_side()
    if side is not None:
        no_grad = side.lib.no_grad
        targets = [side.parameter() for _ in w.entries]
        sources = [side.zeros() for _ in w.entries]

        def torch_floor() -> None:
            with no_grad():
                for target, source in zip(targets, sources):  # noqa: B905
                    target.copy_(source)

        runs[TORCH_FLOOR] = torch_floor
    budgets = (Budget(1.3), Budget(0.8, OURS_TORCH, TORCH_FLOOR))
    title, count = "`m.load_state_dict(sd)`", len(w.entries)
    return Row(f"{w.label}.load", title, "entry", count, runs, budgets=budgets)


def _assigning(w: Walked) -> Row:
    arrays = [object() for _ in w.entries]
    owners = _by_owner(w.entries, arrays)
    slots = [((owners[o], key), o + key) for o, key in zip(*joined(w.entries), strict=True)]
    source = dict(zip(w.entries, arrays, strict=True))

    def floor() -> None:
        for (registry, key), name in slots:
            registry[key] = source[name]

    # Assigning replaces the parameters of the tree by those of the state dict: they are parameters
    # already here.
    def assigning(name: str, m: Any) -> Callable[[], Any]:
        parameters, s = set(w.names), w.sides[name]
        sd = {key: s.parameter() if key in parameters else s.zeros() for key in w.entries}
        return lambda: m.load_state_dict(sd, assign=True)

    runs = {FLOOR: floor} | {name: assigning(name, m) for name, m in w.fresh().items()}
    title, count = "`m.load_state_dict(sd, assign=True)`", len(w.entries)
    return Row(f"{w.label}.load.assign", title, "entry", count, runs, budgets=_both(5))


def loads(w: Walked) -> Iterator[Row]:
    """``load_state_dict``, copying and assigning."""
    yield _copying(w)
    yield _assigning(w)


def expert_rows(sides: list[Side]) -> Iterator[Row]:
    """All of these, of the expert tree."""
    w = Walked("experts", trees.expert_tree, sides)
    yield construction(w)
    yield from walks(w, first=True)
    yield from state_dicts(w)
    yield from loads(w)
    yield from whole(w)
    yield from copies(w)


def _held(w: Walked) -> Iterator[Row]:
    """The rows of the tree, with a list of each side's parameters and one of its modules."""
    kept = [(list(m.parameters()), list(m.modules())) for m in w.trees.values()]
    for row in walks(w, first=False):
        yield replace(row, key=row.key.replace(".repeated", ".held"), title=f"{row.title}, held")
    del kept  # not before the last row was measured


def held_rows(sides: list[Side]) -> Iterator[Row]:
    """The expert tree held, then the small net free and held.

    An optimizer, an average of the weights and lists of layers hold leaves and modules in every
    training. The floor of walks of a small net is not memory.
    """
    yield from _held(Walked("experts", trees.expert_tree, sides))
    small = Walked("small", lambda s: trees.pairs(s, SMALL), sides)
    for row in itertools.chain(walks(small, first=False), _held(small)):
        title = f"{row.title}, {len(small.leaves)} parameters"
        yield replace(row, title=title).in_a_row(CALLS)
