# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile with its own backend, which writes and compiles C++: a training step."""

from __future__ import annotations

from typing import Any

import torch
from outcome import gradients, report, seed, state, train
from torch import nn


def main() -> dict[str, Any]:
    seed()
    module = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.GELU(), nn.Flatten(), nn.Linear(32, 3)
    )
    compiled = torch.compile(module, fullgraph=True)
    x, y = torch.randn(6, 2, 8), torch.randint(3, (6,))
    losses = train(module, lambda: nn.functional.cross_entropy(compiled(x), y), steps=2)
    return {"losses": losses, "state": state(module), "gradients": gradients(module)}


if __name__ == "__main__":
    report(main())
