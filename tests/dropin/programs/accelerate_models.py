# SPDX-License-Identifier: BSD-3-Clause
"""accelerate: prepared training, models made empty and loaded piece by piece, offloading hooks."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import (
    Accelerator,
    cpu_offload,
    disk_offload,
    dispatch_model,
    infer_auto_device_map,
    init_empty_weights,
    load_checkpoint_and_dispatch,
)
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_submodules
from accelerate.utils import compute_module_sizes, find_tied_parameters, set_seed
from outcome import folder, report, seed, state, tree
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    _no_split_modules: list[str] = []

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids).mean(1)
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.head(self.norm(x))


def prepared(place: Any) -> dict[str, Any]:
    set_seed(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision="bf16")
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    data = TensorDataset(torch.randint(9, (16, 5)), torch.randint(9, (16,)))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, loader, schedule = accelerator.prepare(
        net, optimizer, DataLoader(data, batch_size=4, shuffle=True), schedule
    )
    losses = []
    for ids, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(ids), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    accelerator.save_state(place / "state")
    accelerator.save_model(model, place / "model", max_shard_size=300)
    trained = state(accelerator.unwrap_model(model))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    accelerator.load_state(place / "state")
    unwrapped = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    return {
        "losses": losses,
        "trained": trained,
        "loaded": state(model),
        "files": sorted(p.name for p in (place / "model").iterdir()),
        "forward is the class's": "forward" in vars(unwrapped),
        "dict": list(accelerator.get_state_dict(model)),
    }


def empty(place: Any) -> dict[str, Any]:
    """On meta first, then with the weights that ``prepared`` saved."""
    with init_empty_weights():
        net = Net()
    devices = sorted({str(p.device) for p in net.parameters()})
    with init_empty_weights(include_buffers=True):
        whole = Net()
    net.head.weight = net.embed.weight
    sizes = dict(compute_module_sizes(net))
    plan = infer_auto_device_map(net, max_memory={"cpu": 10**6}, no_split_module_classes=[])
    net = load_checkpoint_and_dispatch(net, place / "model", device_map={"": "cpu"}).eval()
    return {
        "devices": devices,
        "buffers": sorted({str(b.device) for b in whole.buffers()}),
        "sizes": sizes,
        "plan": {k: str(v) for k, v in plan.items()},
        "tied": find_tied_parameters(net),
        "out": net(torch.ones(2, 3, dtype=torch.long)),
        "state": state(net),
    }


class Note(ModelHook):
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(f"before {type(module).__name__}")
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        self.seen.append(f"after {type(module).__name__}")
        return output


def offloaded(place: Any) -> dict[str, Any]:
    seed()
    ids = torch.randint(9, (2, 4))
    seen: list[str] = []
    net = Net().eval()
    for layer in net.layers:
        add_hook_to_module(layer, Note(seen))
    facts: dict[str, Any] = {"out": net(ids)}
    remove_hook_from_submodules(net)
    cpu_offload(net, execution_device=torch.device("cpu"), offload_buffers=True)
    facts["devices"] = sorted({str(p.device) for p in net.parameters()})
    facts["offloaded"] = net(ids)
    remove_hook_from_submodules(net)
    seed()
    other = Net().eval()
    disk_offload(other, str(place / "disk"), execution_device=torch.device("cpu"))
    facts["disk"] = other(ids)
    seed()
    mixed = dispatch_model(
        Net().eval(),
        {"embed": "cpu", "layers.0": "cpu", "layers.1": "disk", "layers.2": "disk", "norm": "cpu",
         "head": "cpu"},
        main_device="cpu",
        offload_dir=str(place / "mixed"),
    )  # fmt: skip
    facts["mixed"] = mixed(ids)
    facts["mixed devices"] = {n: str(p.device) for n, p in mixed.named_parameters()}
    return {**facts, "seen": seen, "tree": tree(mixed)}


def main() -> dict[str, Any]:
    with folder() as place:
        return {
            "prepared": prepared(place),
            "empty": empty(place),
            "offloaded": offloaded(place),
        }


if __name__ == "__main__":
    report(main())
