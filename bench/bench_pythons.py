# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_pythons PYTHON...``: how far the rows of ``python -m bench`` are from
their floors on several CPythons, in instructions (needs valgrind) and in time.

Each PYTHON is a command that starts an interpreter which has NumPy; modtree is built in place for
it (``tools/dev_build``). ``'chroot FOLDER python3'`` is such a command too, where FOLDER has this
checkout at the same path, and valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .common import FLOOR, OURS, ROOT, machine, number, write_json
from .instructions import callgrind
from .processes import Measured, merged

#: How much further from its floor than on the first Python a row may be.
LIMIT = 1.3

PARTS = ("module", "experts", "chain900")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def _settings() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    return {**os.environ, **_ONE_THREAD, "PYTHONHASHSEED": "0", "PYTHONPATH": path}


def _run(command: list[str], record: Path) -> None:
    done = subprocess.run(command, env=_settings(), capture_output=True, text=True)
    if done.returncode or not record.is_file():
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise callgrind.Unavailable(f"{shlex.join(command)} failed with {done.returncode}: {last}")


def count(python: str, wanted: str = "") -> dict[str, Any]:
    """The instructions of each row's sides on this Python, and the record of the machine."""
    *before, interpreter = shlex.split(python)
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    # Below this checkout, which an interpreter in another root has at the same path.
    with tempfile.TemporaryDirectory(prefix="bench-pythons-", dir=build) as name:
        folder = Path(name)
        record = folder / "rows.json"
        watch = [*before, "valgrind", "-q", "--tool=callgrind", "--dump-before=getppid"]
        watch += [f"--callgrind-out-file={folder}/out", interpreter]
        _run([*watch, "-m", "bench.pythons_worker", str(record), wanted], record)
        found = json.loads(record.read_text())
        return {"machine": found["machine"], "rows": read(folder, found["parts"])}


def read(folder: Path, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The least of a side's attempts. Two of callgrind's parts belong to each run: what was before
    it, and the run itself.
    """
    rows: dict[str, dict[str, Any]] = {}
    last = 0
    for part in parts:
        runs = range(last + 2, last + 2 * part["runs"] + 1, 2)
        last += 2 * part["runs"]
        took = sum(callgrind.total(folder / f"out.{n}") for n in runs) / part["items"]
        row = rows.setdefault(part["key"], {k: part[k] for k in ("key", "title", "per")})
        values = row.setdefault("values", {})
        values[part["side"]] = min(round(took, 2), values.get(part["side"], took))
    return list(rows.values())


def time_once(python: str, wanted: str = "", parts: Sequence[str] = PARTS) -> Measured:
    """One process of ``python -m bench`` on this Python."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-pythons-", dir=build) as name:
        record = Path(name) / "measured.pickle"
        command = [*shlex.split(python), "-m", "bench", "--record", str(record), "--sides", OURS]
        command += ["--rows", wanted, "--seconds", "0.5"]
        _run([*command, *(word for part in parts for word in ("--only", part))], record)
        return pickle.loads(record.read_bytes())


def timed_rows(measured: Measured) -> list[dict[str, Any]]:
    return [
        {"key": r.key, "title": r.title, "per": r.per, "values": r.values}
        for _, results in measured.tables
        for r in results
        if {FLOOR, OURS} <= set(r.values) and r.unit == "ns"
    ]


def distance(row: dict[str, Any]) -> float:
    return row["values"][OURS] / row["values"][FLOOR]


def compared(pythons: list[dict[str, Any]], what: str) -> Iterator[tuple[list[Any], float]]:
    """The same row of each Python, and how much further than on the first it is at most."""
    by_key = [{row["key"]: row for row in p[what]} for p in pythons]
    for key in by_key[0]:
        rows = [rows[key] for rows in by_key if key in rows]
        if len(rows) == len(by_key):
            yield rows, max(distance(row) / distance(rows[0]) for row in rows)


def table(pythons: list[dict[str, Any]], what: str, show: Callable[[float], str] = number) -> str:
    """Markdown: of each Python the floor, modtree and how many times the floor that is."""
    versions = [p["machine"]["python"].split()[-1] for p in pythons]
    head = ["operation", "per", *versions, f"furthest / {versions[0]}"]
    lines = [head, ["---"] * 2 + ["---:"] * (len(versions) + 1)]
    for rows, most in compared(pythons, what):
        title = rows[0]["title"] + (", chain" if rows[0]["key"].startswith("chain") else "")
        cells = [
            f"{show(row['values'][FLOOR])}, {show(row['values'][OURS])}: {distance(row):.2f}"
            for row in rows
        ]
        lines.append([title, rows[0]["per"], *cells, f"{most:.2f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_pythons",
        description="Compare the distances of rows from their floors on several CPythons.",
    )
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="the first is compared with")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="time this part (may be repeated)"
    )
    parser.add_argument("--rows", default="", help="measure rows whose key contains this text")
    parser.add_argument(
        "--rounds", type=int, default=3, help="processes that time, for each Python, in turns"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    found = []
    try:
        for python in options.pythons:
            counted = count(python, options.rows)
            found.append({"machine": counted["machine"], "instructions": counted["rows"]})
            print(f"counted {found[-1]['machine']['python']}", file=sys.stderr)
        timed: list[list[Measured]] = [[] for _ in options.pythons]
        for _ in range(options.rounds):
            for python, processes in zip(options.pythons, timed, strict=True):
                processes.append(time_once(python, options.rows, options.only or PARTS))
    except callgrind.Unavailable as error:
        print(error, file=sys.stderr)
        return 2
    for python, processes in zip(found, timed, strict=True):
        python["times"] = timed_rows(merged(processes)) if processes else []
    write_json(options.out / "bench-pythons.json", {"machine": machine(), "pythons": found})
    for what in ("instructions", "times"):
        print(f"\n## {what}\n\n{table(found, what)}")
        for rows, most in compared(found, what):
            if most > LIMIT:
                print(f"{rows[0]['key']}: {most:.2f} times as far from its floor")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
