# SPDX-License-Identifier: BSD-3-Clause
"""torch.package: a model put into an archive with its code, and run from there."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch
from outcome import folder, report, seed, state, tree
from torch.package import PackageExporter, PackageImporter

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x + self.shift
"""


def main() -> dict[str, Any]:
    seed()
    with folder() as place:
        (place / "packed_net.py").write_text(CODE)
        sys.path.insert(0, str(place))
        net = importlib.import_module("packed_net").Net()
        with PackageExporter(place / "net.pt") as exporter:
            exporter.intern("packed_net")
            exporter.extern(["torch.**", "torch"])
            exporter.save_pickle("model", "net.pkl", net)
        importer = PackageImporter(place / "net.pt")
        loaded = importer.load_pickle("model", "net.pkl")
        x = torch.randn(2, 3)
        return {
            "out": [net(x), loaded(x)],
            "another class": type(loaded) is not type(net),
            "is a module": isinstance(loaded, torch.nn.Module),
            "state": state(loaded),
            "tree": tree(loaded),
            "files": str(importer.file_structure(include="**/*.py")).count("packed_net"),
        }


if __name__ == "__main__":
    report(main())
