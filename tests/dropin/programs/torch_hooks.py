# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of every kind, per module and for all modules, and what tools do to the class itself."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from outcome import gradients, part, report, seed, state
from torch import nn
from torch.nn.modules import module as torch_module


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.b = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
        return self.b(self.a(x).relu()) * gain


def of_modules(log: list[str]) -> dict[str, Any]:
    net = Net()

    def say(kind: str) -> Any:
        return lambda *args, **kwargs: log.append(f"{kind} {len(args)} {sorted(kwargs)}")

    handles = [
        net.register_forward_pre_hook(say("pre"), with_kwargs=True),
        net.register_forward_hook(say("post"), with_kwargs=True, always_call=True),
        net.a.register_forward_hook(lambda m, x, y: y * 2),
        net.a.register_forward_pre_hook(say("first"), prepend=True),
        net.b.register_full_backward_hook(lambda m, gin, gout: (gin[0] * 3,)),
        net.a.register_full_backward_pre_hook(lambda m, gout: (gout[0] + 1,)),
        net.register_state_dict_pre_hook(say("state pre")),
        net.register_load_state_dict_pre_hook(say("load pre")),
        net.register_load_state_dict_post_hook(say("load post")),
    ]
    net.register_state_dict_post_hook(say("state post"))
    x = torch.randn(2, 3, requires_grad=True)
    net(x, gain=2.0).sum().backward()
    net.load_state_dict(net.state_dict())
    facts = {
        "x": x.grad,
        "gradients": gradients(net),
        "ids": [h.id - handles[0].id for h in handles],
    }
    for handle in handles:
        handle.remove()
    return {**facts, "after": net(x), "left": [len(net._forward_hooks), len(net.a._forward_hooks)]}


def of_all(log: list[str]) -> dict[str, Any]:
    handles = [
        torch_module.register_module_forward_pre_hook(
            lambda m, x: log.append(f"all pre {type(m).__name__}")
        ),
        torch_module.register_module_forward_hook(
            lambda m, x, y: log.append(f"all post {type(m).__name__}")
        ),
        torch_module.register_module_full_backward_hook(
            lambda m, x, y: log.append(f"all back {type(m).__name__}")
        ),
        torch_module.register_module_parameter_registration_hook(
            lambda m, name, p: log.append(f"parameter {name}")
        ),
        torch_module.register_module_module_registration_hook(
            lambda m, name, p: log.append(f"module {name}")
        ),
        torch_module.register_module_buffer_registration_hook(
            lambda m, name, p: log.append(f"buffer {name}")
        ),
    ]
    net = nn.Sequential(Net(), nn.BatchNorm1d(2))
    net(torch.randn(4, 3)).sum().backward()
    tables = len(torch_module._global_forward_hooks)
    for handle in handles:
        handle.remove()
    return {"tables": [tables, len(torch_module._global_forward_hooks)], "state": state(net)}


def patched(log: list[str]) -> dict[str, Any]:
    """Tools replace methods of the class, of classes, and of objects."""
    net = Net()
    x = torch.randn(2, 3)
    old_call, old_setattr = nn.Module.__call__, nn.Module.__setattr__

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        log.append(f"call {type(self).__name__}")
        return old_call(self, *args, **kwargs)

    def set_attribute(self: nn.Module, name: str, value: Any) -> None:
        if not name.startswith("_"):
            log.append(f"set {name}")
        old_setattr(self, name, value)

    nn.Module.__call__, nn.Module.__setattr__ = call, set_attribute
    try:
        outs = [net(x)]
        Net()
    finally:
        nn.Module.__call__, nn.Module.__setattr__ = old_call, old_setattr
    net.a.forward = lambda x: torch.ones(2, 4)
    outs.append(net(x))
    del net.a.forward
    outs.append(net(x))
    return {"outs": outs}


def main() -> dict[str, Any]:
    seed()
    log: list[str] = []
    return {
        "of modules": part(of_modules, log),
        "of all": part(of_all, log),
        "patched": part(patched, log),
        "log": log,
        "signatures": [
            str(inspect.signature(layer)) for layer in (nn.Linear, nn.Conv2d, nn.LSTM, nn.Module)
        ],
        "generators": [inspect.isgenerator(nn.Linear(1, 1).parameters())],
        "module": [nn.Module.__module__, nn.Module.__qualname__, type(nn.Module).__name__],
    }


if __name__ == "__main__":
    report(main())
