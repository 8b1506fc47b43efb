# SPDX-License-Identifier: BSD-3-Clause
"""torch.func, averaged weights, checkpointing, stacked modules: functions that borrow a tree."""

from __future__ import annotations

import copy
from typing import Any

import torch
from outcome import gradients, part, report, seed, state, train, tree
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        self.tied = self.body[2]
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.shift


def functions() -> dict[str, Any]:
    net = Net()
    x = torch.randn(5, 4)
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(net, params, (x,)).square().mean()

    nets = [Net() for _ in range(3)]
    stacked, buffers = stack_module_state(nets)
    base = copy.deepcopy(nets[0]).to("meta")
    together = vmap(lambda p, b: functional_call(base, (p, b), (x,)))(stacked, buffers)
    return {
        "grad": grad(loss)(params, x),
        "per sample": vmap(grad(loss), in_dims=(None, 0))(params, x),
        "jacobian": jacrev(lambda x: functional_call(net, params, (x,)))(x),
        "together": together,
        "untied": functional_call(
            net, {"tied.bias": torch.zeros(3)}, (x,), tie_weights=False, strict=False
        ),
        "the net stays": state(net),
    }


def averaged() -> dict[str, Any]:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    mean = AveragedModel(net)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    x = torch.randn(8, 4)
    losses = []
    for _ in range(3):
        losses += train(net, lambda: net(x).square().mean(), steps=1)
        mean.update_parameters(net)
        ema.update_parameters(net)
    update_bn([x, x + 1], mean)
    return {"losses": losses, "mean": state(mean), "ema": state(ema), "tree": tree(mean)}


def checkpointed() -> dict[str, Any]:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)) for _ in range(4)])
    x = torch.randn(3, 4, requires_grad=True)
    checkpoint_sequential(layers, 2, x, use_reentrant=False).sum().backward()
    checkpoint(layers[0], x, use_reentrant=True).sum().backward()
    return {"gradients": gradients(layers), "x": x.grad}


def main() -> dict[str, Any]:
    seed()
    return {"func": part(functions), "averaged": part(averaged), "checkpoint": part(checkpointed)}


if __name__ == "__main__":
    report(main())
