# SPDX-License-Identifier: BSD-3-Clause
"""Quantization: dynamic, eager static with observers, and through fx."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import torch
from outcome import part, report, seed, state, tree
from torch import nn
from torch.ao import quantization
from torch.ao.quantization import quantize_fx


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant = quantization.QuantStub()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.linear = nn.Linear(16, 3)
        self.dequant = quantization.DeQuantStub()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv(self.quant(x))))
        return self.dequant(self.linear(x.flatten(1)))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(ids))[0][:, -1])


def dynamic() -> dict[str, Any]:
    module = Words().eval()
    ids = torch.randint(9, (3, 5))
    small = quantization.quantize_dynamic(module, {nn.Linear, nn.LSTM}, dtype=torch.qint8)
    file = io.BytesIO()
    torch.save(small.state_dict(), file)
    file.seek(0)
    again = quantization.quantize_dynamic(Words().eval(), {nn.Linear, nn.LSTM}, dtype=torch.qint8)
    again.load_state_dict(torch.load(file, weights_only=False))
    return {
        "before": module(ids),
        "after": small(ids),
        "loaded": again(ids),
        "tree": tree(small),
        "keys": list(small.state_dict()),
        "printed": str(small),
        "copied": copy.deepcopy(small)(ids),
    }


def static() -> dict[str, Any]:
    module = Net().eval()
    module = quantization.fuse_modules(module, [["conv", "norm", "relu"]])
    module.qconfig = quantization.get_default_qconfig(torch.backends.quantized.engine)
    prepared = quantization.prepare(module)
    x = torch.randn(4, 2, 4, 4)
    for _ in range(3):
        prepared(x)
    keys = list(prepared.state_dict())
    converted = quantization.convert(prepared)
    return {"out": converted(x), "tree": tree(converted), "keys": keys}


def through_fx() -> dict[str, Any]:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    mapping = quantization.get_default_qconfig_mapping(torch.backends.quantized.engine)
    x = torch.randn(5, 4)
    prepared = quantize_fx.prepare_fx(module, mapping, (x,))
    prepared(x)
    observed = state(prepared)
    converted = quantize_fx.convert_fx(prepared)
    return {"out": converted(x), "observed": observed, "code": converted.code}


def aware() -> dict[str, Any]:
    """Training that knows it will be quantized."""
    module = Net().train()
    module.qconfig = quantization.get_default_qat_qconfig(torch.backends.quantized.engine)
    prepared = quantization.prepare_qat(module)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    x = torch.randn(4, 2, 4, 4)
    for _ in range(2):
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    trained = state(prepared)
    return {"trained": trained, "out": quantization.convert(prepared.eval())(x)}


def main() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    seed()
    return {
        "dynamic": part(dynamic),
        "static": part(static),
        "fx": part(through_fx),
        "aware": part(aware),
    }


if __name__ == "__main__":
    report(main())
