# SPDX-License-Identifier: BSD-3-Clause
"""Whole modules, archives of TorchScript, training checkpoints and plain pickles that were changed
by chance: shown or refused in each way, in little memory, and nothing of them runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.implementations import HAS_TORCH, needs_torch

torch = importlib.import_module("torch") if HAS_TORCH else None
SCRIPT = Path(__file__).parents[1] / "isolated" / "read_mutated_foreign.py"
COUNT = int(os.environ.get("MODTREE_MUTATIONS", "1000"))


def write_files(folder):
    folder.mkdir()
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    namespace = argparse.Namespace(lr=1, weight=torch.ones(2), parts=[{"a": 1}, (2, "x")])
    namespace.itself = namespace
    objects = {
        "whole": model,
        "run": {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "args": namespace,
        },
        "tensors": {
            "coo": torch.eye(2).to_sparse(),
            "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
            "half": torch.zeros(2, dtype=torch.complex32),
            "objects": np.array([1, None], object),
        },
        "optimizer": optimizer,
    }
    for name, value in objects.items():
        torch.save(value, folder / f"{name}.pt")
        torch.save(value, folder / f"{name}_old.pt", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.trace(model, torch.ones(1, 2)), folder / "script.pt")
    for protocol in (0, 2, 5):
        value = {"model": model, "args": argparse.Namespace(a=1, b=np.ones(2), c={1, 2})}
        (folder / f"plain_{protocol}.pkl").write_bytes(pickle.dumps(value, protocol))


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(sys.platform == "win32", reason="limits memory as POSIX does")
def test_changed_files_are_shown_or_refused(tmp_path):
    """MODTREE_MUTATIONS sets how many; a failure names its number, which alone makes the file."""
    write_files(tmp_path / "valid")
    (tmp_path / "place").mkdir()
    command = [sys.executable, SCRIPT, "0", str(COUNT), tmp_path / "place", tmp_path / "valid"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = {way: (int(a), int(b)) for way, a, b in map(str.split, done.stdout.splitlines())}
    assert set(counts) == {"opened", "stand-ins", "commands"}
    for read, refused in counts.values():
        assert read + refused == COUNT and read > COUNT // 20 and refused > COUNT // 20
