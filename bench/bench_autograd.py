# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_autograd``: operations, gradients and training steps against torch, one
thread, in one process.

The same code runs with both libraries. The floor of an operation is NumPy on bare arrays; that of a
convolution is the matrix products alone.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402
import functools  # noqa: E402
import importlib.util  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from . import bench_minilm  # noqa: E402
from .common import (  # noqa: E402
    FLOOR,
    OURS,
    ROOT,
    TORCH,
    Budget,
    Row,
    machine,
    table,
    time_row,
    to_json,
    write_json,
)

PARTS = ("ops", "minilm", "digits", "conv", "models")
SIDES = (FLOOR, OURS, TORCH)
MS = 1_000_000


def libraries() -> dict[str, Any]:
    import torch

    import modtree

    torch.set_num_threads(1)
    return {OURS: modtree, TORCH: torch}


def arrays(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


# -- operations on small tensors -------------------------------------------------------------------

_CHAIN = 100


def _chain(tanh: Callable[[Any], Any], h: Any, w: Any, b: Any) -> Any:
    for _ in range(_CHAIN):
        h = tanh(h * w + b)
    return h


def _chain_step(library: Any, tensors: list[Any]) -> None:
    _chain(library.tanh, *tensors).sum().backward()
    for tensor in tensors:
        tensor.grad = None


def op_rows() -> list[Row]:
    libs = libraries()
    values = arrays(0, *[(8, 8)] * 3)
    plain = {s: [lib.tensor(v) for v in values] for s, lib in libs.items()}
    wanted = {s: [lib.tensor(v, requires_grad=True) for v in values] for s, lib in libs.items()}
    operations = 3 * _CHAIN
    half = (Budget(0.5, OURS, TORCH),)

    def runs(tensors: dict[str, list[Any]]) -> dict[str, Callable[[], Any]]:
        return {s: lambda s=s: _chain(libs[s].tanh, *tensors[s]) for s in libs}

    def no_grad(side: str) -> Any:
        with libs[side].no_grad():
            return _chain(libs[side].tanh, *plain[side])

    floor = {FLOOR: lambda: _chain(np.tanh, *values)}
    return [
        Row(
            "ops.forward",
            "an operation on 8 x 8, no gradient wanted",
            "operation",
            operations,
            {**floor, **{s: lambda s=s: no_grad(s) for s in libs}},
            budgets=half,
        ),
        Row(
            "ops.record",
            "the same, recorded",
            "operation",
            operations,
            {**floor, **runs(wanted)},
            budgets=half,
        ),
        Row(
            "ops.backward",
            "the same, forward and backward",
            "operation",
            operations,
            {s: lambda s=s: _chain_step(libs[s], wanted[s]) for s in libs},
            budgets=half,
        ),
    ]


# -- MiniLM ----------------------------------------------------------------------------------------


def minilm_rows() -> list[Row]:
    rows = []
    for row in bench_minilm.rows():
        batch = int(row.key.split(".")[1].split("x")[0])
        if batch in (1, 32):
            row.budgets = (Budget(1.0, OURS, TORCH),)
        row.per = "forward"
        rows.append(row)
    ours, theirs = bench_minilm.models()
    libs = libraries()
    for batch, length in ((1, 128), (32, 32)):
        ids = np.random.default_rng(0).integers(
            0, bench_minilm.SIZES["vocab_size"], (batch, length)
        )

        def step(model: Any, ids: Any) -> None:
            model(ids).sum().backward()
            model.zero_grad()

        runs = {
            OURS: functools.partial(step, ours, libs[OURS].from_numpy(ids)),
            TORCH: functools.partial(step, theirs, libs[TORCH].from_numpy(ids)),
        }
        title = f"MiniLM-L6 forward and backward, batch {batch}, length {length}"
        rows.append(Row(f"minilm.step.{batch}x{length}", title, "step", MS, runs))
    return rows


# -- a small network on digits ---------------------------------------------------------------------


def digits_rows() -> list[Row]:
    libs = libraries()
    (images,) = arrays(1, (64, 64))
    labels = np.random.default_rng(2).integers(0, 10, 64)

    def trainer(library: Any, optimizer_name: str) -> Callable[[], None]:
        nn = library.nn
        library.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
        )
        make = getattr(library.optim, optimizer_name)
        optimizer = make(model.parameters(), lr=1e-3)
        x, y = library.tensor(images), library.tensor(labels)
        loss_function = nn.CrossEntropyLoss()

        def step() -> None:
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()

        step()
        return step

    return [
        Row(
            f"digits.{name.lower()}",
            f"MLP 64-128-64-10, a step of {name} on 64 digits",
            "step",
            1000,
            {s: trainer(lib, name) for s, lib in libs.items()},
            budgets=(Budget(1.0, OURS, TORCH),),
        )
        for name in ("SGD", "Adam", "AdamW")
    ]


