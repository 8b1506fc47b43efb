# SPDX-License-Identifier: BSD-3-Clause
"""Modules in other processes: DataLoader workers, forked and spawned, and shared training."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.multiprocessing as mp
from outcome import is_native, part, report, seed, state
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Features(Dataset):
    """A data set that runs a module where its items are made."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, bool]:
        with torch.no_grad():
            return self.module(torch.full((4,), float(index))), is_native()


def loaded(context: str) -> dict[str, Any]:
    seed()
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    loader = DataLoader(
        Features(module),
        batch_size=3,
        shuffle=True,
        num_workers=2,
        multiprocessing_context=context,
        generator=torch.Generator().manual_seed(3),
        persistent_workers=True,
    )
    epochs = [[batch for batch, _ in loader] for _ in range(2)]
    alike = all(bool(flag) is is_native() for _, flags in loader for flag in flags)
    return {"epochs": epochs, "the workers' class is ours": alike}


def step(rank: int, module: nn.Module, results: Any) -> None:
    """In a child: change the shared parameters, and say what class they hang on."""
    torch.set_num_threads(1)
    with torch.no_grad():
        for p in module[rank].parameters():
            p.add_(rank + 1.0)
    results.put((rank, is_native(), type(module).__name__, [n for n, _ in module.named_buffers()]))


def shared() -> dict[str, Any]:
    seed()
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).share_memory()
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(step, args=(module, results), nprocs=2, join=True)
    answers = sorted(results.get() for _ in range(2))
    return {
        "shared": all(p.is_shared() for p in module.parameters()),
        "state": state(module),
        "children": [[rank, *rest] for rank, _, *rest in answers],
        "their class is ours": all(native is is_native() for _, native, *_ in answers),
    }


def main() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    return {"fork": part(loaded, "fork"), "spawn": part(loaded, "spawn"), "shared": part(shared)}


if __name__ == "__main__":
    report(main())
