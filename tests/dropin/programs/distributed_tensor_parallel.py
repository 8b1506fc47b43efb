# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism: parallelize_module, distribute_module, and what the tree holds then."""

from __future__ import annotations

from typing import Any

import torch
from distributed_common import Net, batches, in_group, mesh, steps
from distributed_names import Replicate, Shard, distribute_module, distribute_tensor
from outcome import part, report, seed, state
from torch import nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def parallel() -> dict[str, Any]:
    seed(8)
    net = Net()
    for block in net.blocks:
        parallelize_module(block, mesh("tp"), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    parallelize_module(
        net.head,
        mesh("tp"),
        ColwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    losses = steps(net, batches(0), optimizer)
    return {
        "losses": losses,
        "state": state(net),
        "classes": [type(p).__name__ for p in net.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules()],
        "answer": net(batches(0)[0][0]),
    }


def sequence() -> dict[str, Any]:
    seed(9)
    net = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    parallelize_module(
        net,
        mesh("tp"),
        {
            "0": SequenceParallel(),
            "1": PrepareModuleInput(
                input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=False
            ),
        },
    )
    plan = {"1": ColwiseParallel(), "3": RowwiseParallel()}
    parallelize_module(net, mesh("tp"), plan)
    x = torch.randn(2, 6, 4)
    out = net(x[:, :3] if torch.distributed.get_rank() == 0 else x[:, 3:])
    out.sum().backward()
    return {"out": out, "state": state(net), "gradients": [p.grad for p in net.parameters()]}


def distributed() -> dict[str, Any]:
    seed(10)

    def partition(name: str, module: nn.Module, device_mesh: Any) -> None:
        for key, p in list(module.named_parameters(recurse=False)):
            shard = distribute_tensor(p, device_mesh, [Shard(0)])
            module.register_parameter(key, nn.Parameter(shard))

    net = distribute_module(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), mesh("tp"), partition)
    entries = net.state_dict()
    other = distribute_module(
        nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), mesh("tp"), partition
    )
    result = other.load_state_dict(entries)
    return {
        "state": state(net),
        "other": state(other),
        "result": str(result),
        "assigned": str(other.load_state_dict(entries, assign=True)),
        "half": state(other.to(torch.bfloat16)),
        "zeroed": state(distribute_module(nn.Linear(2, 2), mesh("tp"))),
    }


def work(rank: int) -> dict[str, Any]:
    return {
        "parallel": part(parallel),
        "sequence": part(sequence),
        "distributed": part(distributed),
    }


if __name__ == "__main__":
    report(in_group(work))
