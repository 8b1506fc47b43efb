# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_operations``: single operations against torch, one thread, one process.

For each operation the CPU time of modtree over that of torch: forward, and forward with backward,
at several sizes. Sides take turns in many short rounds, and each side's least time counts, so that
a busy machine disturbs little. Rows above ``--above`` are printed again at the end.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from .common import OURS, TORCH  # noqa: E402
from .operation_cases import CASES, Case  # noqa: E402

#: Side of the square inputs: 64, 10,000 and 1,000,000 elements.
SIZES = (8, 100, 1000)
#: A run is repeated until a round takes about so long, in seconds.
ROUND = 0.002


def libraries() -> dict[str, Any]:
    import torch

    import modtree

    torch.set_num_threads(1)
    return {OURS: modtree, TORCH: torch}


def runner(
    library: Any, case: Case, arrays: list[np.ndarray], transposed: bool, backward: bool
) -> Callable[[], Any]:
    """What is timed: the operation, and its backward where that is wanted."""
    inputs = []
    for array in arrays:
        if transposed and array.ndim >= 2:
            array = np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
        tensor = library.from_numpy(array)
        if transposed and array.ndim >= 2 and library.__name__ == "torch":
            assert not tensor.is_contiguous()
        inputs.append(tensor)
    run = case.run(library, library.nn.functional)
    if not backward:

        def forward() -> Any:
            with library.no_grad():
                return run(*inputs)

        return forward
    leaves = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    first = run(*leaves)
    result = first[0] if isinstance(first, tuple) else first
    ones = library.ones(tuple(result.shape), dtype=result.dtype)

    def both() -> None:
        for x in leaves:
            x.grad = None
        out = run(*leaves)
        (out[0] if isinstance(out, tuple) else out).backward(ones)

    return both


def least_times(
    runs: dict[str, Callable[[], Any]], rounds: int, seconds: float
) -> dict[str, float]:
    """Seconds per run of each side."""
    loops, best = {}, {}
    for name, run in runs.items():
        run()
        start = time.process_time()
        run()
        run()
        took = max((time.process_time() - start) / 2, 1e-7)
        loops[name], best[name] = max(1, min(2000, int(ROUND / took))), float("inf")
    stop = time.process_time() + seconds
    for number in range(rounds):
        for name, run in runs.items():
            count = range(loops[name])
            start = time.process_time()
            for _ in count:
                run()
            best[name] = min(best[name], (time.process_time() - start) / loops[name])
        if number >= 3 and time.process_time() > stop:
            break
    return best


def measure(libs: dict[str, Any], case: Case, options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for side in options.sizes:
        if side > case.largest:
            continue
        for dtype in options.dtypes:
            for transposed in options.layouts:
                for backward in options.passes:
                    if backward and not case.backward:
                        continue
                    arrays = case.inputs(np.random.default_rng(0), side, np.dtype(dtype))
                    row = {
                        "name": case.name,
                        "side": side,
                        "dtype": dtype,
                        "layout": "transposed" if transposed else "contiguous",
                        "pass": "both" if backward else "forward",
                    }
                    try:
                        runs = {
                            name: runner(lib, case, arrays, transposed, backward)
                            for name, lib in libs.items()
                        }
                        times = least_times(runs, options.rounds, options.seconds)
                    except Exception as error:
                        row["error"] = f"{type(error).__name__}: {error}"[:200]
                        found.append(row)
                        continue
                    row |= {"ours": times[OURS] * 1e6, "torch": times[TORCH] * 1e6}
                    row["ratio"] = times[OURS] / times[TORCH]
                    found.append(row)
    return found


def line(row: dict[str, Any]) -> str:
    head = f"{row['name']:<28}{row['side']:>5} {row['dtype']:<8}{row['layout']:<11}{row['pass']:<8}"
    if "error" in row:
        return head + row["error"]
    return head + f"{row['ours']:>11.1f} us {row['torch']:>11.1f} us {row['ratio']:>7.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_operations")
    parser.add_argument("--only", nargs="*", help="operations whose names begin with one of these")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--dtypes", nargs="*", default=("float32", "float64"))
    parser.add_argument(
        "--layouts", type=int, nargs="*", default=(0, 1), help="0 contiguous, 1 transposed"
    )
    parser.add_argument(
        "--passes", type=int, nargs="*", default=(0, 1), help="0 forward, 1 with backward"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="per measurement")
    parser.add_argument("--above", type=float, default=2.0)
    parser.add_argument("--out", type=Path, help="a JSON file for all rows")
    options = parser.parse_args()
    libs = libraries()
    gc.disable()
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if options.only and not any(case.name.startswith(name) for name in options.only):
            continue
        for row in measure(libs, case, options):
            rows.append(row)
            if row.get("ratio", 99) > options.above:
                print(line(row), flush=True)
        gc.collect()
    slow = sorted((r for r in rows if r.get("ratio", 0) > options.above), key=lambda r: -r["ratio"])
    print(f"\n{len(rows)} rows, {len(slow)} above {options.above:g}")
    for row in slow[:40]:
        print(line(row))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
