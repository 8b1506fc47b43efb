# SPDX-License-Identifier: BSD-3-Clause
"""Programs in torch's style, run as they are on both libraries: losses, gradients and state are
equal in float64.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

FOLDER = Path(__file__).parents[1] / "programs"


def load(path, library):
    """The file as a module whose imports of torch give the library."""

    def import_instead(module, *args, **kwargs):
        top, dot, rest = module.partition(".")
        return __import__(library + dot + rest if top == "torch" else module, *args, **kwargs)

    name = f"program_{path.stem}_{library}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_instead}
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


class Run:
    """What a program draws its data and weights from, and where it notes its results."""

    def __init__(self, library, seed):
        self.lib = importlib.import_module(library)
        self.rng = np.random.default_rng(seed)
        self.notes = []

    def normal(self, *shape):
        return self.lib.from_numpy(self.rng.standard_normal(shape))

    def uniform(self, *shape):
        return self.lib.from_numpy(self.rng.uniform(size=shape))

    def integers(self, end, *shape):
        return self.lib.from_numpy(self.rng.integers(0, end, shape))

    def fill(self, model):
        """Random float64 weights, the scales of norms around 1."""
        model.double()
        with self.lib.no_grad():
            for name, p in model.named_parameters():
                scale = 1.0 if p.ndim == 1 and name.endswith("weight") else 0.0
                p.copy_(self.normal(*p.shape) * 0.3 + scale)
        return model

    def log(self, name, *tensors):
        for tensor in tensors:
            value = None if tensor is None else np.array(tensor.detach().numpy())
            self.notes.append((name, value))

    def log_gradients(self, model):
        for name, p in model.named_parameters():
            self.log(f"gradient of {name}", p.grad)

    def log_state(self, model):
        for name, value in model.state_dict().items():
            self.log(name, value)


def programs():
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found.append(pytest.param(path, node.name, id=f"{path.stem}-{node.name}"))
    return found


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")  # of torch
@pytest.mark.parametrize(("path", "name"), programs())
def test_same_results(path, name):
    runs = []
    for library in ("modtree", "torch"):
        run = Run(library, zlib.crc32(name.encode()))
        getattr(load(path, library), name)(run)
        runs.append(run)
    ours, theirs = (run.notes for run in runs)
    assert [n for n, _ in ours] == [n for n, _ in theirs] and len(ours) >= 3
    for (note, mine), (_, other) in zip(ours, theirs, strict=True):
        if other is None:
            assert mine is None, note
            continue
        assert mine is not None and mine.dtype == other.dtype, note
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-10, err_msg=note)
    values = [v for n, v in theirs if n.startswith("gradient") and v is not None]
    assert not values or any(np.abs(v).max() > 1e-4 for v in values)
