# SPDX-License-Identifier: BSD-3-Clause
"""Rows that find, observe and replace parts of a tree (``modtree.editing``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import modtree as mt

from .common import FLOOR, OURS, Budget, Row
from .trees import Side

_BLOCKS = 1_667  # of 12 modules each: 20,006 with the root and the list
_LAYERS = 100
_PATTERNS = ("layers.*.attn.{q,k,v}_proj", "**.attn.q_proj", "**.mlp.*", "layers[8:].mlp")


def _transformer(s: Side, blocks: int = _BLOCKS) -> Any:
    """Blocks of empty modules, with the names of a transformer's."""

    def module(**children: Any) -> Any:
        made = s.Module()
        for name, child in children.items():
            setattr(made, name, child)
        return made

    def block() -> Any:
        attn = module(q_proj=module(), k_proj=module(), v_proj=module(), o_proj=module())
        mlp = module(up=module(), act=module(), down=module())
        return module(ln_1=module(), attn=attn, ln_2=module(), mlp=mlp)

    return module(layers=s.ModuleList([block() for _ in range(blocks)]))


def _finds(sides: list[Side]) -> Iterator[Row]:
    made = {s.name: _transformer(s) for s in sides}
    count = sum(1 for _ in next(iter(made.values())).modules())
    listed: dict[str, Callable[..., Any]] = {
        name: (lambda m=m: list(m.named_modules())) for name, m in made.items()
    }
    yield Row("editing.walk", "`list(m.named_modules())`", "module", count, listed)
    for i, pattern in enumerate(_PATTERNS):
        runs: dict[str, Callable[..., Any]] = {
            name: (lambda m=m, p=pattern: mt.find(m, p).modules) for name, m in made.items()
        }
        title = f"`mt.find(m, '{pattern}').modules`, the floor is `list(m.named_modules())`"
        floor = listed.get(OURS)
        runs |= {} if floor is None else {FLOOR: floor}
        yield Row(f"editing.find{i}", title, "module", count, runs, budgets=(Budget(2),))


def _captures(sides: list[Side]) -> Iterator[Row]:
    """A call of many layers, one of which is observed."""

    def net(s: Side) -> Any:
        return s.Sequential(*[s.classes.Identity() for _ in range(_LAYERS)])

    plain, observed = ({s.name: net(s) for s in sides} for _ in range(2))
    calls = 50

    def several(m: Any) -> Callable[[], None]:
        def run() -> None:
            for _ in range(calls):
                m(1)

        return run

    opened = [mt.capture(m, "50", keep="last").__enter__() for m in observed.values()]
    runs = {name: several(m) for name, m in observed.items()}
    bare = {name: several(m) for name, m in plain.items()}
    yield Row("editing.call", f"`m(x)`, {_LAYERS} layers", "call", calls, bare)
    yield Row("editing.capture", "the same, one layer captured", "call", calls, runs)
    for acts in opened:
        acts.__exit__(None, None, None)


def _replaces(sides: list[Side]) -> Iterator[Row]:
    """As many modules as there are, then four times as many: the same for each."""
    for count in (1_000, 4_000):

        def swap(m: Any, s: Side) -> Callable[[], None]:
            new = s.Module()
            return lambda: mt.find(m, "*").replace(lambda path, module: new).undo()

        runs = {s.name: swap(s.ModuleList([s.Module() for _ in range(count)]), s) for s in sides}
        title = f"`mt.find(m, '*').replace(f)` and `undo()`, {count:,} modules"
        yield Row(f"editing.replace{count}", title, "module", count, runs)


def edit_rows(sides: list[Side]) -> Iterator[Row]:
    """What ``find``, ``capture`` and ``replace`` cost."""
    yield from _finds(sides)
    yield from _captures(sides)
    yield from _replaces(sides)
