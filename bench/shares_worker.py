# SPDX-License-Identifier: BSD-3-Clause
"""The process that callgrind watches for ``python -m bench.bench_shares``. It marks the parts by
calling ``getppid``, as ``bench/instructions/worker.py`` does.

    python -m bench.shares_worker RECORD SIDE PROGRAMS
"""

from __future__ import annotations

import sys

if sys.argv[2] == "modtree run":
    import modtree.dropin  # noqa: F401

import gc
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .real_calls import CALLS
from .real_programs import PROGRAMS, Program

WARM_UP = 3


def instrument(whether: str) -> None:
    """Counting is on for the counted steps alone: the rest runs several times as fast."""
    control = ["callgrind_control", "-i", whether, str(os.getpid())]
    subprocess.run(control, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Parts:
    """What the parts are, in the order in which callgrind writes them."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def end(self, kind: str) -> None:
        os.getppid()
        self.kinds.append(kind)

    def apart(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a part of its own of each call."""

        def call(*arguments: Any, **more: Any) -> Any:
            self.end("rest")
            result = function(*arguments, **more)
            self.end("optimizer")
            return result

        return call


def count(program: Program) -> list[str]:
    for _ in range(WARM_UP):
        program.step()
    parts = Parts()
    for optimizer in program.optimizers:
        for name in ("step", "zero_grad"):
            setattr(optimizer, name, parts.apart(getattr(optimizer, name)))
    gc.collect()
    instrument("on")
    parts.end("before")
    for _ in range(program.count):
        program.step()
    parts.end("rest")
    instrument("off")
    return parts.kinds


def main(record: str, wanted: str) -> None:
    torch.set_num_threads(1)
    found = []
    for name in wanted.split(";"):
        torch.manual_seed(0)
        program = {**PROGRAMS, **CALLS}[name]()
        kinds = count(program)
        found.append({"name": name, "per": program.per, "count": program.count, "parts": kinds})
    Path(record).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3])
