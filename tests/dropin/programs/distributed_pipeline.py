# SPDX-License-Identifier: BSD-3-Clause
"""Pipelining: a model cut in two by hand, and by a traced split point; two schedules."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from distributed_common import Net, in_group
from outcome import gradients, report, seed, state, tree
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    SplitPoint,
    pipeline,
    schedules,
)

DEVICE = torch.device("cpu")


def loss_of(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(out, y)


class Half(nn.Module):
    """What one rank holds of a Net."""

    def __init__(self, net: Net, rank: int) -> None:
        super().__init__()
        self.stem = net.stem if rank == 0 else None
        self.block = net.blocks[rank]
        self.head = None if rank == 0 else net.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.stem is not None:
            x = self.stem(x)
        x = self.block(x)
        return x if self.head is None else self.head(x)


def ran(schedule: Any, rank: int, module: nn.Module) -> dict[str, Any]:
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    losses: list[torch.Tensor] = []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    out = None
    for _ in range(2):
        optimizer.zero_grad()
        out = schedule.step(x) if rank == 0 else schedule.step(target=y, losses=losses)
        optimizer.step()
    facts = {"losses": [v.item() for v in losses], "gradients": gradients(module)}
    return {**facts, "out": out, "state": state(module), "tree": tree(module)}


def needed(rank: int) -> dict[str, Any]:
    """An example of what the stage takes, which it asks for before torch 2.6."""
    asked = inspect.signature(PipelineStage).parameters["input_args"]
    example = torch.zeros(2, 4 if rank == 0 else 8)
    return {"input_args": example} if asked.default is inspect.Parameter.empty else {}


def work(rank: int) -> dict[str, Any]:
    facts = {}
    seed(11)
    half = Half(Net(), rank)
    stage = PipelineStage(half, rank, 2, DEVICE, **needed(rank))
    facts["by hand"] = ran(ScheduleGPipe(stage, 4, loss_fn=loss_of), rank, half)
    seed(12)
    cut = pipeline(
        Net(), mb_args=(torch.randn(2, 4),), split_spec={"blocks.1": SplitPoint.BEGINNING}
    )
    facts["cut"] = tree(cut.split_gm)
    part = cut.get_stage_module(rank)
    built = cut.build_stage(rank, DEVICE)
    # Where transfers are not waited for one by one, gloo loses some of those that 1F1B starts
    # together.
    kind = Schedule1F1B if hasattr(schedules, "_wait_batch_p2p") else ScheduleGPipe
    facts["traced"] = ran(kind(built, 4, loss_fn=loss_of), rank, part)
    return facts


if __name__ == "__main__":
    report(in_group(work))
