# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: training, hooks, what forward may do to the tree, and how many graphs it takes."""

from __future__ import annotations

from typing import Any

import torch
from outcome import error_of, gradients, part, report, seed, state, train
from torch import nn
from torch._dynamo.utils import counters


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.norms = nn.ModuleDict({"before": nn.LayerNorm(width), "after": nn.LayerNorm(width)})
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("offset", torch.linspace(-1, 1, width))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.norms["before"](x)
        for layer in self.layers:
            x = x + torch.relu(layer(x)) * self.scale
        return self.norms["after"](x) + self.offset


class Walks(nn.Module):
    """forward reads the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.head = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = sum(p.numel() for p in self.parameters())
        names = [name for name, _ in self.named_children()]
        linears = [m for m in self.modules() if isinstance(m, nn.Linear)]
        total = sum(b.sum() for _, b in self.named_buffers())
        return self.head(self.block(x)) * len(linears) / size + len(names) + total


class Builds(nn.Module):
    """forward makes containers and assigns attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.last = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in nn.ModuleList([self.first, self.second]):
            x = layer(x).tanh()
        self.last = x.mean()
        return x * self.last


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LazyLinear(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


def graphs() -> dict[str, Any]:
    """What the compiler counted since the last reset."""
    found = {
        "graphs": counters["stats"]["unique_graphs"],
        "calls": counters["stats"]["calls_captured"],
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
    }
    counters.clear()
    torch._dynamo.reset()
    return found


def compiled_training(backend: str, make: Any, **options: Any) -> dict[str, Any]:
    seed()
    module = make()
    compiled = torch.compile(module, backend=backend, **options)
    x, y = torch.randn(5, 8), torch.randn(5, 1)
    losses = train(module, lambda: (compiled(x) - y).square().mean())
    compiled.eval()
    with torch.no_grad():
        answer = compiled(x)
    return {
        "losses": losses,
        "answer": answer,
        "state": state(module),
        "gradients": gradients(module),
        "compiled keys": list(compiled.state_dict()),
        "counted": graphs(),
    }


def hooks(backend: str) -> dict[str, Any]:
    seed()
    module = Block()
    seen: list[str] = []
    module.layers[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    module.layers[1].register_forward_hook(lambda m, args, out: out + 1)
    module.norms["after"].register_full_backward_hook(
        lambda m, into, out: seen.append(type(m).__name__)
    )
    compiled = torch.compile(module, backend=backend)
    x = torch.randn(5, 8, requires_grad=True)
    compiled(x).sum().backward()
    return {"seen": seen, "x.grad": x.grad, "gradients": gradients(module), "counted": graphs()}


def in_place(backend: str) -> dict[str, Any]:
    """Module.compile, and a method compiled by itself."""
    seed()
    module = Block()
    module.compile(backend=backend)
    out = module(torch.ones(2, 8))
    module.layers[0].forward = torch.compile(module.layers[0].forward, backend=backend)
    return {
        "out": out,
        "again": module(torch.ones(2, 8)),
        "calls": module.calls,
        "counted": graphs(),
    }


def lazy(backend: str) -> dict[str, Any]:
    seed()
    module = Lazy()
    compiled = torch.compile(module, backend=backend)
    out = compiled(torch.ones(2, 5))
    return {"out": out, "class": type(module.inner).__name__, "again": compiled(torch.ones(3, 5))}


def changed(backend: str) -> dict[str, Any]:
    """What changes in the tree after compilation is seen."""
    seed()
    module = Block()
    compiled = torch.compile(module, backend=backend)
    x = torch.ones(2, 8)
    outs = [compiled(x)]
    module.layers[0] = nn.Identity()
    outs.append(compiled(x))
    module.scale = nn.Parameter(torch.full((8,), 3.0))
    outs.append(compiled(x))
    module.train(False)
    outs.append(compiled(x))
    return {"outs": outs, "counted": graphs()}


def main() -> dict[str, Any]:
    torch._dynamo.config.error_on_recompile = False
    facts: dict[str, Any] = {}
    for backend in ("eager", "aot_eager"):
        for make in (Block, Walks, Builds):
            facts[f"{backend} {make.__name__}"] = part(compiled_training, backend, make)
        facts[f"{backend} hooks"] = part(hooks, backend)
        facts[f"{backend} lazy"] = part(lazy, backend)
    torch._dynamo.reset()
    counters.clear()
    facts["whole graph"] = part(compiled_training, "eager", Builds, fullgraph=True)
    facts["dynamic"] = part(compiled_training, "eager", Block, dynamic=True)
    facts["in place"] = part(in_place, "eager")
    facts["changed"] = part(changed, "eager")
    facts["disabled"] = error_of(lambda: torch.compiler.disable(Block())(torch.ones(1, 8)))
    return facts


if __name__ == "__main__":
    report(main())
