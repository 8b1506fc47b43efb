# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_startup``: what imports and short commands cost a process, in CPU time
and memory, over what they need anyway.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .common import ROOT, machine, write_json

#: Runs a command and says what it took, its own process and its children together.
_MEASURE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss * unit]))
"""


@dataclass
class Row:
    """A command beside the one over which it is measured.

    Attributes:
        over: The arguments of Python without modtree's part.
        seconds, megabytes: What the command may take beyond that, where there is a target.
    """

    name: str
    command: list[str]
    over: list[str]
    seconds: float | None = None
    megabytes: float | None = None
    least: dict[str, list[float]] = field(default_factory=dict)

    def take(self, side: str) -> None:
        """One process of a side, "with" or "over"."""
        arguments = self.command if side == "with" else self.over
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            check=True,
        )
        status, seconds, size = json.loads(done.stdout)
        if status:
            raise RuntimeError(f"python {' '.join(arguments)} ended with status {status}")
        least = self.least.setdefault(side, [seconds, size])
        least[:] = [min(least[0], seconds), min(least[1], size)]

    def difference(self) -> tuple[float, float]:
        """Seconds and megabytes."""
        ours, over = self.least["with"], self.least["over"]
        return ours[0] - over[0], (ours[1] - over[1]) / 1e6


def rows(folder: Path) -> list[Row]:
    """Those whose libraries are there. ``folder`` gets the file that is inspected."""
    file = str(folder / "small.safetensors")
    write = "import modtree as mt, sys; mt.save_file({'w': mt.ones(2)}, sys.argv[1])"
    subprocess.run([sys.executable, "-c", write, file], cwd=ROOT, check=True)
    numpy, torch = ["-c", "import numpy"], ["-c", "import torch"]
    found = [
        Row("import modtree", ["-c", "import modtree"], numpy, 0.03),
        Row("the first layer", ["-c", "import modtree; modtree.nn.Linear(2, 2)"], numpy),
        Row("modtree inspect FILE", ["-m", "modtree", "inspect", file], ["-c", "pass"]),
    ]
    if importlib.util.find_spec("torch") is not None:
        dropin, run = "import modtree.dropin, torch", ["-m", "modtree", "run", *torch]
        found += [Row(dropin, ["-c", dropin], torch, 0.10, 6.0), Row("modtree run", run, torch)]
    return found


def table(measured: list[Row]) -> str:
    lines = ["| what | over | CPU time | memory |", "|---|---|---:|---:|"]
    for row in measured:
        seconds, megabytes = row.difference()
        over = row.over[-1] if row.over[-1] != "pass" else "python alone"
        cells = [f"{seconds:+.3f} s", f"{megabytes:+.1f} MB"]
        if row.seconds is not None:
            cells[0] += f" (<= {row.seconds:.2f} s)"
        if row.megabytes is not None:
            cells[1] += f" (<= {row.megabytes:.0f} MB)"
        lines.append(f"| `{row.name}` | {over} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_startup",
        description="Measure the start of processes, in turns; of each side the least counts.",
    )
    parser.add_argument("--rounds", type=int, default=9, help="processes of each side")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    options = parser.parse_args()
    record = {"machine": machine()}
    for key, value in record["machine"].items():
        print(f"{key}: {value}")
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(Path(folder))
        for number in range(options.rounds):
            for row in measured:
                for side in ("with", "over") if number % 2 else ("over", "with"):
                    row.take(side)
    print(f"\n{table(measured)}")
    record["rows"] = {row.name: row.least for row in measured}  # type: ignore[assignment]
    write_json(options.out / "bench-startup.json", record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
