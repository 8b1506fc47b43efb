# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a single module: attributes, the call, construction, and memory."""

from __future__ import annotations

import functools
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from . import trees
from .common import FLOOR, OURS, OURS_TORCH, UNROLLED, Budget, Result, Row, unrolled
from .trees import Side


class _PlainCall:
    def __call__(self, x: Any) -> Any:
        return x


def rows(sides: list[Side]) -> list[Row]:
    plain = trees.side(FLOOR)
    every = [plain, *sides]

    def model(s: Side) -> Any:
        m = s.classes.Three(s.parameter(), s.parameter(), s.parameter())
        m.child = s.classes.Empty()
        m.flag = 1
        return m

    def per_side(
        statement: str, given: list[Side], value: Callable[[Side], Any] | None = None
    ) -> dict[str, Any]:
        runs = {}
        for s in given:
            names = {"m": model(s)} | ({} if value is None else {"v": value(s)})
            runs[s.name] = unrolled(statement, **names)
        return runs

    def both(limit: float, torch_leaves: float | None = None) -> tuple[Budget, ...]:
        return (Budget(limit), Budget(torch_leaves or limit, OURS_TORCH))

    def row(key: str, title: str, per: str, runs: dict[str, Any], *budgets: Budget) -> Row:
        return Row(key, title, per, UNROLLED, runs, budgets=budgets)

    def identity(s: Side, hooks: int) -> Any:
        m = s.classes.Identity()
        for _ in range(hooks):
            m.register_forward_hook(lambda module, args, output: None)
        return m

    def call(hooks: int) -> dict[str, Any]:
        return {s.name: unrolled("m(x)", m=identity(s, hooks), x=s.zeros()) for s in sides}

    def constructed(classes: dict[str, Any], statement: str) -> dict[str, Any]:
        return {name: unrolled(statement, C=C) for name, C in classes.items()}

    class Bare:
        pass

    forward = unrolled("f(m, x)", f=_PlainCall.__call__, m=_PlainCall(), x=plain.zeros())
    # The least that native code needs to hand a call on to a Python function.
    partial = functools.partial(_PlainCall.__call__, _PlainCall())
    native = unrolled("m(x)", m=partial, x=plain.zeros())
    empty = {FLOOR: Bare} | {s.name: s.classes.Empty for s in sides}
    layers = {s.name: s.lib.nn.Linear for s in sides if s.name != OURS_TORCH}
    hook = [Budget(100, name, None, over="call") for name in (OURS, OURS_TORCH)]
    parameter, child = (lambda s: s.parameter()), (lambda s: s.classes.Empty())
    return [
        row(
            "read.parameter",
            "read a parameter, `m.w2`",
            "read",
            per_side("m.w2", every),
            *both(3.5),
        ),
        row(
            "read.child", "read a child, `m.child`", "read", per_side("m.child", every), *both(4.5)
        ),
        row(
            "read.plain",
            "read a plain value, `m.flag`",
            "read",
            per_side("m.flag", every),
            *both(2.5),
        ),
        row(
            "write.parameter",
            "write a parameter",
            "write",
            per_side("m.w2 = v", every, parameter),
            *both(14, 22),
        ),
        row(
            "write.child",
            "write a child",
            "write",
            per_side("m.child = v", every, child),
            *both(14),
        ),
        row(
            "write.plain", "write a plain value", "write", per_side("m.flag = 2", every), *both(12)
        ),
        row(
            "call",
            "`m(x)`, identity forward; floor: a Python class's `__call__`",
            "call",
            {FLOOR: unrolled("m(x)", m=_PlainCall(), x=plain.zeros())} | call(0),
            *both(0.65),
        ),
        row(
            "call.direct",
            "`m(x)`, identity forward; floor: `forward(m, x)`",
            "call",
            {FLOOR: forward} | call(0),
            *both(1.5),
        ),
        row(
            "call.native",
            "`m(x)`, identity forward; floor: `functools.partial(forward, m)(x)`",
            "call",
            {FLOOR: native} | call(0),
        ),
        row("call.hook", "`m(x)` with one forward hook", "call", call(1), *hook),
        row(
            "construct.empty",
            "construct an empty subclass",
            "object",
            constructed(empty, "C()"),
            *both(1.5),
        ),
        row(
            "construct.linear", "construct `Linear(4, 4)`", "object", constructed(layers, "C(4, 4)")
        ),
    ]


def bytes_of(make: Callable[[], Any], count: int = 2000) -> float:
    """Bytes that one object takes, all that it allocates included."""
    make()
    keep = [None] * count
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for i in range(count):
            keep[i] = make()
        # Whole bytes: some hundred that the tracing itself takes are spread over the objects.
        return round((tracemalloc.get_traced_memory()[0] - before) / count)
    finally:
        tracemalloc.stop()


def memory(sides: list[Side]) -> list[Result]:
    """Bytes of an empty module and of one with three parameters, without the tensors."""
    empty = Result(
        "bytes.empty",
        "memory of an empty module",
        "object",
        {},
        unit="bytes",
        budgets=(Budget(112, OURS, None), Budget(112, OURS_TORCH, None)),
    )
    three = Result(
        "bytes.three",
        "memory of a module with 3 parameters",
        "object",
        {},
        unit="bytes",
        budgets=(Budget(350, OURS, None), Budget(350, OURS_TORCH, None)),
    )
    for s in [trees.side(FLOOR), *sides]:
        leaves = [s.parameter() for _ in range(3)]
        empty.values[s.name] = bytes_of(s.classes.Empty)
        three.values[s.name] = bytes_of(lambda s=s, leaves=leaves: s.classes.Three(*leaves))
    return [empty, three]
