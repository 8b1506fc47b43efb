# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_sharing``: how the rate of calls, reads and walks of one model grows with
the threads that share it, on a CPython without the GIL.

Beside modtree's Module stand torch's, where a torch is installed, and what CPython itself does with
a shared object: a class with `__call__`, attributes, a generator over a dict. Each thread runs on a
core of its own where the system lets it choose; the best of several rounds counts. With more
threads than free cores the columns say little.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .common import OURS, ROOT, TORCH, machine, number, write_json

PYTHON = "Python"
LAYERS = 50
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

#: Does an operation so often, and returns how many that were.
Work = Callable[[int], int]


class Plain:
    """What CPython does for an object of a Python class."""

    def __init__(self) -> None:
        self.flag = 1.5
        self.w = object()
        self.child = object()
        self.values = {str(i): object() for i in range(2 * LAYERS)}

    def __call__(self, x: Any) -> Any:
        return x

    def parameters(self) -> Iterator[Any]:
        yield from self.values.values()


def model_of(library: Any) -> Any:
    class Model(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flag = 1.5
            self.w = library.nn.Parameter(library.ones(1))
            self.child = library.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return x

    return Model()


def repeated(expression: str, shared: Any) -> Work:
    """A loop with the shared object in a local variable, as `self` is in a method."""
    space: dict[str, Any] = {}
    code = f"def work(times, m):\n for _ in range(times): {expression}\n return times"
    exec(code, {}, space)
    return lambda times: space["work"](times, shared)


def walks(shared: Any) -> Work:
    def work(times: int) -> int:
        done = 0
        while done < times:
            for _ in shared.parameters():
                done += 1
        return done

    return work


def forwards(library: Any) -> Work:
    net = library.nn.Sequential(
        library.nn.Linear(64, 64), library.nn.ReLU(), library.nn.Linear(64, 8)
    )
    x = library.from_numpy(np.ones((16, 64), np.float32))

    def work(times: int) -> int:
        with library.no_grad():
            for _ in range(times // 20):
                net(x)
        return times // 20

    return work


def sides() -> Iterator[tuple[str, Any, Any, Any]]:
    """Each side's name, model, model with many parameters, and library."""
    plain = Plain()
    yield PYTHON, plain, plain, None
    for name in (OURS, TORCH):
        if importlib.util.find_spec(name):
            library: Any = importlib.import_module(name)
            layers = [library.nn.Linear(2, 2) for _ in range(LAYERS)]
            yield name, model_of(library), library.nn.Sequential(*layers), library


def rows() -> dict[str, dict[str, Work]]:
    found: dict[str, dict[str, Work]] = {}
    for name, model, wide, library in sides():
        works = {
            "`m(x)`, identity forward": repeated("m(1)", model),
            "read a plain value, `m.flag`": repeated("m.flag", model),
            "read a parameter, `m.w`": repeated("m.w", model),
            "read a child, `m.child`": repeated("m.child", model),
            f"`m.parameters()`, a parameter of {2 * LAYERS}": walks(wide),
        }
        if library:
            works["`m(x)`, Linear(64, 64), ReLU, Linear(64, 8), batch 16"] = forwards(library)
        for title, work in works.items():
            found.setdefault(title, {})[name] = work
    return found


def rate(work: Work, threads: int, times: int) -> float:
    """Operations in a second, of all threads together."""
    barrier = threading.Barrier(threads)
    spans: list[tuple[float, float, int]] = []

    def run(place: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(threading.get_native_id(), {cores[place % len(cores)]})
        work(times // 100)
        barrier.wait()
        begin = time.perf_counter()
        done = work(times)
        spans.append((begin, time.perf_counter(), done))

    started = [threading.Thread(target=run, args=(place,)) for place in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    seconds = max(end for _, end, _ in spans) - min(begin for begin, _, _ in spans)
    return sum(done for _, _, done in spans) / seconds


def measure(options: argparse.Namespace) -> dict[str, dict[str, dict[int, float]]]:
    """The rate of each row and side, by the number of threads."""
    measured: dict[str, dict[str, dict[int, float]]] = {}
    for title, works in rows().items():
        for name, work in works.items():
            rates = measured.setdefault(title, {}).setdefault(name, {})
            for _ in range(options.rounds):
                for threads in (1, *options.threads):
                    new = rate(work, threads, options.times)
                    rates[threads] = max(new, rates.get(threads, 0.0))
        print(f"measured {title}", flush=True)
    return measured


def table(measured: dict[str, dict[str, dict[int, float]]]) -> str:
    names = list(dict.fromkeys(name for row in measured.values() for name in row))
    counts = sorted({n for row in measured.values() for rates in row.values() for n in rates})
    head = ["one shared model"]
    for name in names:
        head += [f"{name}, 1 thread, ns", *(f"{n} threads" for n in counts[1:])]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for title, row in measured.items():
        cells = [title]
        for name in names:
            rates: Any = row.get(name)
            cells.append(number(1e9 / rates[1]) if rates else "")
            cells += [f"x {rates[n] / rates[1]:.2f}" if rates else "" for n in counts[1:]]
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_sharing", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=200_000, help="operations of a thread")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "sharing.json")
    options = parser.parse_args()
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        parser.error("this Python runs with the GIL: a thread waits while another one runs")
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # Read when the libraries are loaded. Each thread of the program would have its own pool.
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        os.execv(sys.executable, [sys.executable, "-m", "bench.bench_sharing", *sys.argv[1:]])
    about = machine()
    for key, value in about.items():
        print(f"{key}: {value}")
    measured = measure(options)
    print("\n" + table(measured))
    write_json(options.out, {"machine": about, "rows": measured})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
