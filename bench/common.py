# SPDX-License-Identifier: BSD-3-Clause
"""Timing in one process and in several, the record of the machine, and the JSON of a run."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import pickle
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# What a row may time. A floor is the least CPython or NumPy (or torch) work that gives the same
# result.
FLOOR = "floor"
TORCH_FLOOR = "torch floor"
OURS = "modtree"
OURS_TORCH = "modtree, torch leaves"
TORCH = "torch"
SIDES = (FLOOR, OURS, OURS_TORCH, TORCH_FLOOR, TORCH)
FLOORS = {FLOOR, TORCH_FLOOR}
CALLS = 20  # in each timed run of a row that needs many, see Row.in_a_row()


@dataclass(frozen=True)
class Budget:
    """``side`` should cost at most ``limit`` times ``of``; ``of=None`` makes ``limit`` nanoseconds
    (or bytes). With ``over``, the key of another row, ``limit`` is what it may cost more than that.
    """

    limit: float
    side: str = OURS
    of: str | None = FLOOR
    over: str | None = None

    def __str__(self) -> str:
        if self.over:
            return f"<= {self.over} + {self.limit:g}"
        if self.of and self.limit < 0.1:
            return f"<= {self.of} / {1 / self.limit:g}"
        return f"<= {self.limit:g}" + (f" x {self.of}" if self.of else "")

    def got(self, value: float, values: Mapping[str, float], base: Mapping[str, float]) -> str:
        """The measured value in the words of the budget."""
        if self.over:
            return f"{value - base[self.side]:+,.0f}"
        if self.of is None:
            return number(value)
        if self.limit < 0.1:
            return f"{self.of} / {values[self.of] / value:,.0f}"
        return f"{value / values[self.of]:.2f} x {self.of}"

    def allowed(
        self, values: Mapping[str, float], base: Mapping[str, float] | None = None
    ) -> float | None:
        """The most that ``side`` may cost, or None when what it is measured by is missing. ``base``
        has the values of the row that ``over`` names.
        """
        if self.over:
            return base[self.side] + self.limit if base and self.side in base else None
        if self.of is None:
            return self.limit
        return self.limit * values[self.of] if self.of in values else None


@dataclass
class Row:
    """One line of the table: the same operation on every side.

    Attributes:
        runs: For each side the function to time. Its result is dropped after the clock has stopped.
        setups: For some sides a function called before every timed run; the run gets its result.
        items: What one run is divided by.
        counts: The same for sides that do another number of operations in a run.
    """

    key: str
    title: str
    per: str
    items: int
    runs: dict[str, Callable[..., Any]]
    setups: dict[str, Callable[[], Any]] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def in_a_row(self, calls: int) -> Row:
        """The same with ``calls`` calls in each timed run. One call on a small tree is over before
        the clock's grain and the caches, which the other sides have emptied, no longer count. Each
        result is dropped before the next call: a list of leaves would be a second holder of them.
        A row with set-ups stays as it is.
        """
        if self.setups:
            return self

        def several(run: Callable[..., Any]) -> Callable[..., None]:
            def runs() -> None:
                for _ in range(calls):
                    run()

            return runs

        return replace(
            self,
            items=self.items * calls,
            runs={side: several(run) for side, run in self.runs.items()},
            counts={side: count * calls for side, count in self.counts.items()},
        )


@dataclass
class Result:
    key: str
    title: str
    per: str
    values: dict[str, float]
    budgets: tuple[Budget, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)
    unit: str = "ns"
    #: By how much the median of a side's runs is above their minimum, as a fraction.
    spread: dict[str, float] = field(default_factory=dict)
    #: The values of the row that a budget's ``over`` names.
    base: dict[str, float] = field(default_factory=dict)

    def verdicts(self) -> list[tuple[Budget, float, bool]]:
        """Each budget with the measured value and whether it is met; budgets without a measurement
        are left out.
        """
        found = []
        for budget in self.budgets:
            value = self.values.get(budget.side)
            allowed = budget.allowed(self.values, self.base)
            if value is not None and allowed is not None:
                found.append((budget, value, value <= allowed))
        return found


def unrolled(
    statement: str, copies: int = 50, rounds: int = 200, **names: Any
) -> Callable[[], None]:
    """A function that runs ``statement`` ``copies * rounds`` times with ``names`` as locals.

    The loop itself costs less than half a nanosecond per statement.
    """
    body = "\n        ".join([statement] * copies)
    arguments = ", ".join(f"{n}={n}" for n in names)
    source = (
        f"def run({arguments}, _rounds=range({rounds})):\n    for _ in _rounds:\n        {body}\n"
    )
    scope = dict(names)
    exec(source, scope)
    return scope["run"]


UNROLLED = 50 * 200


def time_row(row: Row, repeats: int, seconds: float) -> Result:
    """The minimum of interleaved runs of each side, in ns of CPU time per item, and the spread.

    Sides take turns, so that a slow moment of the machine hits all of them; time in which another
    process has the core does not count. A side gets at least three runs, and then stops when it has
    used up ``seconds``; floors stop when all others have.
    """
    took: dict[str, list[int]] = {side: [] for side in row.runs}
    spent = dict.fromkeys(row.runs, 0.0)
    errors: dict[str, str] = {}
    clock = time.process_time_ns
    for round_ in range(repeats):
        going = [
            side
            for side in row.runs
            if side not in errors and (round_ < 3 or spent[side] <= seconds)
        ]
        if set(going) <= FLOORS and not set(row.runs) <= FLOORS | set(errors):
            break  # floors by themselves would find in the caches what the others have to fetch
        for side in going:
            run = row.runs[side]
            begin = clock()
            try:
                setup = row.setups.get(side)
                arguments = () if setup is None else (setup(),)
                gc.collect()
                gc.disable()
                start = clock()
                result = run(*arguments)
                took[side].append(clock() - start)
            except Exception as error:  # a side that cannot do this: reported in the table
                errors[side] = f"{type(error).__name__}: {error}"
                continue
            finally:
                gc.enable()
            del result, arguments
            spent[side] += (clock() - begin) / 1e9
    runs = {side: times for side, times in took.items() if times and side not in errors}
    values = {side: min(times) / row.counts.get(side, row.items) for side, times in runs.items()}
    spread = {
        side: statistics.median(times) / max(1, min(times)) - 1 for side, times in runs.items()
    }
    return Result(row.key, row.title, row.per, values, row.budgets, errors, spread=spread)


# -- the record ------------------------------------------------------------------------------------


_CPU_NUMBERS = (("family", "cpu family"), ("model", "model"))


def _cpu() -> str:
    """The name, with family and model where they are given: a virtual machine may say "AMD EPYC" of
    every one.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    first: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    name = first.get("model name")
    if name is None:
        return platform.processor() or platform.machine()
    numbers = [f"{key} {first[full]}" for key, full in _CPU_NUMBERS if full in first]
    return ", ".join([name, *numbers])


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _modtree_version() -> str | None:
    try:
        import modtree
    except ImportError:
        return None
    return modtree.__version__


