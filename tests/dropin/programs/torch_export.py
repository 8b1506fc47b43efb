# SPDX-License-Identifier: BSD-3-Clause
"""torch.export: graphs, signatures, saved programs, the tree made again from one."""

from __future__ import annotations

from typing import Any

import torch
from outcome import folder, part, report, seed, state, tree
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 3), "b": nn.Linear(8, 2, bias=False)})
        self.register_buffer("count", torch.zeros(()))
        self.tied = self.heads["a"]

    def forward(self, ids: torch.Tensor, *, flag: bool = True) -> dict[str, torch.Tensor]:
        x = self.encoder(self.embed(ids)).mean(1)
        self.count += 1
        return {name: head(x) for name, head in self.heads.items()} | {"tied": self.tied(x)}


def exported(strict: bool) -> dict[str, Any]:
    seed()
    module = Net().eval()
    ids = torch.randint(11, (2, 5))
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        module,
        (ids,),
        {"flag": True},
        dynamic_shapes={"ids": {0: batch}, "flag": None},
        strict=strict,
    )
    with folder() as place:
        torch.export.save(program, place / "net.pt2")
        again = torch.export.load(place / "net.pt2")
    unflat = torch.export.unflatten(program)
    more = torch.randint(11, (4, 5))
    return {
        "code": program.graph_module.code,
        "signature": str(program.graph_signature),
        "keys": list(program.state_dict),
        "constants": sorted(program.constants),
        "out": program.module()(ids, flag=True),
        "loaded": again.module()(more, flag=True),
        "unflattened": unflat(more, flag=True),
        "tree": tree(unflat),
        "state": state(program.module()),
        "decomposed": program.run_decompositions().graph_module.code,
    }


def main() -> dict[str, Any]:
    return {"not strict": part(exported, False), "strict": part(exported, True)}


if __name__ == "__main__":
    report(main())
