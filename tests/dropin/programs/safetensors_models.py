# SPDX-License-Identifier: BSD-3-Clause
"""safetensors: models with shared weights written and read."""

from __future__ import annotations

from typing import Any

from outcome import error_of, folder, report, seed, state
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight


def main() -> dict[str, Any]:
    seed()
    net, other, third = Tied(), Tied(), Tied()
    with folder() as place:
        save_model(net, str(place / "net.safetensors"), metadata={"made by": "a test"})
        missing, unexpected = load_model(other, place / "net.safetensors")
        entries = load_file(place / "net.safetensors")
        with safe_open(place / "net.safetensors", "pt") as file:
            keys, metadata = sorted(file.keys()), dict(file.metadata())
        shared = error_of(lambda: save_file(net.state_dict(), place / "bad.safetensors"))
        save_file({k: v.clone() for k, v in net.state_dict().items()}, place / "all.safetensors")
        third.load_state_dict(load_file(place / "all.safetensors"), assign=True)
        wrong = error_of(lambda: load_model(nn.Linear(2, 2), place / "net.safetensors"))
    return {
        "keys": keys,
        "metadata": metadata,
        "missing": [sorted(missing), sorted(unexpected)],
        "entries": entries,
        "state": [state(net), state(other), state(third)],
        "tied": [m.out.weight is m.embed.weight for m in (net, other, third)],
        "shared": shared.splitlines()[0],
        "wrong": wrong,
    }


if __name__ == "__main__":
    report(main())
