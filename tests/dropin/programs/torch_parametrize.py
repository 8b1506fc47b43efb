# SPDX-License-Identifier: BSD-3-Clause
"""torch.nn.utils.parametrize, pruning, the older norms: classes and tensors swapped in place."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from outcome import error_of, gradients, part, report, seed, state, train, tree
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune


class Symmetric(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu()


class Double(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def parametrized() -> dict[str, Any]:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Conv1d(1, 2, 3))
    double = Double()
    parametrize.register_parametrization(module[0], "weight", Symmetric())
    parametrize.register_parametrization(module[0], "weight", double)
    parametrize.register_parametrization(module[0], "bias", Double())
    parametrizations.orthogonal(module[1], "weight")
    parametrizations.weight_norm(module[2], "weight")
    x = torch.randn(3, 4)
    losses = train(module[:2], lambda: module[:2](x).square().mean())
    before = double.calls
    with parametrize.cached():
        cached = [module[0].weight is module[0].weight, double.calls - before]
    other = copy.deepcopy(module)
    module[0].weight = torch.ones(4, 4)
    facts = {
        "losses": losses,
        "cached": cached,
        "assigned": module[0].weight,
        "state": state(module),
        "tree": tree(module),
        "classes": [type(m).__name__ for m in module],
        "bases": [[b.__name__ for b in type(m).__mro__] for m in module],
        "copied": other[0].weight,
        "is parametrized": [parametrize.is_parametrized(m) for m in module],
        "pickled": error_of(lambda: pickle.dumps(module)),
        "loads": str(other.load_state_dict(module.state_dict())),
        "gradients": gradients(module),
    }
    parametrize.remove_parametrizations(module[0], "weight")
    parametrize.remove_parametrizations(module[0], "bias", leave_parametrized=False)
    parametrize.remove_parametrizations(module[1], "weight")
    return {**facts, "removed": state(module), "left": [type(m).__name__ for m in module]}


def spectral() -> dict[str, Any]:
    module = parametrizations.spectral_norm(nn.Linear(4, 6), n_power_iterations=2)
    old = nn.utils.spectral_norm(nn.Linear(4, 6))
    x = torch.randn(3, 4)
    losses = train(module, lambda: module(x).square().mean())
    more = train(old, lambda: old(x).square().mean())
    pickled = pickle.loads(pickle.dumps(old))
    return {
        "losses": losses,
        "state": state(module),
        "old": more,
        "old state": state(old),
        "pickled": state(pickled),
        "hooks": [len(pickled._forward_pre_hooks), len(pickled._state_dict_hooks)],
        "removed": state(nn.utils.remove_spectral_norm(old)),
    }


def pruned() -> dict[str, Any]:
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    prune.l1_unstructured(module[0], "weight", amount=0.3)
    prune.random_unstructured(module[0], "weight", amount=4)
    prune.ln_structured(module[2], "weight", amount=1, n=2, dim=0)
    prune.random_unstructured(module[2], "bias", amount=1)
    x = torch.randn(4, 6)
    losses = train(module, lambda: module(x).square().mean())
    hooks = [type(h).__name__ for h in module[0]._forward_pre_hooks.values()]
    entries = state(module)
    prune.remove(module[0], "weight")
    prune.global_unstructured(
        [(module[0], "weight"), (module[2], "weight")],
        pruning_method=prune.L1Unstructured,
        amount=0.5,
    )
    with torch.no_grad():
        module(x)  # its hooks leave weights that may be copied
    copied = copy.deepcopy(module)
    return {
        "losses": losses,
        "hooks": hooks,
        "state": entries,
        "global": state(module),
        "copied": copied(x),
        "pruned": prune.is_pruned(module),
        "buffers": [name for name, _ in module.named_buffers()],
    }


def main() -> dict[str, Any]:
    seed()
    return {"parametrize": part(parametrized), "spectral": part(spectral), "prune": part(pruned)}


if __name__ == "__main__":
    report(main())