def _program() -> str:
    """The name that was given to ``python -m``."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else "bench"


def machine() -> dict[str, Any]:
    """Where and with what the numbers were measured."""
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    if _git("status", "--porcelain", "--", "csrc", "python"):
        commit += " with local changes"
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "modtree": _modtree_version(),
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "-m", _program(), *sys.argv[1:]]),
    }


def to_json(result: Result) -> dict[str, Any]:
    return {
        "key": result.key,
        "title": result.title,
        "per": result.per,
        "unit": result.unit,
        "values": {side: round(value, 2) for side, value in result.values.items()},
        "spread": {side: round(value, 3) for side, value in result.spread.items()},
        "budgets": [
            {
                "side": b.side,
                "budget": str(b),
                "value": round(v, 2),
                "got": b.got(v, result.values, result.base),
                "met": met,
            }
            for b, v, met in result.verdicts()
        ],
        "errors": result.errors,
    }


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


# -- the table -------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def ratio_of(values: Mapping[str, float], side: str, of: str) -> str:
    """How many times ``of`` the side costs."""
    return f"{values[side] / values[of]:.2f}" if values.get(of) and side in values else "-"


def _reach(result: Result) -> str:
    """Each budget: what was got, what was to be reached, and whether it was."""
    notes = []
    for budget, value, met in result.verdicts():
        which = "torch leaves " if budget.side == OURS_TORCH else ""
        got = budget.got(value, result.values, result.base)
        notes.append(f"{which}{got}, reach {budget}: " + ("met" if met else "missed"))
    return "; ".join(notes) or "-"


def table(results: list[Result], sides: tuple[str, ...] = SIDES) -> str:
    """A Markdown table: a value per side, the ratios to the floors and to torch, the spread of the
    least steady side, and the budget of each row.
    """
    head = ["operation", "per", *sides, "modtree / floor", "torch leaves / their floor"]
    head += ["torch / modtree", "spread", "reach"]
    lines = [head, ["---"] * 2 + ["---:"] * (len(sides) + 4) + ["---"]]
    for result in results:
        values = result.values
        torch = "-"
        if values.get(OURS) and TORCH in values:
            torch = f"{values[TORCH] / values[OURS]:.1f}"
        own = TORCH_FLOOR if TORCH_FLOOR in values else FLOOR
        ratios = [ratio_of(values, OURS, FLOOR), ratio_of(values, OURS_TORCH, own), torch]
        spread = f"{max(result.spread.values()):.0%}" if result.spread else "-"
        cells = ["error" if s in result.errors else number(values.get(s)) for s in sides]
        per = result.per if result.unit == "ns" else f"{result.per}, {result.unit}"
        lines.append([result.title, per, *cells, *ratios, spread, _reach(result)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- several processes -----------------------------------------------------------------------------
# Where the objects and the code of a process happen to be in memory makes some operations a third
# slower or faster, for as long as it lives: one process is one throw of the dice.


@dataclass
class Measured:
    """What one process measured.

    Attributes:
        tables: Titles with the rows below them.
        growth: The points of ``growth.measure``, or None.
    """

    tables: list[tuple[str, list[Result]]] = field(default_factory=list)
    growth: list[dict[str, Any]] | None = None


def measure_in_processes(arguments: Sequence[str], count: int) -> Measured:
    """Runs ``python -m bench`` with these arguments ``count`` times, one after the other."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            print(f"process {number + 1} of {count}", file=sys.stderr)
            path = Path(folder) / f"{number}.pickle"
            command = [sys.executable, "-m", "bench", *arguments, "--record", str(path)]
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
            found.append(pickle.loads(path.read_bytes()))
    return merged(found)


