# SPDX-License-Identifier: BSD-3-Clause
"""Files: state dicts and whole modules saved, loaded, assigned, converted, and made on meta."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from outcome import error_of, folder, part, report, seed, state, train, tree
from torch import nn
from torch.__future__ import set_swap_module_params_on_conversion


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), 2
        )
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 7, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("step", torch.tensor(0), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return self.out(self.norm(self.encoder(self.embed(ids)).mean(1)))


class Extra(nn.Linear):
    """A layer with a state of its own, of an older version."""

    _version = 3

    def get_extra_state(self) -> Any:
        return {"text": "here", "number": 4}

    def set_extra_state(self, state: Any) -> None:
        self.restored = state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *rest: Any):
        self.loaded_version = metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, metadata, *rest)


def saved() -> dict[str, Any]:
    net = Net()
    ids = torch.randint(7, (4, 5))
    optimizer = torch.optim.Adam(net.parameters())
    net(ids).square().mean().backward()
    optimizer.step()
    with folder() as place:
        torch.save({"net": net.state_dict(), "opt": optimizer.state_dict()}, place / "all.pt")
        torch.save(net, place / "net.pt")
        data = torch.load(place / "all.pt", weights_only=True, mmap=True)
        whole = torch.load(place / "net.pt", weights_only=False)
        with torch.device("meta"):
            meta = Net()
        meta.load_state_dict(data["net"], assign=True)
        meta.step = torch.tensor(0)
        other = Net()
        result = other.load_state_dict(data["net"])
    net.eval(), whole.eval(), meta.eval(), other.eval()
    return {
        "out": net(ids),
        "whole": whole(ids),
        "meta": meta(ids),
        "other": other(ids),
        "result": str(result),
        "metadata": {k: dict(v) for k, v in net.state_dict()._metadata.items()},
        "tied": [whole.out.weight is whole.embed.weight, meta.out.weight is meta.embed.weight],
        "steps": [int(m.step) for m in (net, whole, meta, other)],
        "tree": tree(whole),
    }


def wrong() -> dict[str, Any]:
    net = nn.Sequential(nn.Linear(2, 3), Extra(3, 4))
    entries = net.state_dict()
    short = {k: v for k, v in entries.items() if k != "0.bias"}
    shaped = {**entries, "0.weight": torch.ones(5, 5)}
    more = {**entries, "2.weight": torch.ones(1)}
    return {
        "keys": list(entries),
        "short": error_of(lambda: net.load_state_dict(short)),
        "shaped": error_of(lambda: net.load_state_dict(shaped)),
        "more": error_of(lambda: net.load_state_dict(more)),
        "not strict": str(net.load_state_dict({**more, **short}, strict=False)),
        "extra": [str(net[1].restored), str(net[1].loaded_version)],
    }


def converted() -> dict[str, Any]:
    net = Net()
    facts = {"half": state(copy.deepcopy(net).half()), "double": state(net.double())}
    facts["channels"] = [
        list(p.stride())
        for p in nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last).parameters()
    ]
    facts["empty"] = [str(p.dtype) for p in Net().to("meta").to_empty(device="cpu").parameters()]
    set_swap_module_params_on_conversion(True)
    weight = net.embed.weight
    net.float()
    facts["swapped"] = [weight is net.embed.weight, net.out.weight is weight, state(net)]
    set_swap_module_params_on_conversion(False)
    net.requires_grad_(False)
    facts["frozen"] = sorted({p.requires_grad for p in net.parameters()})
    return facts


def main() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    seed()
    lazy = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    before = str(lazy)
    losses = train_lazy(lazy)
    return {
        "saved": part(saved),
        "wrong": part(wrong),
        "converted": part(converted),
        "lazy": [before, str(lazy), losses, state(lazy)],
    }


def train_lazy(module: nn.Module) -> list[float]:
    x = torch.randn(4, 2, 5, 5)
    module(x)
    return train(module, lambda: module(x).square().mean())


if __name__ == "__main__":
    report(main())