# -- convolutions ----------------------------------------------------------------------------------

# batch, channels in, height, channels out, kernel, stride
CONVOLUTIONS = (
    (8, 64, 56, 64, 3, 1),
    (8, 64, 56, 64, 1, 1),
    (8, 128, 28, 128, 3, 2),
    (8, 3, 112, 32, 7, 2),
)


def conv_rows() -> list[Row]:
    libs = libraries()
    rows = []
    for batch, inputs, height, outputs, kernel, stride in CONVOLUTIONS:
        padding = kernel // 2
        size = (height + 2 * padding - kernel) // stride + 1
        x, w = arrays(3, (batch, inputs, height, height), (outputs, inputs, kernel, kernel))
        columns, weight = arrays(
            4, (batch, inputs * kernel**2, size * size), (outputs, inputs * kernel**2)
        )
        (gradient,) = arrays(5, (batch, outputs, size * size))

        def forward(
            library: Any, x: Any, w: Any, stride: int = stride, padding: int = padding
        ) -> Any:
            with library.no_grad():
                return library.nn.functional.conv2d(x, w, stride=stride, padding=padding)

        def step(
            library: Any, x: Any, w: Any, stride: int = stride, padding: int = padding
        ) -> None:
            library.nn.functional.conv2d(x, w, stride=stride, padding=padding).sum().backward()
            x.grad = w.grad = None

        def products(columns: Any = columns, weight: Any = weight, gradient: Any = gradient) -> Any:
            np.matmul(weight, columns)
            np.matmul(weight.T, gradient)
            return np.matmul(gradient, columns.transpose(0, 2, 1))

        given = {s: [lib.tensor(v, requires_grad=True) for v in (x, w)] for s, lib in libs.items()}
        what = (
            f"conv2d {inputs} to {outputs}, {kernel} x {kernel}, stride {stride}, on {batch} "
            f"x {height} x {height}"
        )
        key = f"conv.{kernel}s{stride}c{inputs}"
        rows.append(
            Row(
                key,
                what,
                "forward",
                MS,
                {
                    FLOOR: lambda c=columns, w=weight: np.matmul(w, c),
                    **{s: lambda s=s, g=given: forward(libs[s], *g[s]) for s in libs},
                },
            )
        )
        rows.append(
            Row(
                key + ".step",
                what + ", forward and backward",
                "step",
                MS,
                {FLOOR: products, **{s: lambda s=s, g=given: step(libs[s], *g[s]) for s in libs}},
            )
        )
    return rows


# -- whole models ----------------------------------------------------------------------------------


def _ported() -> ModuleType:
    path = ROOT / "examples" / "ported" / "run.py"
    spec = importlib.util.spec_from_file_location("ported_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_rows() -> list[Row]:
    libs = libraries()
    run = _ported()
    rows = []
    for name in run.MODELS:
        forwards, steps = {}, {}
        for side, library in libs.items():
            library.manual_seed(0)
            ported = run.load(name, library.__name__)
            model = ported.build()
            data = ported.example(batch=4)

            def forward(
                ported: Any = ported, model: Any = model, data: Any = data, library: Any = library
            ) -> Any:
                with library.no_grad():
                    return ported.loss(model, *data)

            def step(ported: Any = ported, model: Any = model, data: Any = data) -> None:
                ported.loss(model, *data).backward()
                model.zero_grad()

            forwards[side], steps[side] = forward, step
        rows.append(Row(f"{name}.forward", f"{name}, forward, batch 4", "forward", MS, forwards))
        rows.append(
            Row(f"{name}.step", f"{name}, forward and backward, batch 4", "step", MS, steps)
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_autograd", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure this part (may be repeated)"
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=10, help="time after which a side stops repeating a row"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "autograd.json")
    options = parser.parse_args()
    record: dict[str, Any] = {"machine": machine(), "rows": []}
    for key, value in record["machine"].items():
        print(f"{key}: {value}")
    builders = {
        "ops": op_rows,
        "minilm": minilm_rows,
        "digits": digits_rows,
        "conv": conv_rows,
        "models": model_rows,
    }
    failed = False
    for part in options.only or PARTS:
        results = [time_row(row, options.repeats, options.seconds) for row in builders[part]()]
        for result in results:
            result.unit = {"operation": "ns"}.get(result.per, "ms")
            if result.key.startswith("digits"):
                result.unit = "us"
        print(f"\n## {part}\n\n{table(results, SIDES)}", flush=True)
        record["rows"] += [to_json(r) for r in results]
        failed |= any(r.errors for r in results)
        for result in results:
            for side, text in result.errors.items():
                print(f"could not measure {result.key} [{side}]: {text}")
    write_json(options.out, record)
    print(f"\nwrote {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
