# SPDX-License-Identifier: BSD-3-Clause
"""Running the worker under callgrind, and reading what callgrind wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import ROOT

MISSING = "valgrind is not installed (apt-get install valgrind): nothing was counted"


class Unavailable(Exception):
    """Nothing can be counted here; the message says why."""


def total(part: Path) -> int:
    """The instructions of one of callgrind's parts."""
    found = re.search(r"^totals: (\d+)", part.read_text(), re.MULTILINE)
    if found is None:
        raise Unavailable(f"{part.name} of callgrind has no totals")
    return int(found[1])


def per_item(row: dict[str, Any], short: int, long: int) -> float:
    """Instructions per item: what the longer loop took more, so that entering it cancels out."""
    return (long - short) / row["rounds"] / row["items"]


def read(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their instructions, the least of their attempts. Three parts belong to each
    attempt: set-up, the short loop, the long one.
    """
    counted, number = [], 0
    for row in rows:
        if "error" in row:
            counted.append(row)
            continue
        found = []
        for _ in range(row["attempts"]):
            short, long = (total(folder / f"out.{number + i}") for i in (2, 3))
            found.append(per_item(row, short, long))
            number += 3
        kept = {k: row[k] for k in ("key", "title", "per")}
        counted.append(kept | {"instructions": round(min(found), 2)})
    return counted


def count(package: Path, sides: list[str], wanted: str = "") -> list[dict[str, Any]]:
    """The rows whose key contains ``wanted``, counted with the modtree in ``package``."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Unavailable(MISSING)
    if not list(package.glob("modtree/_C*.so")):
        raise Unavailable(f"{package} has no built modtree (tools/dev_build builds it in place)")
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | one_thread
    environment |= {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    with tempfile.TemporaryDirectory(prefix="modtree-instructions-") as folder:
        record = Path(folder) / "rows.json"
        watch = [valgrind, "-q", "--tool=callgrind", "--dump-before=getppid"]
        watch.append(f"--callgrind-out-file={folder}/out")
        command = [sys.executable, "-m", "bench.instructions.worker", str(record)]
        done = subprocess.run(
            [*watch, *command, ";".join(sides), wanted],
            cwd=folder,  # neither this checkout's package nor another is found by accident
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode or not record.is_file():
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise Unavailable(f"the counted process failed with {done.returncode}: {last}")
        return read(Path(folder), json.loads(record.read_text()))
