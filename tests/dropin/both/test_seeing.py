# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.summary`` and ``modtree.check`` of torch's own modules."""

from __future__ import annotations

import pytest

import modtree as mt

torch = pytest.importorskip("torch")
nn = torch.nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norm = nn.BatchNorm1d(4)
        self.parts = [nn.Linear(4, 4)]
        self.unused = nn.Linear(4, 2)
        self.drop = nn.Dropout()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.drop(self.parts[0](self.norm(x)))


def test_a_summary_and_what_it_leaves_alone():
    model = Net()
    state = torch.get_rng_state()
    found = mt.summary(model, (2, 4), times=1).to_dict()
    names = ["Net", "layers", "0-2", "norm", "unused", "drop"]
    assert [line["name"] for line in found["modules"]] == names
    outputs = [(2, 4), None, (2, 4), (2, 4), None, (2, 4)]
    assert [line["output"] for line in found["modules"]] == outputs
    assert (found["parameters"], found["buffers"]) == (3 * 20 + 8 + 10, 9)
    assert model.training
    assert model.parts[0].training
    assert int(model.norm.num_batches_tracked) == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert not nn.modules.module._global_forward_hooks


def test_a_check():
    found = [(finding.path, finding.kind) for finding in mt.check(Net(), torch.ones(2, 4))]
    assert found == [("parts[0]", "hidden-module"), ("unused", "unused-parameter")]


def test_a_lazy_model_stays_lazy():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    assert mt.summary(model, (2, 5)).parameters == 18 + 6
    assert type(model[0]) is nn.LazyLinear
    assert model(torch.ones(2, 7)).shape == (2, 3)


def test_a_notebook_shows_a_model_as_torch_does():
    assert not hasattr(nn.Linear(1, 1), "_repr_html_")
