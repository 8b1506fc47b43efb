#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small language model on several processes with torch, on CPU.

    pip install torch
    torchrun --nproc-per-node 2 examples/train_distributed.py
    torchrun --nproc-per-node 2 examples/train_distributed.py --method fsdp --checkpoint run1

It is a torch program and knows nothing of modtree. The same on modtree's Module:

    torchrun --nproc-per-node 2 --no-python modtree run examples/train_distributed.py

Both print the same losses, digit for digit. torchrun starts one process per `--nproc-per-node`;
each of them runs this file from the first line to the last, and they talk to each other at a few
places. With `--method ddp` every process holds the whole model and they share gradients. With
`--method fsdp` each holds a part of every weight, and gets the rest for as long as a layer needs
it: so a model is trained that does not fit into one process. Run it again with the same
`--checkpoint` and more `--epochs`, and it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

LETTERS = 8


# -- data ------------------------------------------------------------------------------------------


class Walks(Dataset):
    """Sequences in which each letter follows from the two before it, most of the time."""

    def __init__(self, count: int, length: int) -> None:
        draw = torch.Generator().manual_seed(0)
        self.texts = torch.randint(LETTERS, (count, length + 1), generator=draw)
        surprise = torch.rand(count, length + 1, generator=draw) < 0.1
        for i in range(2, length + 1):
            rule = (self.texts[:, i - 1] + self.texts[:, i - 2]) % LETTERS
            self.texts[:, i] = torch.where(surprise[:, i], self.texts[:, i], rule)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.texts[index]


# -- the model -------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention to the letters before, then a layer for each position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.attention_norm(x))
        # (batch, length, 3 * width) -> three of (batch, heads, length, width / heads)
        q, k, v = parts.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.feed_norm(x))


class LanguageModel(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, LETTERS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.letters(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def distribute(model: nn.Module, method: str) -> nn.Module:
    """The model as the processes share it."""
    if method == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    # Each block by itself: only the one that computes has its whole weights in memory.
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


# -- training --------------------------------------------------------------------------------------


class Progress:
    """Model, optimizer and the number of epochs done: what a checkpoint holds.

    Every process writes its part into one folder. Another number of processes, or the other method,
    can read it: torch cuts the tensors anew.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.epochs = 0

    def entries(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "epochs": self.epochs}

    def save(self, folder: Path) -> None:
        dcp.save(self.entries(), checkpoint_id=str(folder / f"epoch-{self.epochs:04}"))

    def load_latest(self, folder: Path) -> None:
        """What the folder has of the most epochs; nothing when it has none that is whole."""
        whole = sorted(folder.glob("epoch-*/.metadata"))  # this file is written last
        if not whole:
            return
        entries = self.entries()
        dcp.load(entries, checkpoint_id=str(whole[-1].parent))
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=entries["model"],
            optim_state_dict=entries["optimizer"],
        )
        self.epochs = entries["epochs"]


def train_epoch(progress: Progress, loader: DataLoader) -> float:
    """One look at all of the data; the mean loss of all processes."""
    progress.model.train()
    total = torch.zeros(2)
    for texts in loader:
        logits = progress.model(texts[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())
        progress.optimizer.zero_grad()
        loss.backward()  # here the processes add up their gradients
        progress.optimizer.step()
        total += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train(options: argparse.Namespace) -> None:
    first = dist.get_rank() == 0
    torch.manual_seed(options.seed)
    model = LanguageModel(options.width, options.depth, options.heads, options.length)
    model = distribute(model, options.method)
    progress = Progress(model, torch.optim.AdamW(model.parameters(), lr=options.lr))
    if options.checkpoint:
        progress.load_latest(options.checkpoint)
        if first and progress.epochs:
            print(f"goes on after epoch {progress.epochs}", flush=True)

    data = Walks(options.texts, options.length)
    sampler = DistributedSampler(data, seed=options.seed)  # every process gets its own part
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler)
    while progress.epochs < options.epochs:
        sampler.set_epoch(progress.epochs)  # another order in each epoch
        loss = train_epoch(progress, loader)
        progress.epochs += 1
        if first:
            print(f"epoch {progress.epochs}: loss {loss:.6f}", flush=True)
        if options.checkpoint:
            progress.save(options.checkpoint)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--epochs", type=int, default=4, help="in all, with those of a checkpoint")
    parser.add_argument("--checkpoint", type=Path, help="a folder: goes on from it, and writes it")
    parser.add_argument("--texts", type=int, default=512, help="how many sequences there are")
    parser.add_argument("--length", type=int, default=24, help="letters in a sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences per process and step")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--depth", type=int, default=2, help="blocks")
    parser.add_argument("--heads", type=int, default=4, help="of each attention; they divide width")
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.width % options.heads:
        parser.error(f"--width {options.width} is no multiple of --heads {options.heads}")
    return options


def main() -> int:
    options = parse()
    if "RANK" not in os.environ:
        print(
            "This program runs in several processes. Start it with\n\n"
            f"    torchrun --nproc-per-node 2 {sys.argv[0]}\n",
            file=sys.stderr,
        )
        return 2
    # torchrun says in the environment who is who; gloo is the way to talk between CPUs.
    dist.init_process_group("gloo")
    try:
        train(options)  # in a function of its own: the model is gone before its group is
        # gloo's threads may still hold tensors of the last exchange. Python must not end before
        # they let go of them: torch aborts the process then.
        gc.collect()
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