def merged(found: Sequence[Measured]) -> Measured:
    """The least value of each side in any process."""
    tables = []
    for parts in zip(*(m.tables for m in found), strict=True):
        rows = [merged_row(same) for same in zip(*(rows for _, rows in parts), strict=True)]
        tables.append((parts[0][0], rows))
    if found[0].growth is None:
        return Measured(tables)
    points: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in (point for m in found for point in m.growth or ()):
        what = tuple(value for key, value in point.items() if key != "ns")
        if what not in points or point["ns"] < points[what]["ns"]:
            points[what] = point
    return Measured(tables, list(points.values()))


def merged_row(results: Sequence[Result]) -> Result:
    """One row of several processes. A side spreads as much as it does in the least steady process,
    or as the median of the processes is above the least of them.
    """

    def least(values: Sequence[dict[str, float]]) -> dict[str, float]:
        sides = dict.fromkeys(side for v in values for side in v)
        return {side: min(v[side] for v in values if side in v) for side in sides}

    values = least([r.values for r in results])
    spread = {}
    for side, value in values.items():
        median = statistics.median(r.values[side] for r in results if side in r.values)
        within = [r.spread[side] for r in results if side in r.spread]
        spread[side] = max([median / value - 1 if value else 0.0, *within])
    errors: dict[str, str] = {}
    for result in results:
        errors |= result.errors
    return replace(
        results[0],
        values=values,
        spread=spread if results[0].spread else {},
        errors=errors,
        base=least([r.base for r in results]),
    )
