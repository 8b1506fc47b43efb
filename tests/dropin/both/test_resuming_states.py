# SPDX-License-Identifier: BSD-3-Clause
"""Optimizer states by the names of parameters, of models on torch's class and on the native one."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import modtree as mt  # noqa: E402


def make(*names, head=2):
    layers = {name: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for name in names}
    return nn.ModuleDict({**layers, "head": nn.Linear(3, head)})


def train(model, optimizer, steps=2):
    for i in range(steps):
        x = torch.arange(12.0).reshape(4, 3).sin() + i
        for name in sorted(set(model) - {"head"}):
            x = model[name](x)
        optimizer.zero_grad()
        model["head"](x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("is_named", [True, False])
def test_states_follow_names(is_named):
    model = make("a", "b", "c")
    params = model.named_parameters() if is_named else model.parameters()
    optimizer = torch.optim.AdamW(params)
    train(model, optimizer)
    other = make("c", "a", "b", head=4)
    fresh = torch.optim.AdamW(other.parameters(), lr=0.5)
    report = mt.load_optimizer_state(
        fresh, optimizer.state_dict(), model=other, names=model.state_dict(), partial=True
    )
    assert list(report.skipped) == ["head.weight", "head.bias"]
    old = dict(model.named_parameters())
    for name, p in other.named_parameters():
        if name.startswith("head"):
            assert p not in fresh.state
            continue
        for key, value in fresh.state[p].items():
            assert torch.equal(value, optimizer.state[old[name]][key])
    assert fresh.param_groups[0]["lr"] == 0.5
    train(other, fresh)


def test_an_unchanged_model_goes_on_bit_for_bit():
    model = make("a", "b")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    train(model, optimizer)
    other = make("a", "b")
    other.load_state_dict(model.state_dict())
    fresh = torch.optim.SGD(other.named_parameters(), lr=0.1, momentum=0.9, nesterov=True)
    mt.load_optimizer_state(fresh, copy.deepcopy(mt.optimizer_state(optimizer, model)))
    for net, optim in ((model, optimizer), (other, fresh)):
        train(net, optim)
    for key, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])
