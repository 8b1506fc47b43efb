# SPDX-License-Identifier: BSD-3-Clause
"""Writes files with modules in them (``exchange.py write FOLDER``), or reads them (``read``): one
on torch as it is, the other on modtree's Module.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from outcome import report, seed, state, tree
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.named = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.LSTM(4, 2)})
        self.list = nn.ParameterList([torch.ones(2), torch.zeros(3)])
        self.register_buffer("quick", torch.arange(3.0), persistent=False)
        self.register_parameter("none", None)
        self.absent = None
        self.text = "kept"
        self.eval()
        self.body[0].register_forward_hook(double)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.named["a"](self.body(x)) + self.quick[1]


def double(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 2


def facts(net: Any) -> dict[str, Any]:
    net.eval()
    return {
        "out": net(torch.ones(2, 3)),
        "tree": tree(net),
        "state": state(net),
        "entries": sorted(vars(net)),
        "hooks": len(net.body[0]._forward_hooks),
        "parameters": [n for n, _ in net.named_parameters()],
        "buffers": [n for n, _ in net.named_buffers()],
        "text": net.text,
        "printed": str(net),
    }


def write(place: Path) -> dict[str, Any]:
    seed()
    net = Net()
    torch.save(net, place / "net.pt")
    torch.save(net.state_dict(), place / "state.pt")
    torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Tanh())).save(place / "scripted.pt")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (place / f"net.{protocol}.pickle").write_bytes(pickle.dumps(net, protocol))
    return {}


def read(place: Path) -> dict[str, Any]:
    found = {"net.pt": facts(torch.load(place / "net.pt", weights_only=False))}
    for path in sorted(place.glob("*.pickle")):
        found[path.name] = facts(pickle.loads(path.read_bytes()))
    net = Net()
    net.load_state_dict(torch.load(place / "state.pt", weights_only=True))
    scripted = torch.jit.load(place / "scripted.pt")
    return {**found, "state": facts(net), "scripted": scripted(torch.ones(1, 2))}


if __name__ == "__main__":
    action, folder = sys.argv[1:]
    report({"write": write, "read": read}[action](Path(folder)))
