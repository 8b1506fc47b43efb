# SPDX-License-Identifier: BSD-3-Clause
"""torch.jit: scripted and traced modules, their code, files, hooks, interfaces."""

# No annotations as texts here: scripting reads them as types.

import io
import warnings
from typing import Any

import torch
from outcome import error_of, gradients, part, report, seed, state, tree
from torch import Tensor, nn


@torch.jit.interface
class OneInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Scale(nn.Module):
    factor: float

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Net(nn.Module):
    __constants__ = ["times"]

    def __init__(self) -> None:
        super().__init__()
        self.times = 2
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)])
        self.named = nn.ModuleDict({"one": Scale(0.5), "two": Scale(4.0)})
        self.steps = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.register_buffer("shift", torch.ones(4))
        self.weight = nn.Parameter(torch.full((4,), 0.5))

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x - self.shift

    @torch.jit.ignore
    def python_only(self) -> str:
        return "not compiled"

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            for layer in self.layers:
                x = layer(x)
        for name, scale in self.named.items():
            x = scale(x) if name == "one" else -scale(x)
        if self.training:
            x = x + self.shift
        return self.steps(x) * self.weight


class Proxied(nn.Module):
    """Any module with that forward may stand behind the interface."""

    inner: OneInput

    def __init__(self) -> None:
        super().__init__()
        self.inner = Scale(3.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


def before(module: Scale, args: tuple[Tensor]) -> tuple[Tensor]:
    return (args[0] + 1.0,)


def after(module: Scale, args: tuple[Tensor], out: Tensor) -> Tensor:
    return out * 2.0


def hooked() -> dict[str, Any]:
    module = Scale(2.0)
    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    scripted = torch.jit.script(module)
    return {"plain": module(torch.ones(2)), "scripted": scripted(torch.ones(2))}


def proxied(x: Tensor) -> list[Tensor]:
    scripted = torch.jit.script(Proxied())
    outs = [scripted(x)]
    scripted.inner = torch.jit.script(Scale(5.0))
    return [*outs, scripted(x)]


def through_file(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def main() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    seed()
    net = Net()
    x = torch.randn(3, 4)
    scripted = torch.jit.script(net)
    scripted(x).sum().backward()
    scripted_gradients = gradients(net)
    net.zero_grad()
    evaluated = torch.jit.script(Net().eval())
    traced = torch.jit.trace(Net().eval(), x)
    loaded = through_file(scripted)
    frozen = torch.jit.freeze(evaluated)
    scripted.shift = torch.zeros(4)
    return {
        "eager": net(x),
        "scripted": scripted(x),
        "code": scripted.code,
        "tree": tree(scripted),
        "children": [name for name, _ in scripted.named_children()],
        "state": state(scripted),
        "gradients": scripted_gradients,
        "export": scripted.other(x),
        "ignored": scripted.python_only(),
        "traced code": traced.code,
        "traced": traced(x),
        "traced tree": tree(traced),
        "loaded": loaded(x),
        "loaded state": state(loaded),
        "loaded training": [m.training for m in loaded.eval().modules()],
        "frozen": frozen(x),
        "frozen code": str(frozen.graph).count("prim::Constant"),
        "hooks": part(hooked),
        "interface": part(proxied, x),
        "missing": error_of(lambda: scripted.nothing),
        "copy": state(scripted.__copy__()),
        "original name": scripted.original_name,
    }


if __name__ == "__main__":
    report(main())
