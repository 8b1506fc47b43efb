# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_threads``: ResNet-18, MiniLM and single operations with one thread and
with several, modtree and torch.

A process has one library and one number of threads; the processes take turns, and the least time on
the clock of all rounds counts. (CPU time would not do: it counts every thread's.) On a machine that
does other things too, the columns with several threads say little.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .common import OURS, ROOT, TORCH, machine, number, write_json

#: batch, channels, outputs, size, kernel, stride
CONVOLUTIONS = (
    (1, 3, 16, 32, 3, 1),
    (1, 16, 16, 32, 3, 1),
    (1, 16, 32, 32, 3, 1),
    (1, 32, 32, 16, 3, 1),
    (1, 64, 64, 8, 3, 1),
    (8, 16, 16, 32, 3, 1),
    (8, 32, 32, 16, 3, 1),
    (8, 64, 64, 8, 3, 1),
    (1, 64, 64, 56, 3, 1),
    (1, 256, 256, 14, 3, 1),
    (1, 512, 512, 7, 3, 1),
    (8, 128, 128, 28, 3, 1),
)
#: A run is repeated until a round takes about so long, in seconds.
ROUND = 0.02

_Case = tuple[str, Callable[[], Any]]


# -- one side --------------------------------------------------------------------------------------


def convolutions(library: Any, random: np.random.Generator) -> Iterator[_Case]:
    for n, c, o, size, kernel, stride in CONVOLUTIONS:
        x = library.from_numpy(random.standard_normal((n, c, size, size), np.float32))
        w = library.from_numpy(random.standard_normal((o, c, kernel, kernel), np.float32))
        title = f"conv2d {c} to {o}, {kernel} x {kernel}, stride {stride}, on {n} x {size} x {size}"
        padding = kernel // 2
        yield (
            title,
            lambda x=x, w=w, stride=stride, padding=padding: library.nn.functional.conv2d(
                x, w, None, stride, padding
            ),
        )


def operations(library: Any, random: np.random.Generator) -> Iterator[_Case]:
    x = library.from_numpy(random.standard_normal((1024, 1024), np.float32))
    image = library.from_numpy(random.standard_normal((8, 64, 56, 56), np.float32))
    functional = library.nn.functional
    zeros, ones = library.zeros(64), library.ones(64)
    yield "gelu of 1024 x 1024", lambda: functional.gelu(x)
    yield "softmax of 1024 x 1024", lambda: library.softmax(x, -1)
    yield "layer_norm of 1024 x 1024", lambda: functional.layer_norm(x, (1024,))
    yield "batch_norm of 8 x 64 x 56 x 56", lambda: functional.batch_norm(image, zeros, ones)
    yield "max_pool2d 3 x 3 of 8 x 64 x 56 x 56", lambda: functional.max_pool2d(image, 3, 2, 1)
    yield "product of 1024 x 1024", lambda: x @ x


def resnet(library: Any, _random: np.random.Generator) -> Iterator[_Case]:
    path = ROOT / "examples" / "ported" / "run.py"
    spec = importlib.util.spec_from_file_location("ported_run", path)
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    ported = run.load("resnet", library.__name__)
    library.manual_seed(0)
    model = ported.ResNet().eval()
    for batch in (1, 4):
        images = library.randn(batch, 3, 224, 224)
        yield f"ResNet-18 on {batch} x 224 x 224", lambda images=images: model(images)


def minilm(library: Any, random: np.random.Generator) -> Iterator[_Case]:
    from .bench_minilm import SIZES, load

    library.manual_seed(0)
    module = load(library.__name__)
    model = module.BertModel(module.BertConfig(**SIZES)).eval()
    for batch, length in ((1, 16), (1, 128), (8, 128)):
        ids = library.from_numpy(random.integers(0, SIZES["vocab_size"], (batch, length)))
        yield f"MiniLM-L6 on {batch} x {length}", lambda ids=ids: model(ids)


PARTS = {"conv": convolutions, "ops": operations, "resnet": resnet, "minilm": minilm}


def least_time(run: Callable[[], Any], repeats: int) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    run()
    count = max(1, int(ROUND / max(time.perf_counter() - start, 1e-7)))
    least = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            run()
        least = min(least, (time.perf_counter() - start) / count)
    return least


def one_side(name: str, threads: int, parts: list[str], repeats: int) -> dict[str, float]:
    """Seconds of each row, in a process of its own."""
    library = importlib.import_module(name)
    library.set_num_threads(threads)
    gc.disable()
    found = {}
    for part in parts:
        with library.no_grad():
            for title, run in PARTS[part](library, np.random.default_rng(0)):
                found[title] = least_time(run, repeats)
        gc.collect()
    return found


# -- all of them -----------------------------------------------------------------------------------


def in_a_process(name: str, threads: int, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.bench_threads", "--side", name]
    command += ["--threads", str(threads), "--repeats", str(options.repeats)]
    command += ["--only", *options.only]
    # What the library sees at its start is the number too: BLAS makes its threads then.
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(variables, str(threads))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """For each row the least seconds of each side, by "library, threads"."""
    sides = [(name, n) for n in sorted({1, options.threads}) for name in (OURS, TORCH)]
    rows: dict[str, dict[str, float]] = {}
    for round_ in range(options.rounds):
        print(f"round {round_ + 1} of {options.rounds}", flush=True)
        for name, threads in sides:
            for title, seconds in in_a_process(name, threads, options).items():
                row, side = rows.setdefault(title, {}), f"{name}, {threads}"
                row[side] = min(seconds, row.get(side, float("inf")))
    return rows


def table(rows: dict[str, dict[str, float]], threads: int) -> str:
    counts = sorted({1, threads})
    head = ["operation, us"]
    for n in counts:
        head += [f"modtree, {n}", f"torch, {n}", f"modtree / torch, {n}"]
    if threads > 1:
        head.append(f"modtree, 1 / {threads}")
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for title, row in rows.items():
        cells = [title]
        for n in counts:
            ours, theirs = row[f"{OURS}, {n}"], row[f"{TORCH}, {n}"]
            cells += [number(ours * 1e6), number(theirs * 1e6), f"{ours / theirs:.2f}"]
        if threads > 1:
            cells.append(f"{row[f'{OURS}, 1'] / row[f'{OURS}, {threads}']:.2f}")
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_threads", description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=7, help="in each process")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "threads.json")
    parser.add_argument("--side", choices=[OURS, TORCH], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(one_side(options.side, options.threads, options.only, options.repeats)))
        return 0
    about = machine()
    for key, value in about.items():
        print(f"{key}: {value}")
    rows = measure(options)
    print("\n" + table(rows, options.threads))
    write_json(options.out, {"machine": about, "threads": options.threads, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
