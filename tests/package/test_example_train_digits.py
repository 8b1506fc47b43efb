# SPDX-License-Identifier: BSD-3-Clause
"""The example that trains on digits: what it learns, its checkpoints, and the same run with
torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER
from helpers.needs import needs

import modtree as mt

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

needs_data = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sklearn", "tqdm", "matplotlib")),
    reason="needs pip install '.[examples]'",
)
# A dependency of the package, which some Pythons have no file of: free-threaded 3.13.
needs_safetensors = needs("safetensors")

pytestmark = [
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs the source tree"),
]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("train_digits")


@pytest.fixture
def few_digits(example):
    """Random images in place of the real ones: no need of scikit-learn, and fast."""
    rng = np.random.default_rng(0)

    def images(n):
        return rng.random((n, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, n)

    return example.Digits(*images(50), *images(20))


class Bar:
    """A progress bar that counts."""

    def __init__(self):
        self.count, self.shown = 0, {}

    def update(self, n):
        self.count += n

    def set_postfix(self, **shown):
        self.shown = shown


def options(example, **changes):
    parsed = example.parse(["--quiet", "--epochs", "4", "--batch-size", "16"])
    for name, value in changes.items():
        setattr(parsed, name, value)
    return parsed


def run(trainer, epochs):
    for _ in range(epochs):
        trainer.run_epoch(Bar())


def weights(trainer):
    return {k: np.array(v.detach().numpy()) for k, v in trainer.model.state_dict().items()}


def assert_equal_arrays(a, b):
    assert list(a) == list(b)
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key, strict=True)


def test_an_epoch(example, few_digits):
    trainer = example.Trainer("modtree", few_digits, options(example))
    before, bar = weights(trainer), Bar()
    trainer.run_epoch(bar)
    assert bar.count == 4  # 50 images in batches of 16
    assert set(bar.shown) == {"loss", "held_out"}
    assert trainer.epoch == 1 and len(trainer.history.accuracy) == 1
    after = weights(trainer)
    assert all((before[k] != after[k]).any() for k in before)
    assert after["features.0.1.num_batches_tracked"] == 4
    assert trainer.optimizer.param_groups[0]["lr"] < 3e-3


@needs_safetensors
@pytest.mark.parametrize("library", ["modtree", pytest.param("torch", marks=needs_torch)])
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(example, few_digits, library, tmp_path):
    whole = example.Trainer(library, few_digits, options(example))
    run(whole, 4)
    first = example.Trainer(library, few_digits, options(example))
    run(first, 2)
    first.save(tmp_path / "a" / "x.safetensors")
    second = example.Trainer(library, few_digits, options(example, seed=0))
    second.resume(tmp_path / "a" / "x.safetensors")
    assert_equal_arrays(weights(second), weights(first))
    assert second.epoch == 2
    run(second, 2)
    assert_equal_arrays(weights(second), weights(whole))
    assert second.history.loss == whole.history.loss
    assert second.schedule.get_last_lr() == whole.schedule.get_last_lr()
    assert os.listdir(tmp_path / "a") == ["x.safetensors"]


@needs_safetensors
@needs_torch
def test_a_checkpoint_of_torch_goes_on_in_modtree(example, few_digits, tmp_path):
    theirs = example.Trainer("torch", few_digits, options(example))
    run(theirs, 2)
    theirs.save(tmp_path / "x.safetensors")
    ours = example.Trainer("modtree", few_digits, options(example))
    ours.resume(tmp_path / "x.safetensors")
    assert_equal_arrays(weights(ours), weights(theirs))
    steps = [s["step"].item() for s in ours.optimizer.state_dict()["state"].values()]
    assert steps == [8] * 11
    run(ours, 1)
    run(theirs, 1)
    assert ours.history.loss[2] == pytest.approx(theirs.history.loss[2], rel=1e-3)


@needs_torch
def test_both_libraries_start_alike(example, few_digits):
    ours, theirs = (example.Trainer(n, few_digits, options(example)) for n in ("modtree", "torch"))
    assert_equal_arrays(weights(ours), weights(theirs))
    run(ours, 1)
    run(theirs, 1)
    assert ours.history.loss[0] == pytest.approx(theirs.history.loss[0], rel=1e-4)


@needs_torch
def test_first_step_in_float64(example, few_digits):
    """Loss, gradients and updated weights of one step, where a kink of ReLU cannot hide a
    difference.
    """
    import torch

    results = []
    for name, lib in (("modtree", mt), ("torch", torch)):
        trainer = example.Trainer(name, few_digits, options(example))
        model = trainer.model.double()
        images = lib.from_numpy(few_digits.train_images[:16].astype(np.float64))
        labels = lib.from_numpy(few_digits.train_labels[:16])
        loss = lib.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.05)
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        results.append([loss, norm, *(p.grad for p in model.parameters())])
        optimizer = lib.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.02)
        optimizer.step()
        results[-1] += [*model.state_dict().values()]
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-8, atol=1e-10
        )


@needs_data
def test_recognizes_the_held_out_digits(example, tmp_path, capsys):
    """The promise of the example, with fewer epochs than it takes by default."""
    arguments = ["--quiet", "--epochs", "6", "--out", str(tmp_path)]
    assert example.main(arguments) == 0
    with (tmp_path / "digits.png").open("rb") as image:
        assert image.read(8) == b"\x89PNG\r\n\x1a\n"
    said = capsys.readouterr().out
    share = float(said.split("modtree: ")[1].split("%")[0])
    assert share >= 98.5
    assert "of 359 held-out digits" in said
    # Everything is done: resuming trains no more, and says the same.
    assert example.main([*arguments, "--resume"]) == 0
    again = capsys.readouterr().out
    assert "resumed after 6 epochs" in again and f"modtree: {share:.2f}%" in again


@needs_data
def test_the_data_is_divided_once(example):
    first, second = example.load_digits(), example.load_digits()
    np.testing.assert_array_equal(first.test_images, second.test_images)
    assert first.train_images.shape == (1438, 1, 8, 8) and first.test_images.shape[0] == 359
    assert first.train_images.min() == 0 and first.train_images.max() == 1
    train, test = ({i.tobytes() for i in part} for part in (first.train_images, first.test_images))
    assert not train & test


@needs_data
def test_resume_without_a_checkpoint(example, tmp_path, capsys):
    assert example.main(["--resume", "--out", str(tmp_path)]) == 2
    assert "run without --resume first" in capsys.readouterr().err


def test_says_what_is_missing(tmp_path):
    """Without scikit-learn, one message that names the command."""
    (tmp_path / "sklearn.py").write_text("raise ImportError('hidden')\n")
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / "train_digits.py"), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert result.returncode == 2
    assert "'sklearn' is needed" in result.stderr and "pip install '.[examples]'" in result.stderr


@needs_data
@needs_torch
def test_prints_both_times(example, tmp_path, capsys):
    arguments = ["--quiet", "--epochs", "1", "--out", str(tmp_path), "--library", "torch"]
    assert example.main(arguments) == 0
    said = capsys.readouterr().out
    for library in ("torch", "modtree"):
        line = next(line for line in said.splitlines() if line.startswith(library))
        assert "1 epochs in" in line and line.endswith(" s")
        assert (tmp_path / f"{library}.safetensors").exists()


@needs_safetensors
def test_checkpoints_hold_no_code(example, few_digits, tmp_path):
    """Tensors and JSON: a checkpoint from elsewhere can be read without running what is in it."""
    from safetensors import safe_open

    trainer = example.Trainer("modtree", few_digits, options(example))
    run(trainer, 1)
    trainer.save(tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="numpy") as file:
        meta = json.loads(file.metadata()["training"])
        keys = set(file.keys())
    assert set(meta) == {"param_groups", "schedule", "history"}
    assert "model.classifier.weight" in keys and "optimizer.0.exp_avg" in keys
