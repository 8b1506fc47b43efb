# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_shares``: where the instructions of torch programs go, on torch's Module
and on the native one. Needs valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from .bench_dropin import SIDES
from .common import ROOT, machine, write_json
from .instructions import callgrind

#: What an instruction may belong to: the interpreter, modtree's extension, anything else.
OBJECTS = (
    ("modtree", re.compile(r"/modtree/_C[.\w-]*\.(so|pyd|dylib)$")),
    ("Python", re.compile(r"/(python[\d.]*|libpython[\d.]*\.so[\d.]*)$|/lib-dynload/")),
)
SHARES = ("modules", "operations", "Python", "optimizer")


def kind_of(path: str) -> str:
    return next((kind for kind, pattern in OBJECTS if pattern.search(path)), "operations")


def read_part(lines: list[str]) -> Counter[str]:
    """Instructions by kind of object, in what callgrind wrote for one part."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    kind, is_call = "operations", False
    for line in lines:
        if line.startswith(("ob=", "cob=")):
            number, _, name = line.partition("=")[2].partition(" ")
            if name:
                names[number] = kind_of(name.strip())
            if line.startswith("ob="):
                kind = names[number]
        elif line.startswith("calls="):
            is_call = True  # the next line has what the callee took
        elif line and line[0] in "+-*0123456789":
            if not is_call:
                found[kind] += int(line.split()[1])
            is_call = False
    return found


def count(side: str, programs: list[str]) -> list[dict[str, Any]]:
    """The programs with what they took: by kind of object, and in steps of optimizers."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise callgrind.Unavailable(callgrind.MISSING)
    path = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    settings = {"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    settings["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path))
    with tempfile.TemporaryDirectory(prefix="modtree-shares-") as name:
        folder = Path(name)
        watch = [valgrind, "-q", "--tool=callgrind", "--dump-before=getppid", "--instr-atstart=no"]
        watch.append(f"--callgrind-out-file={folder}/out")
        record = folder / "programs.json"
        command = [sys.executable, "-m", "bench.shares_worker", str(record), side]
        done = subprocess.run(
            [*watch, *command, ";".join(programs)],
            cwd=folder,
            env={**os.environ, **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode or not record.is_file():
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise callgrind.Unavailable(f"the process failed with {done.returncode}: {last}")
        return read(folder, record)


def read(folder: Path, record: Path) -> list[dict[str, Any]]:
    found, number = [], 0
    for program in json.loads(record.read_text()):
        sums = {"rest": Counter(), "optimizer": Counter(), "before": Counter()}
        for kind in program["parts"]:
            number += 1
            sums[kind] += read_part((folder / f"out.{number}").read_text().splitlines())
        took = {what: n / program["count"] for what, n in sums["rest"].items()}
        took["optimizer"] = sum(sums["optimizer"].values()) / program["count"]
        found.append({"name": program["name"], "per": program["per"], "instructions": took})
    return found


def shares(plain: dict[str, Any], native: dict[str, Any]) -> dict[str, Any]:
    """What each side takes for modules, operations, Python of the program and its libraries, and
    the optimizer.

    The operations, the program and the optimizer are the same on both sides. What the native side
    takes for them is taken for both, so that all by which the sides differ belongs to modules: on
    torch's side it is Python too.
    """
    before, after = plain["instructions"], native["instructions"]
    own = {"operations": after["operations"], "Python": after["Python"]}
    found = {}
    for side, took in ((SIDES[0], before), (SIDES[1], after)):
        total = sum(took.values())
        rest = total - took["optimizer"] - sum(own.values())
        found[side] = {"modules": rest, **own, "optimizer": took["optimizer"], "all": total}
    return {"name": plain["name"], "per": plain["per"], **found}


def _millions(instructions: float) -> str:
    return f"{instructions / 1e6:,.{1 if instructions >= 1e6 else 4}f}"


def table(rows: list[dict[str, Any]]) -> str:
    head = ["program", "per", "millions", *SHARES, "on the native class", "ratio", *SHARES]
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2)]
    for row in rows:
        cells = [row["name"], row["per"]]
        for side in SIDES:
            took = row[side]
            cells.append(_millions(took["all"]))
            if side == SIDES[1]:
                cells.append(f"{took['all'] / row[SIDES[0]]['all']:.2f}")
            cells += [f"{round(took[what] / took['all'], 3) + 0.0:.1%}" for what in SHARES]
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _arguments(programs: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_shares",
        description="Count where the instructions of torch programs go: modules, operations, "
        "Python, optimizers.",
    )
    parser.add_argument("--only", action="append", choices=programs, help="count this program")
    parser.add_argument("--calls", action="store_true", help="count single calls instead")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    return parser.parse_args()


def main() -> int:
    # These import torch, which the page of results does without.
    from .real_calls import CALLS
    from .real_programs import PROGRAMS

    options = _arguments(list(PROGRAMS))
    names = list(CALLS) if options.calls else options.only or list(PROGRAMS)
    record: dict[str, Any] = {"machine": machine()}
    try:
        plain, native = (count(side, names) for side in SIDES)
    except callgrind.Unavailable as error:
        print(error, file=sys.stderr)
        return 2
    record["rows"] = [shares(*both) for both in zip(plain, native, strict=True)]
    write_json(options.out / f"bench-shares{'-calls' * options.calls}.json", record)
    for key, value in record["machine"].items():
        print(f"{key}: {value}")
    print(f"\n{table(record['rows'])}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
