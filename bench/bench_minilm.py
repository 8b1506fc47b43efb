# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_minilm``: the forward pass of MiniLM-L6 against torch, one thread.

Both run the same source, ``examples/minilm.py``: torch's side with its imports changed, on the same
random weights.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from .common import (  # noqa: E402
    OURS,
    ROOT,
    TORCH,
    Row,
    machine,
    table,
    time_row,
    to_json,
    write_json,
)

SIZES = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
SHAPES = ((1, 16), (1, 128), (32, 32), (32, 128))  # batch, length


def load(library: str) -> Any:
    """The module ``examples/minilm.py`` on top of modtree or torch."""
    source = (ROOT / "examples" / "minilm.py").read_text()
    if library == "torch":
        source = source.replace("import modtree as mt", "import torch as mt")
        source = source.replace("modtree.nn", "torch.nn").replace("from modtree", "from torch")
    name = f"minilm_on_{library}"
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return module


def models() -> tuple[Any, Any]:
    """The same encoder on modtree and on torch."""
    import torch

    import modtree as mt

    torch.set_num_threads(1)
    torch.manual_seed(0)
    theirs = load("torch")
    theirs = theirs.BertModel(theirs.BertConfig(**SIZES)).eval()
    ours = load("modtree")
    ours = ours.BertModel(ours.BertConfig(**SIZES)).eval()
    ours.load_state_dict({k: mt.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def rows() -> list[Row]:
    import torch

    import modtree as mt

    ours, theirs = models()

    def run(library: Any, model: Any, ids: Any) -> Any:
        with library.no_grad():
            return model(ids)

    found = []
    random = np.random.default_rng(0)
    for batch, length in SHAPES:
        ids = random.integers(0, SIZES["vocab_size"], (batch, length))
        our_ids, their_ids = mt.from_numpy(ids), torch.from_numpy(ids)
        difference = np.abs(
            run(mt, ours, our_ids).numpy() - run(torch, theirs, their_ids).numpy()
        ).max()
        print(f"batch {batch}, length {length}: largest difference {difference:.1e}", flush=True)
        runs = {
            OURS: lambda ids=our_ids: run(mt, ours, ids),
            TORCH: lambda ids=their_ids: run(torch, theirs, ids),
        }
        title = f"MiniLM-L6 forward, batch {batch}, length {length}"
        found.append(Row(f"minilm.{batch}x{length}", title, "ms", 1_000_000, runs))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_minilm", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "minilm.json")
    options = parser.parse_args()
    record: dict[str, Any] = {"machine": machine()}
    for key, value in record["machine"].items():
        print(f"{key}: {value}")
    results = [time_row(row, options.repeats, seconds=20) for row in rows()]
    for result in results:
        result.unit = "ms"
        result.per = "forward"
    print("\n" + table(results, (OURS, TORCH)))
    record["rows"] = [to_json(r) for r in results]
    write_json(options.out, record)
    return 1 if any(r.errors for r in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
