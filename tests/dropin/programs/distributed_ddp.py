# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel: buckets, buffers, no_sync, unused parameters, hooks, SyncBatchNorm."""

from __future__ import annotations

from typing import Any

import torch
from distributed_common import Net, batches, in_group, steps
from outcome import gradients, report, seed, state, tree
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Sometimes(nn.Module):
    """One of the two layers is used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))
        self.norm = nn.BatchNorm1d(3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.norm(self.layers[self.calls % 2](x))


def usual(rank: int) -> dict[str, Any]:
    torch.manual_seed(rank)  # DDP takes the weights of rank 0
    net = Net()
    model = DDP(net, gradient_as_bucket_view=True)
    losses = steps(model, batches(rank), torch.optim.SGD(model.parameters(), lr=0.1))
    model.zero_grad()
    x, y = batches(rank)[0]
    with model.no_sync():
        nn.functional.cross_entropy(model(x), y).backward()
    alone = gradients(net)
    nn.functional.cross_entropy(model(x), y).backward()
    return {
        "losses": losses,
        "state": state(model),
        "alone": alone,
        "together": gradients(net),
        "tree": tree(model),
    }


def work(rank: int) -> dict[str, Any]:
    facts = {"usual": usual(rank)}
    seed(1)
    model = DDP(Sometimes(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    facts["unused"] = {"losses": steps(model, batches(rank), optimizer), "state": state(model)}
    seed(2)
    model = DDP(Net())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    sharded = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    facts["compressed"] = {
        "losses": steps(model, batches(rank), sharded),
        "state": state(model),
    }
    seed(3)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    )
    facts["converted"] = tree(converted)
    seed(4)
    model = DDP(Net(), static_graph=True)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    facts["compiled"] = {
        "losses": steps(compiled, batches(rank), optimizer),
        "state": state(model),
    }
    return facts


if __name__ == "__main__":
    report(in_group(work))
