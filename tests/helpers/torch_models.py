# SPDX-License-Identifier: BSD-3-Clause
"""Models of torch tensors on one of the two module systems, or of tensors of both libraries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import modtree as mt  # noqa: E402
from modtree import nn as mnn  # noqa: E402


def make_classes(nn):
    """The same model on one of the two module systems."""

    class Dense(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(outputs, inputs))
            self.bias = nn.Parameter(torch.zeros(outputs))

        def forward(self, x):
            return x @ self.weight.T + self.bias

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Dense(3, 4)
            self.second = Dense(4, 2)
            self.register_buffer("mean", torch.tensor([0.5, 0.5, 0.5]))
            self.register_buffer("count", torch.tensor(0))
            if hasattr(nn, "Buffer"):  # of torch since 2.5
                self.scratch = nn.Buffer(torch.ones(1), persistent=False)
            else:
                self.register_buffer("scratch", torch.ones(1), persistent=False)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x - self.mean)))

    return SimpleNamespace(Dense=Dense, Net=Net)


def both():
    m = mnn.Module()
    m.a = mnn.Parameter(torch.tensor([1.0, 2.0]))
    m.b = mnn.Parameter(mt.tensor([3.0, 4.0]))
    m.register_buffer("c", mt.tensor([5]))
    m.register_buffer("d", torch.tensor([6]))
    return m
