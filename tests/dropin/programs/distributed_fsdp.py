# SPDX-License-Identifier: BSD-3-Clause
"""FSDP2: fully_shard, mixed precision, gradient accumulation, state dicts in every form."""

from __future__ import annotations

from typing import Any

import torch
from distributed_common import Net, batches, in_group, mesh, steps
from distributed_names import FSDPModule, MixedPrecisionPolicy, fully_shard
from outcome import part, report, seed, state, tree
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)


def sharded(net: Net, **options: Any) -> Any:
    for block in net.blocks:
        fully_shard(block, **options)
    return fully_shard(net, **options)


def untrained() -> dict[str, Any]:
    """What fully_shard makes of the classes and the tree; nothing runs."""
    seed(4)
    model = sharded(Net(), mesh=mesh())
    entries = get_model_state_dict(model)
    return {
        "tree": tree(model),
        "bases": [[b.__name__ for b in type(m).__mro__] for m in model.modules()],
        "parameters": [[n, type(p).__name__] for n, p in model.named_parameters()],
        "state": state(model),
        "loaded": str(model.load_state_dict(entries, assign=True)),
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
    }


def usual(rank: int) -> dict[str, Any]:
    seed(5)
    net = Net()
    kept = type(net)
    model = sharded(net, mesh=mesh())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = steps(model, batches(rank), optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    x, y = batches(rank)[0]
    model.set_requires_gradient_sync(False)
    nn.functional.cross_entropy(model(x), y).backward()
    model.set_requires_gradient_sync(True)
    nn.functional.cross_entropy(model(x), y).backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    entries, inner = get_state_dict(model, optimizer)
    other = sharded(Net(), mesh=mesh())
    result = set_model_state_dict(other, whole, options=StateDictOptions(full_state_dict=True))
    second = torch.optim.AdamW(other.parameters(), lr=0.01)
    set_state_dict(other, second, model_state_dict=entries, optim_state_dict=inner)
    facts = {
        "losses": losses,
        "norm": norm,
        "gradients": grads,
        "state": state(model),
        "whole": whole,
        "result": str(result),
        "other": state(other),
        "steps of the other": steps(other, batches(rank), second),
        "classes": [type(m).__name__ for m in model.modules()],
        "bases": [[b.__name__ for b in type(model).__mro__], isinstance(model, kept)],
        "is": [isinstance(m, FSDPModule) for m in model.modules()],
        "placements": sorted({str(p.placements) for p in model.parameters()}),
        "local": [list(p.to_local().shape) for p in model.parameters()],
    }
    model.unshard()
    facts["unsharded"] = [type(p).__name__ for p in model.parameters()]
    model.reshard()
    return facts


def on_meta(rank: int) -> dict[str, Any]:
    """Made without memory, sharded, and then given weights."""
    with torch.device("meta"):
        net = Net()
    model = sharded(net, mesh=mesh(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    model.to_empty(device="cpu")
    seed(6)
    for m in model.modules():
        if hasattr(m, "reset_parameters"):
            m.reset_parameters()
    model.steps.zero_()
    losses = steps(model, batches(rank), torch.optim.SGD(model.parameters(), lr=0.1))
    return {"losses": losses, "state": state(model), "tree": tree(model)}


def work(rank: int) -> dict[str, Any]:
    return {
        "untrained": part(untrained),
        "usual": part(usual, rank),
        "on meta": part(on_meta, rank),
    }


if __name__ == "__main__":
    report(in_group(work))
