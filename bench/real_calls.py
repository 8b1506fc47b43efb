# SPDX-License-Identifier: BSD-3-Clause
"""Single calls of what stands on modules in torch's Python: containers, averages, gradients,
functional calls, parametrizations. ``python -m bench.bench_shares --calls`` counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn.utils import parametrizations, parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from . import dropin_models as models
from .real_programs import Program

__all__ = ["CALLS"]

LAYERS = 20


class _Identity(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


def _identities() -> list[nn.Module]:
    return [_Identity() for _ in range(LAYERS)]


def sequential() -> Callable[[], Any]:
    net = nn.Sequential(*_identities())
    return lambda: net(1)


def loop_over_list() -> Callable[[], Any]:
    layers = nn.ModuleList(_identities())
    return lambda: [layer(1) for layer in layers]


def loop_over_indices() -> Callable[[], Any]:
    layers = nn.ModuleList(_identities())
    return lambda: [layers[i](1) for i in range(LAYERS)]


def loop_over_slice() -> Callable[[], Any]:
    """As models of transformers go through their layers."""
    layers = nn.ModuleList(_identities())
    return lambda: [layer(1) for layer in layers[:LAYERS]]


def loop_over_plain_list() -> Callable[[], Any]:
    layers = _identities()
    return lambda: [layer(1) for layer in layers]


def update_average() -> Callable[[], Any]:
    model = models.ViT(layers=8, dim=64)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    return lambda: average.update_parameters(model)


def _with_gradients() -> nn.Module:
    model = models.ViT(layers=8, dim=64)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model


def clip_gradients() -> Callable[[], Any]:
    model = _with_gradients()
    return lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def zero_grad_of_module() -> Callable[[], Any]:
    model = _with_gradients()
    return lambda: model.zero_grad(set_to_none=False)


def zero_grad_of_optimizer() -> Callable[[], Any]:
    optimizer = torch.optim.AdamW(_with_gradients().parameters())
    return lambda: optimizer.zero_grad(set_to_none=False)


def _small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def call_small() -> Callable[[], Any]:
    net, x = _small(), torch.ones(1, 4)
    return lambda: net(x)


def call_small_functionally() -> Callable[[], Any]:
    net, x = _small(), torch.ones(1, 4)
    state = {name: p.detach() for name, p in net.named_parameters()}
    return lambda: functional_call(net, state, (x,))


def gradient_by_functional_call() -> Callable[[], Any]:
    """The inner step of MAML."""
    net, x = _small(), torch.ones(1, 4)
    state = {name: p.detach() for name, p in net.named_parameters()}
    gradient = grad(lambda values: functional_call(net, values, (x,)).sum())
    return lambda: gradient(state)


def call_linear() -> Callable[[], Any]:
    layer, x = nn.Linear(64, 64), torch.ones(8, 64)
    return lambda: layer(x)


def call_linear_with_weight_norm() -> Callable[[], Any]:
    layer, x = parametrizations.weight_norm(nn.Linear(64, 64)), torch.ones(8, 64)
    return lambda: layer(x)


def read_weight() -> Callable[[], Any]:
    layer = nn.Linear(4, 4)
    return lambda: layer.weight


def read_parametrized_weight() -> Callable[[], Any]:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", _Identity())
    return lambda: layer.weight


def _call(make: Callable[[], Callable[[], Any]]) -> Callable[[], Program]:
    return lambda: Program(make(), per="call", count=20)


#: What the table says -> what makes it.
CALLS: dict[str, Callable[[], Program]] = {
    title: _call(make)
    for title, make in {
        f"`Sequential` of {LAYERS}": sequential,
        f"loop over a list of {LAYERS}": loop_over_plain_list,
        f"loop over a `ModuleList` of {LAYERS}": loop_over_list,
        f"`ModuleList[i]` {LAYERS} times": loop_over_indices,
        f"loop over `ModuleList[:{LAYERS}]`": loop_over_slice,
        "`AveragedModel.update_parameters`, ViT": update_average,
        "`clip_grad_norm_`, ViT": clip_gradients,
        "`module.zero_grad(set_to_none=False)`, ViT": zero_grad_of_module,
        "`optimizer.zero_grad(set_to_none=False)`, ViT": zero_grad_of_optimizer,
        "call of a net of 3 layers": call_small,
        "the same by `functional_call`": call_small_functionally,
        "`torch.func.grad` of the same": gradient_by_functional_call,
        "call of a `Linear`": call_linear,
        "the same with `weight_norm`": call_linear_with_weight_norm,
        "read of a weight": read_weight,
        "read of a parametrized weight": read_parametrized_weight,
    }.items()
}
