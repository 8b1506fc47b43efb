# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a single module: attributes, the call, construction, and memory."""

from __future__ import annotations

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

    def both(limit: float) -> tuple[Budget, ...]:
        return (Budget(limit), Budget(limit, OURS_TORCH))

    def identity(s: Side, hooks: int) -> Any:
        m = s.classes.Identity()
        for _ in range(hooks):
            m.register_forward_hook(lambda module, args, output: None)
        return m

    def call(hooks: int) -> dict[str, Any]:
        return {s.name: unrolled("m(x)", m=identity(s, hooks), x=s.zeros()) for s in sides}

    n = UNROLLED
    empty = {s.name: unrolled("C()", C=s.classes.Empty) for s in sides}

    class Bare:
        pass

    empty[FLOOR] = unrolled("C()", C=Bare)
    hook_budget = (Budget(150, OURS, None), Budget(150, OURS_TORCH, None))
    return [
        Row(
            "read.parameter",
            "read a parameter, `m.w2`",
            "read",
            n,
            per_side("m.w2", every),
            budgets=both(5),
        ),
        Row(
            "read.child",
            "read a child, `m.child`",
            "read",
            n,
            per_side("m.child", every),
            budgets=both(5),
        ),
        Row("read.plain", "read a plain value, `m.flag`", "read", n, per_side("m.flag", every)),
        Row(
            "write.parameter",
            "write a parameter",
            "write",
            n,
            per_side("m.w2 = v", every, lambda s: s.parameter()),
            budgets=both(8),
        ),
        Row(
            "write.child",
            "write a child",
            "write",
            n,
            per_side("m.child = v", every, lambda s: s.classes.Empty()),
            budgets=both(8),
        ),
        Row(
            "write.plain",
            "write a plain value",
            "write",
            n,
            per_side("m.flag = 2", every),
            budgets=both(12),
        ),
        Row(
            "call",
            "`m(x)`, identity forward",
            "call",
            n,
            {FLOOR: unrolled("m(x)", m=_PlainCall(), x=plain.zeros())} | call(0),
            budgets=both(1.5),
        ),
        Row(
            "call.hook",
            "one forward hook more",
            "call",
            n,
            call(1),
            budgets=hook_budget,
            minus="call",
        ),
        Row(
            "construct.empty", "construct an empty subclass", "object", n, empty, budgets=both(1.5)
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
        return (tracemalloc.get_traced_memory()[0] - before) / count
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
        budgets=(Budget(250, OURS, None), Budget(250, OURS_TORCH, None)),
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
