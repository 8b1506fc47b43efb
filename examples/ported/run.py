#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the models of this folder, which import torch, with modtree in torch's place.

    python examples/ported/run.py resnet                    # one training step with modtree
    python examples/ported/run.py gpt2 --library torch      # the same file with torch

The models do with functions what tensors of other libraries do not have as methods, so that
``modtree.to_family(model, "jax")`` runs them on jax arrays (tests/families/jax_functions).

For a program of your own, change its imports: ``import modtree as torch``, ``from modtree import
nn``.
"""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).resolve().parent
MODELS = ("resnet", "lstm_lm", "gpt2", "vit")


def load(name: str, library: str = "modtree") -> ModuleType:
    """A model's file as a module whose imports of torch give ``library``."""

    def import_instead(module: str, *args: Any, **kwargs: Any) -> Any:
        top, dot, rest = module.partition(".")
        return __import__(library + dot + rest if top == "torch" else module, *args, **kwargs)

    full_name = f"ported_{name}_{library}"
    spec = importlib.util.spec_from_file_location(full_name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # Only in this module: import statements look their function up in the builtins of their
    # globals.
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_instead}
    sys.modules[full_name] = module  # dataclasses and pickle look here
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--library", choices=("modtree", "torch"), default="modtree")
    parser.add_argument("--batch", type=int, default=2)
    options = parser.parse_args(arguments)
    library = importlib.import_module(options.library)
    library.manual_seed(0)
    ported = load(options.model, options.library)
    model = ported.build()
    data = ported.example(batch=options.batch)
    optimizer = library.optim.AdamW(model.parameters(), lr=1e-3)
    count = sum(p.numel() for p in model.parameters())
    print(f"{options.model} with {options.library}: {count:,} parameters")
    for step in range(3):
        start = time.perf_counter()
        loss = ported.loss(model, *data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}, {time.perf_counter() - start:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
