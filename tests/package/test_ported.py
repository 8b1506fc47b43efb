# SPDX-License-Identifier: BSD-3-Clause
"""The ported models: outputs, gradients, buffers, state and training steps equal torch's in
float64.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

import modtree as mt

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "ported"

pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the source tree"),
]

SMALL = {
    "resnet": {"layers": (2, 2, 2, 2), "num_classes": 5, "width": 4},
    "lstm_lm": {"vocabulary": 13, "embedding": 6, "hidden": 7, "layers": 2, "dropout": 0.0},
    "gpt2": {
        "vocabulary": 17,
        "context": 12,
        "layers": 2,
        "heads": 2,
        "width": 8,
        "dropout": 0.0,
    },
    "vit": {
        "image": 8,
        "patch": 4,
        "width": 12,
        "layers": 2,
        "heads": 3,
        "num_classes": 5,
        "dropout": 0.0,
    },
}

DATA = {
    "resnet": {"batch": 3, "size": 40, "classes": 5},
    "lstm_lm": {"batch": 3, "length": 9, "vocabulary": 13},
    "gpt2": {"batch": 2, "length": 11, "vocabulary": 17},
    "vit": {"batch": 3, "size": 8, "classes": 5},
}


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("run")


def array(t):
    return np.array(t.detach().numpy())


class Pair:
    """A small model in both libraries, with the same random weights in float64, and the same
    data.
    """

    def __init__(self, run, name):
        import torch

        torch.manual_seed(0)
        self.files = run.load(name, "modtree"), run.load(name, "torch")
        ours, theirs = self.models = [f.build(**SMALL[name]).double() for f in self.files]
        with torch.no_grad():
            for p in theirs.parameters():  # also where the initial value is 0 or 1
                p.add_(torch.randn_like(p), alpha=0.2)
        state = {k: mt.from_numpy(array(v)) for k, v in theirs.state_dict().items()}
        assert list(ours.state_dict()) == list(state)
        ours.load_state_dict(state, strict=True)
        data = self.files[1].example(**DATA[name])
        data = [d.double() if d.is_floating_point() else d for d in data]
        self.data = [mt.from_numpy(array(d)) for d in data], data

    def loss(self, i):
        return self.files[i].loss(self.models[i], *self.data[i])

    def assert_same(self, what, tolerance=1e-10):
        ours, theirs = ({k: array(v) for k, v in what(model).items()} for model in self.models)
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            assert ours[key].dtype == value.dtype, key
            np.testing.assert_allclose(
                ours[key], value, rtol=tolerance, atol=tolerance, err_msg=key
            )


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


@needs_torch
@pytest.mark.parametrize("name", SMALL)
def test_outputs_and_gradients(run, name):
    pair = Pair(run, name)
    losses = [pair.loss(i) for i in range(2)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    for loss in losses:
        loss.backward()
    pair.assert_same(gradients)
    assert all(array(g).any() for g in gradients(pair.models[0]).values())
    pair.assert_same(lambda model: model.state_dict())


@needs_torch
@pytest.mark.parametrize("name", SMALL)
def test_evaluation(run, name):
    pair = Pair(run, name)
    outputs = []
    for i, lib in enumerate((mt, importlib.import_module("torch"))):
        model = pair.models[i].eval()
        with lib.no_grad():
            if name == "lstm_lm":
                tokens = pair.data[i][0]
                out, (h, c) = model(tokens)
                outputs.append([out, h, c])
            else:
                outputs.append([model(pair.data[i][0])])
    for ours, theirs in zip(*outputs, strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(array(ours), array(theirs), rtol=1e-10, atol=1e-10)
    assert pair.loss(0).item() == pytest.approx(pair.loss(1).item(), rel=1e-12)


@needs_torch
@pytest.mark.parametrize("name", SMALL)
def test_training(run, name):
    """Five steps with momentum, clipping and a schedule; with what batch norm and dropout-free
    layers keep.
    """
    pair = Pair(run, name)
    for i, lib in enumerate((mt, importlib.import_module("torch"))):
        optimizer = lib.optim.SGD(
            pair.models[i].parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
        )
        schedule = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
        for _ in range(5):
            optimizer.zero_grad()
            pair.loss(i).backward()
            lib.nn.utils.clip_grad_norm_(pair.models[i].parameters(), 1.0)
            optimizer.step()
            schedule.step()
    pair.assert_same(lambda model: model.state_dict(), 1e-8)


@needs_torch
def test_gpt2_head_is_the_embedding(run):
    pair = Pair(run, "gpt2")
    for model in pair.models:
        assert model.lm_head.weight is model.transformer["wte"].weight
        assert sum(n.endswith("lm_head.weight") for n, _ in model.named_parameters()) == 0
        assert "lm_head.weight" in model.state_dict()
    results = [
        array(model.generate(data[0][:, :4], 12))
        for model, data in zip(pair.models, pair.data, strict=True)
    ]
    np.testing.assert_array_equal(*results)
    assert results[0].shape == (2, 16)


@needs_torch
def test_resnet18_has_the_shapes_of_torchvisions(run):
    """Number and shapes of the entries of the usual checkpoints of ResNet-18."""
    model = run.load("resnet", "modtree").build()
    state = model.state_dict()
    assert len(state) == 122
    assert sum(p.numel() for p in model.parameters()) == 11_689_512
    assert tuple(state["layer2.0.downsample.0.weight"].shape) == (128, 64, 1, 1)
    assert tuple(state["fc.weight"].shape) == (1000, 512)
    assert state["bn1.num_batches_tracked"].dtype == mt.int64


@pytest.mark.parametrize("name", SMALL)
def test_modtree_alone_learns(run, name):
    """Without torch: the loss on one batch falls."""
    mt.manual_seed(3)
    ported = run.load(name)
    assert ported.torch is mt
    model = ported.build(**SMALL[name])
    data = ported.example(**DATA[name])
    optimizer = mt.optim.AdamW(model.parameters(), lr=3e-2)
    losses = []
    for _ in range(40):
        loss = ported.loss(model, *data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_imports_elsewhere_stay(run):
    """The exchange of the imports ends with the file."""
    run.load("vit")
    assert run.load("vit").nn is mt.nn
    import builtins

    assert __import__ is builtins.__import__
    assert run.load.__globals__["__builtins__"] is not run.load("vit").__dict__["__builtins__"]


def test_the_program():
    command = [sys.executable, str(FOLDER / "run.py"), "lstm_lm", "--batch", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    assert result.returncode == 0, result.stderr
    assert "lstm_lm with modtree: 521,192 parameters" in result.stdout
    assert result.stdout.count("step ") == 3
