# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.checkpoint: sharded models and optimizers saved, loaded, made one file."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed_common import Net, batches, in_group, mesh, steps
from distributed_names import fully_shard
from outcome import part, report, seed, state
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.parallel import DistributedDataParallel as DDP


class App(Stateful):
    """Model and optimizer as one entry of a checkpoint."""

    def __init__(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, entries: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=entries["model"],
            optim_state_dict=entries["optimizer"],
        )


def made(kind: str, start: int) -> App:
    seed(start)
    net = Net()
    model = fully_shard(net, mesh=mesh()) if kind == "fsdp" else DDP(net)
    return App(model, torch.optim.Adam(model.parameters(), lr=0.01))


def shared_folder() -> Path:
    """One that rank 0 makes."""
    names = [tempfile.mkdtemp(prefix="modtree-checkpoint-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names)
    return Path(str(names[0]))


def there_and_back(kind: str, rank: int, place: Path) -> dict[str, Any]:
    app = made(kind, 1)
    losses = steps(app.model, batches(rank), app.optimizer)
    dcp.save({"app": app}, checkpoint_id=str(place / kind))
    other = made(kind, 2)
    dcp.load({"app": other}, checkpoint_id=str(place / kind))
    return {
        "losses": losses,
        "state": state(app.model),
        "loaded": state(other.model),
        "more": [steps(a.model, batches(rank), a.optimizer) for a in (app, other)],
    }


def crossed(place: Path) -> dict[str, Any]:
    """What DDP saved goes into a sharded model."""
    app = made("fsdp", 3)
    dcp.load({"app": app}, checkpoint_id=str(place / "ddp"))
    return state(app.model)


def one_file(saved: Path) -> list[Any]:
    whole = saved.parent / f"{saved.name}.pt"
    dcp_to_torch_save(str(saved), str(whole))
    net = Net()
    entries = torch.load(whole, weights_only=False)["app"]["model"]
    names = sorted(p.name for p in saved.iterdir())
    return [str(net.load_state_dict(entries)), state(net), names, os.path.getsize(whole) > 0]


def work(rank: int) -> dict[str, Any]:
    place = shared_folder()
    facts = {kind: part(there_and_back, kind, rank, place) for kind in ("fsdp", "ddp")}
    facts["crossed"] = part(crossed, place)
    if rank == 0:
        saved = [path for path in (place / "fsdp", place / "ddp") if (path / ".metadata").exists()]
        facts["one file"] = [part(one_file, path) for path in saved]
    dist.barrier()
    if rank == 0:
        shutil.rmtree(place)
    return facts


if __name__ == "__main__":
    report(in_group(work))
