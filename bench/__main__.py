# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench``: measures, prints the tables, writes JSON."""

from __future__ import annotations

import argparse
import os
import sys

# One thread, and before any library reads it.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import gc  # noqa: E402
import pickle  # noqa: E402
from collections.abc import Iterable  # noqa: E402
from pathlib import Path  # noqa: E402

from . import (  # noqa: E402
    bench_tree,
    growth,
    micro,
    tree_calls,
    trees,
)
from .common import (  # noqa: E402
    OURS,
    OURS_TORCH,
    ROOT,
    TORCH,
    Measured,
    Result,
    Row,
    machine,
    measure_in_processes,
    table,
    time_row,
    to_json,
    write_json,
)

_BASES = ("call",)  # rows that budgets of others name
PARTS = ("module", "experts", "held", "calls", "chain900", "growth")
LIBRARIES = (OURS, OURS_TORCH, TORCH)


def _names_of_sides(text: str) -> list[str]:
    names = [name.strip() for name in text.split(";") if name.strip()]
    wrong = [name for name in names if name not in LIBRARIES]
    if wrong or not names:
        given = f"not {', '.join(map(repr, wrong))}" if wrong else "at least one"
        known = "; ".join(map(repr, LIBRARIES))
        raise argparse.ArgumentTypeError(f"sides are {known}, {given}; floors are always measured")
    return list(dict.fromkeys(names))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure modtree, torch and the floor."
    )
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure this part (may be repeated)"
    )
    parser.add_argument("--rows", default="", help="measure rows whose key contains this text")
    parser.add_argument(
        "--sides",
        type=_names_of_sides,
        default=list(LIBRARIES),
        help=f"what to measure beside the floors, separated by semicolons: {'; '.join(LIBRARIES)}",
    )
    parser.add_argument(
        "--processes", type=int, default=3, help="one after the other; the least value counts"
    )
    parser.add_argument(
        "--repeats", type=int, default=15, help="runs of each side per row and process"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time after which a side stops repeating a row"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "bench",
        help="folder for bench.json",
    )
    # Of a process that measures: where it leaves what it has found.
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _sides(names: list[str]) -> list[trees.Side]:
    found = []
    for name in names:
        try:
            found.append(trees.side(name))
        except ImportError as error:
            print(f"without {name}: {error}", file=sys.stderr)
    if not found:
        sys.exit("no library to measure is installed")
    return found


def _time(rows: Iterable[Row], options: argparse.Namespace) -> list[Result]:
    """Times the rows as they come: those that change trees make theirs, and let them go after."""
    results: dict[str, Result] = {}
    for row in rows:
        if options.rows not in row.key and row.key not in _BASES:
            continue
        gc.collect()
        gc.freeze()  # what is there by now need not be looked at again before every run
        print(f"  {row.key}", end="\r", file=sys.stderr)
        result = results[row.key] = time_row(row, options.repeats, options.seconds)
        print(" " * 60, end="\r", file=sys.stderr)
        gc.unfreeze()
        for budget in row.budgets:
            if budget.over in results:
                result.base = results[budget.over].values
    return [r for key, r in results.items() if options.rows in key]


def _measure(options: argparse.Namespace) -> Measured:
    """In this process."""
    sides = _sides(options.sides)
    parts = options.only or PARTS
    builders = {
        "module": (micro.rows, "A single module"),
        "experts": (bench_tree.expert_rows, "The expert tree: 15,862 modules, 47,092 parameters"),
        "held": (
            bench_tree.held_rows,
            "Trees whose leaves and modules other lists hold, and a net of 990 parameters",
        ),
        "calls": (tree_calls.call_rows, "What a call costs, by the size of the net"),
        "chain900": (tree_calls.chain_rows, "A chain of 900 modules with one parameter each"),
    }
    measured = Measured()
    for part, (build, title) in builders.items():
        if part not in parts:
            continue
        found = _time(build(sides), options)
        if part == "module" and "bytes".startswith(options.rows[:5]):
            found += micro.memory(sides)
        measured.tables.append((title, found))
    if "growth" in parts and not options.rows:
        measured.growth = growth.measure(sides)
    return measured


def main() -> int:
    options = _arguments()
    if options.record:
        options.record.write_bytes(pickle.dumps(_measure(options)))
        return 0
    record = {"machine": machine()}
    for key, value in record["machine"].items():
        print(f"{key}: {value}", flush=True)
    measured = measure_in_processes(sys.argv[1:], options.processes)
    for title, found in measured.tables:
        print(f"\n## {title}\n\n{table(found)}", flush=True)
    results = [result for _, found in measured.tables for result in found]
    record["rows"] = [to_json(r) for r in results]
    if measured.growth is not None:
        record["growth"] = measured.growth
        print(f"\n## Growth, ns per entry by number of entries\n\n{growth.table(measured.growth)}")

    write_json(options.out / "bench.json", record)
    print(f"\nwrote {options.out / 'bench.json'}")

    verdicts = [(r, *v) for r in results for v in r.verdicts()]
    missed = [v for v in verdicts if not v[3]]
    print(f"\nbudgets: {len(verdicts) - len(missed)} met, {len(missed)} missed")
    for result, budget, value, _ in missed:
        print(
            f"  {result.key} [{budget.side}]: {value:,.1f} {result.unit}, allowed "
            f"{budget.allowed(result.values, result.base):,.1f} ({budget})"
        )
    failed = [(r.key, side, text) for r in results for side, text in r.errors.items()]
    for key, side, text in failed:
        print(f"  could not measure {key} [{side}]: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
