# SPDX-License-Identifier: BSD-3-Clause
"""How the time per entry grows with the tree, from 1,000 to 300,000 entries."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from . import trees
from .trees import Side

ENTRIES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
SHAPES: dict[str, Callable[[Side, int], Any]] = {
    "blocks of 64": trees.blocks_of_64,
    "one flat list": trees.flat_experts,
}


def _best(run: Callable[[], Any], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        try:
            start = time.perf_counter()
            result = run()
            best = min(best, time.perf_counter() - start)
        finally:
            gc.enable()
        del result
    return best


def measure(
    sides: list[Side], entries: tuple[int, ...] = ENTRIES, seconds: float = 4.0
) -> list[dict[str, Any]]:
    """ns per entry for each shape, operation, size and side.

    A side stops growing once an operation is expected to take more than ``seconds``.
    """
    found = []
    for shape, build in SHAPES.items():
        expected = {
            (s.name, op): 0.0 for s in sides for op in ("load_state_dict", "named_parameters")
        }
        for wanted in entries:
            for s in sides:
                if all(
                    expected[s.name, op] > seconds for op in ("load_state_dict", "named_parameters")
                ):
                    continue
                m = build(s, wanted)
                names = [n for n, _ in m.named_parameters()]
                state = {n: s.zeros() for n in names}
                operations = {
                    "load_state_dict": lambda m=m, state=state: m.load_state_dict(state),
                    "named_parameters": lambda m=m: list(m.named_parameters()),
                }
                for operation, run in operations.items():
                    if expected[s.name, operation] > seconds:
                        continue
                    took = _best(run, 3 if wanted >= 30_000 else 7)
                    # The next tree is about three times larger; quadratic is the worst that is
                    # seen.
                    expected[s.name, operation] = took * 9
                    point = {
                        "shape": shape,
                        "operation": operation,
                        "side": s.name,
                        "entries": len(names),
                    }
                    found.append(point | {"ns": round(took / len(names) * 1e9, 1)})
                del m, state, run, operations
                gc.collect()
    return found


def table(points: list[dict[str, Any]]) -> str:
    """Markdown: one line per shape, operation and side, ns per entry by size."""
    sizes = sorted({_nominal(p["entries"]) for p in points})
    lines = [["tree", "operation", "side", *(f"{n:,}" for n in sizes)]]
    lines.append(["---"] * 3 + ["---:"] * len(sizes))
    groups: dict[tuple[str, str, str], dict[int, float]] = {}
    for p in points:
        groups.setdefault((p["shape"], p["operation"], p["side"]), {})[_nominal(p["entries"])] = p[
            "ns"
        ]
    for key, by_size in sorted(groups.items()):
        lines.append([*key, *(f"{by_size[n]:,.0f}" if n in by_size else "-" for n in sizes)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _nominal(entries: int) -> int:
    return min(ENTRIES, key=lambda n: abs(n - entries))
