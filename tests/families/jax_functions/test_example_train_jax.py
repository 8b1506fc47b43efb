# SPDX-License-Identifier: BSD-3-Clause
"""The example that trains on jax: it learns, and NumPy and torch go on from its checkpoints."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import modtree as mt

pytest.importorskip("optax")
pytest.importorskip("torch")
pytest.importorskip("modtree.jax")

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs the source tree")


class Bar:
    """A progress bar that shows nothing: the package tqdm need not be there."""

    def __init__(self, **options):
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        assert self.count > 0

    def update(self, n):
        self.count += n

    def set_postfix(self, **shown):
        assert set(shown) == {"epoch", "loss"}


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("train_jax")
    monkeypatch.setattr(module.train_digits, "need", lambda name: SimpleNamespace(tqdm=Bar))

    class Few(module.Digits):
        """Random images: no need of scikit-learn."""

        def __init__(self):
            rng = np.random.default_rng(0)
            self.inputs = rng.random((32, 1, 8, 8)).astype(np.float32)
            self.targets = rng.integers(0, 10, 32)

    class Short(module.Text):
        def __init__(self):
            super().__init__(length=8)
            self.inputs, self.targets = self.inputs[:32], self.targets[:32]

    monkeypatch.setitem(module.TASKS, "digits", Few)
    monkeypatch.setitem(module.TASKS, "gpt", Short)
    return module


def run(example, folder, task, epochs, *more):
    arguments = [task, "--epochs", str(epochs), "--batch-size", "16", "--quiet"]
    assert example.main([*arguments, "--out", str(folder), *more]) == 0
    return mt.load_file(folder / f"{task}.safetensors")


@pytest.mark.slow
def test_digits_go_on_in_each_library_as_on_jax(example, tmp_path):
    first = run(example, tmp_path, "digits", 2)
    results = {}
    for library in ("jax", "numpy", "torch"):
        folder = tmp_path / library  # of its own: what is read is mapped
        folder.mkdir()
        shutil.copy(tmp_path / "digits.safetensors", folder)
        results[library] = run(example, folder, "digits", 3, "--resume", "--library", library)
    assert results["jax"]["progress"].tolist() == [3, 6]
    for key, expected in results["jax"].items():
        for library in ("numpy", "torch"):
            got = results[library][key]
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-2, atol=2e-3)
    key = "model.classifier.weight"
    assert not np.array_equal(first[key].numpy(), results["jax"][key].numpy())


@pytest.mark.slow
def test_gpt_learns_on_jax(example, tmp_path, capsys):
    run(example, tmp_path, "gpt", 1)
    before = float(capsys.readouterr().out.split("loss ")[1].split()[0])
    run(example, tmp_path, "gpt", 4, "--resume")
    assert float(capsys.readouterr().out.split("loss ")[1].split()[0]) < before
