# SPDX-License-Identifier: BSD-3-Clause
"""Rows per call, of nets of 10, 150 and 1,000 modules, and the rows of a chain, where names are
long by nature: its floor is modtree's own work on the same modules side by side.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

from . import trees
from .bench_tree import Walked, joined
from .common import CALLS, FLOOR, OURS, OURS_TORCH, TORCH, TORCH_FLOOR, Budget, Row
from .trees import Side

#: How many times as fast as torch a call shall be, on the net that ResNet-50 has the shape of.
_REACH = {"train": 100, "parameters": 15, "zero_grad": 15, "state_dict": 10}
_CALLS_OF = (
    20_000  # modules that a timed run goes through, so that it is longer than the clock's grain
)


def _net(modules: int) -> Callable[[Side], Any]:
    if modules == 150:
        return trees.resnet50
    return lambda s: trees.pairs(s, modules)


def _repeated(operation: Callable[[Any], Any], m: Any, calls: int) -> Callable[[], None]:
    def run() -> None:
        for _ in itertools.repeat(None, calls):
            operation(m)

    return run


def _budgets(key: str, modules: int) -> tuple[Budget, ...]:
    if modules != 150 or key not in _REACH:
        return ()
    limit = 1 / _REACH[key]
    return (Budget(limit, OURS, TORCH), Budget(limit, OURS_TORCH, TORCH))


def call_rows(sides: list[Side]) -> Iterator[Row]:
    """What one call costs, by the size of the net."""
    operations: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "train": ("`m.train()`", lambda m: m.train()),
        "parameters": ("`list(m.parameters())`", lambda m: list(m.parameters())),
        "modules": ("`list(m.modules())`", lambda m: list(m.modules())),
        "zero_grad": ("`m.zero_grad()`, no gradients", lambda m: m.zero_grad()),
        "state_dict": ("`m.state_dict()`", lambda m: m.state_dict()),
    }
    for modules in (10, 150, 1000):
        build, calls = _net(modules), _CALLS_OF // modules
        made = {s.name: build(s) for s in sides}
        for key, (title, operation) in operations.items():
            runs = {name: _repeated(operation, m, calls) for name, m in made.items()}
            yield Row(
                f"calls{modules}.{key}",
                f"{title}, {modules:,} modules",
                "call",
                calls,
                runs,
                budgets=_budgets(key, modules),
            )
        runs = {}
        for s in sides:
            state = {name: s.zeros() for name in made[s.name].state_dict()}
            load = lambda m, sd=state: m.load_state_dict(sd)  # noqa: E731
            runs[s.name] = _repeated(load, build(s), calls)
        title = f"`m.load_state_dict(sd)`, {modules:,} modules"
        yield Row(f"calls{modules}.load", title, "call", calls, runs)


def _join(names: list[str]) -> Callable[[], Any]:
    """Makes every name of the chain anew and hashes it: their bytes, as the floor must count."""
    prefixes, keys = joined(names)
    return lambda: dict.fromkeys(map(operator.add, prefixes, keys))


def chain_rows(sides: list[Side], links: int = 900) -> Iterator[Row]:
    """The chain; the floors are modtree on as many modules in one flat list, and the bytes of the
    chain's names where the operation makes names.
    """
    w = Walked("chain900", lambda s: trees.chain(s, links), sides)
    length, join = len(w.module_names), _join(w.entries)
    flat = {s.name: trees.flat_links(s, length) for s in sides if s.name in (OURS, OURS_TORCH)}
    floors = {FLOOR: flat.get(OURS), TORCH_FLOOR: flat.get(OURS_TORCH)}
    floors = {name: m for name, m in floors.items() if m is not None}
    budgets = (Budget(5), Budget(5, OURS_TORCH, TORCH_FLOOR))

    def row(key: str, title: str, runs: dict[str, Any], reach: bool = True) -> Row:
        return Row(
            f"chain900.{key}", title, "module", length, runs, budgets=budgets if reach else ()
        )

    trained = w.each(lambda m: m.train()) | _over(floors, _trained)
    yield row("train", "`m.train()`", trained).in_a_row(CALLS)
    named = w.each(lambda m: list(m.named_parameters()))
    named |= _over(floors, lambda m: (list(m.named_parameters()), join()))
    yield row("named_parameters", "`list(m.named_parameters())`", named, reach=False)
    states = w.each(lambda m: m.state_dict())
    states |= _over(floors, lambda m: (m.state_dict(), join()))
    yield row("state_dict", "`m.state_dict()`", states)

    runs: dict[str, Callable[[], Any]] = {}
    for name, m in w.fresh().items():
        runs[name] = functools.partial(m.load_state_dict, w.state(name))
    for floor, m in floors.items():
        s = w.sides[OURS if floor == FLOOR else OURS_TORCH]
        state = {name: s.zeros() for name in m.state_dict()}
        runs[floor] = lambda m=m, sd=state: (m.load_state_dict(sd), join())
    yield row("load", "`m.load_state_dict(sd)`", runs)


def _trained(m: Any) -> Any:
    return m.train()


def _over(floors: dict[str, Any], operation: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
    return {name: (lambda m=m: operation(m)) for name, m in floors.items()}
