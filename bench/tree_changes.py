# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the table that change every module or every tensor of a tree, or copy it. Each has
trees of its own, so that none meets what another has left behind.
"""

from __future__ import annotations

import collections
import copy
import itertools
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import trees
from .common import CALLS, FLOOR, OURS, OURS_TORCH, TORCH_FLOOR, UNROLLED, Budget, Row, unrolled
from .trees import Side

if TYPE_CHECKING:
    from .bench_tree import Walked


def identity(tensor: Any) -> Any:
    return tensor


def exhaust(iterator: Iterator[Any]) -> None:
    """Runs an iterator to its end and keeps nothing."""
    collections.deque(iterator, maxlen=0)


class Plain:
    """What the floors read and write. A value of the class under the same name would keep CPython
    from its quickest way, from 3.12 on.
    """

    def __init__(self) -> None:
        self.training = True
        self.grad: Any = None


def plain_reads() -> tuple[Callable[[], None], int]:
    """One read of a plain attribute of a Python object, many times; and how many."""
    return unrolled("m.training", m=Plain()), UNROLLED


def _train(w: Walked) -> Iterator[Row]:
    """Like its floor, one plain read in a loop, the row of many calls finds all that it needs near
    the processor. The row of one call comes after the turns of the other sides, and so does its
    floor: a read of each of as many objects.
    """
    runs: dict[str, Callable[..., Any]] = {}
    for name, m in w.fresh().items():
        modes = itertools.cycle((False, True))
        runs[name] = lambda m=m, modes=modes: m.train(next(modes))
    count = len(w.module_names)
    objects, read = [Plain() for _ in w.module_names], operator.attrgetter("training")
    single = runs | {FLOOR: lambda: exhaust(map(read, objects))}
    title = "one `m.train()` / `m.eval()`; floor: a plain read of each of as many objects"
    yield Row(f"{w.label}.train.once", title, "module", count, single)
    reads, number = plain_reads()
    title = "`m.train()` / `m.eval()`, many calls; floor: one plain read"
    budgets, counts = (Budget(3), Budget(3, OURS_TORCH)), {FLOOR: number}
    row = Row(
        f"{w.label}.train", title, "module", count, runs | {FLOOR: reads}, {}, budgets, counts
    )
    yield row.in_a_row(CALLS)


def _apply(w: Walked) -> Row:
    arrays = w.fresh_arrays()
    runs = {FLOOR: lambda: exhaust(map(identity, arrays))}
    runs |= {name: (lambda m=m: m._apply(identity)) for name, m in w.fresh().items()}
    side = w.torch_side()
    if side is not None:
        tensors = [side.parameter() for _ in w.entries]
        runs[TORCH_FLOOR] = lambda: exhaust(map(identity, tensors))
    budgets = (Budget(1.8), Budget(3, OURS_TORCH, TORCH_FLOOR))
    title, count = "`m._apply(identity)`", len(w.entries)
    return Row(f"{w.label}.apply", title, "tensor", count, runs, budgets=budgets)


def _cast(w: Walked) -> Row:
    arrays = [np.zeros(trees.SHAPE, np.float32) for _ in w.entries]
    targets = itertools.cycle((np.float64, np.float32))

    # Like a module it lets the old array go as soon as it has the new one, before the clock stops.
    def floor() -> None:
        dtype = next(targets)
        for i, array in enumerate(arrays):
            arrays[i] = array.astype(dtype)

    runs: dict[str, Callable[..., Any]] = {FLOOR: floor}
    for name, m in w.fresh().items():
        lib = w.sides[name].lib
        dtypes = itertools.cycle((lib.float64, lib.float32))
        runs[name] = lambda m=m, dtypes=dtypes: m.to(next(dtypes))
    title, count = "`m.to(dtype)`, a real cast", len(w.entries)
    return Row(f"{w.label}.to", title, "tensor", count, runs, budgets=(Budget(1.5),))


def _zero_grad(w: Walked) -> Row:
    made = w.fresh()

    def giving(name: str) -> Callable[[], None]:
        grad = w.sides[name].zeros()

        def setup() -> None:
            for p in made[name].parameters():
                p.grad = grad

        return setup

    plain = [Plain() for _ in w.names]

    def give_plain() -> None:
        for p in plain:
            p.grad = plain

    def floor(_: Any) -> None:
        for p in plain:
            p.grad = None

    runs: dict[str, Callable[..., Any]] = {FLOOR: floor}
    runs |= {name: (lambda _, m=m: m.zero_grad()) for name, m in made.items()}
    setups = {FLOOR: give_plain} | {name: giving(name) for name in made}
    title, count = "`m.zero_grad()`", len(w.names)
    return Row(f"{w.label}.zero_grad", title, "parameter", count, runs, setups)


def whole(w: Walked) -> Iterator[Row]:
    """Rows that change every module or every tensor."""
    yield from _train(w)
    yield _apply(w)
    yield _cast(w)
    yield _zero_grad(w)


def nested_dicts(w: Walked) -> dict[str, Any]:
    """The tree as dicts of arrays, one dict for each module."""
    root: dict[str, Any] = {}
    for name in w.module_names[1:]:
        _at(root, name.split("."))
    for name, array in zip(w.entries, w.arrays, strict=True):
        *path, key = name.split(".")
        _at(root, path)[key] = array.copy()
    return root


def _at(root: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for part in path:
        root = root.setdefault(part, {})
    return root


def _bare_copy(node: dict[str, Any]) -> dict[str, Any]:
    """The least work of a copy: every dict and array, with nothing looked up or remembered."""
    return {k: _bare_copy(v) if type(v) is dict else v.copy() for k, v in node.items()}


def copies(w: Walked) -> Iterator[Row]:
    """deepcopy and pickle; the floor is the same tree as nested dicts of arrays."""
    count, label = len(w.module_names), w.label
    values = {FLOOR: nested_dicts(w)} | w.trees
    dumped: dict[str, bytes] = {}

    def of(reach: float) -> tuple[Budget, ...]:
        return (Budget(reach),)

    def dumps_of(value: Any) -> Callable[[], bytes]:
        return lambda: pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads_of(name: str, value: Any) -> Callable[[], bytes]:
        def setup() -> bytes:
            if name not in dumped:
                dumped[name] = dumps_of(value)()
            return dumped[name]

        return setup

    runs: dict[str, Callable[..., Any]]
    runs = {name: (lambda v=v: copy.deepcopy(v)) for name, v in values.items()}
    yield Row(
        f"{label}.deepcopy", "`copy.deepcopy(m)`", "module", count, dict(runs), budgets=of(0.6)
    )
    runs[FLOOR] = lambda: _bare_copy(values[FLOOR])
    title = "`copy.deepcopy(m)`; floor: bare copies of dicts and arrays"
    yield Row(f"{label}.deepcopy.bare", title, "module", count, runs)
    runs = {name: dumps_of(v) for name, v in values.items()}
    yield Row(f"{label}.dumps", "`pickle.dumps(m)`", "module", count, runs, budgets=of(1.5))
    runs = dict.fromkeys(values, pickle.loads)
    setups = {name: loads_of(name, v) for name, v in values.items()}
    yield Row(f"{label}.loads", "`pickle.loads(...)`", "module", count, runs, setups, of(1.6))


def construction(w: Walked) -> Row:
    """Building the tree from tensors that are there already; the floor builds plain Python
    objects.
    """
    sides = {FLOOR: trees.side(FLOOR)} | w.sides

    def maker(s: Side) -> Callable[[], Any]:
        leaves = list(itertools.islice(s.leaves(), len(w.names)))
        return lambda: w.build(s, iter(leaves))

    budgets = (Budget(400, OURS, None), Budget(400, OURS_TORCH, None))
    runs = {name: maker(s) for name, s in sides.items()}
    title, count = "construct the tree, its tensors given", len(w.module_names)
    return Row(f"{w.label}.construct", title, "module", count, runs, budgets=budgets)
