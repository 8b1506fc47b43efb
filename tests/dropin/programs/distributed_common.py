# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of several processes share: the group, a model, and data."""

from __future__ import annotations

import datetime
import gc
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from outcome import plain, seed
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def in_group(work: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """What ``work(rank)`` finds in the processes that torchrun started, on gloo.

    Sharded tensors become whole while there is a group; models are gone before it is.
    """
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=3))
    seed(7)
    try:
        found = plain(work(dist.get_rank()))
        gc.collect()  # what holds the group in a cycle
        dist.barrier()
        return found
    finally:
        dist.destroy_process_group()


def mesh(name: str = "dp") -> DeviceMesh:
    return init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=(name,))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


class Net(nn.Module):
    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 3, bias=False)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches(rank: int, count: int = 3, size: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Other numbers on every rank."""
    draw = torch.Generator().manual_seed(100 + rank)
    return [
        (torch.randn(size, 4, generator=draw), torch.randint(3, (size,), generator=draw))
        for _ in range(count)
    ]


def steps(model: nn.Module, data: list, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
