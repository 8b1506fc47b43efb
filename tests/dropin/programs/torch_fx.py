# SPDX-License-Identifier: BSD-3-Clause
"""torch.fx: tracing, rewriting, interpreting, and what becomes of a GraphModule afterwards."""

# No annotations as texts here: a GraphModule that is pickled writes them as imports.

import copy
import io
import pickle
from typing import Any

import torch
from outcome import gradients, report, seed, state, tree
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8))
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.arange(8.0))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(block(x)) * self.weight + self.shift
        return x.sum(-1) * scale


class Leaves(fx.Tracer):
    """Sequential containers stay whole."""

    def is_leaf_module(self, m: nn.Module, qualified_name: str) -> bool:
        return isinstance(m, nn.Sequential) or super().is_leaf_module(m, qualified_name)


class Counter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seen: list[str] = []

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        self.seen.append(str(target))
        return super().call_module(target, args, kwargs)


def rewritten(module: fx.GraphModule) -> fx.GraphModule:
    """relu becomes tanh; one linear layer is replaced, one module is added."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is torch.relu:
            node.target = torch.tanh
    module.add_submodule("extra.gain", nn.Linear(8, 8, bias=False))
    if hasattr(module, "set_submodule"):  # since torch 2.5
        module.set_submodule("blocks.1", nn.Linear(8, 8))
    module.delete_all_unused_submodules()
    module.graph.lint()
    module.recompile()
    return module


def main() -> dict[str, Any]:
    seed()
    net = Net()
    x = torch.randn(6, 4)
    traced = fx.symbolic_trace(net)
    ShapeProp(traced).propagate(x)
    shapes = {
        n.name: list(n.meta["tensor_meta"].shape)
        for n in traced.graph.nodes
        if hasattr(n.meta.get("tensor_meta"), "shape")
    }
    counter = Counter(traced)
    interpreted = counter.run(x)
    traced(x).sum().backward()
    leaves = fx.GraphModule(net, Leaves().trace(net))
    changed = rewritten(copy.deepcopy(traced))
    parts = split_module(traced, net, lambda node: int("stem" not in str(node.target)))
    file = io.BytesIO()
    torch.save(traced, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    return {
        "code": traced.code,
        "tree": tree(traced),
        "shapes": shapes,
        "interpreted": interpreted,
        "calls": counter.seen,
        "gradients": gradients(net),
        "leaves": leaves.code,
        "changed": changed.code,
        "changed tree": tree(changed),
        "changed out": changed(x),
        "changed state": state(changed),
        "parts": tree(parts),
        "parts out": parts(x),
        "pickled": pickle.loads(pickle.dumps(traced))(x),
        "loaded": loaded(x),
        "loaded class": type(loaded).__name__,
        "printed": str(traced),
    }


if __name__ == "__main__":
    report(main())
