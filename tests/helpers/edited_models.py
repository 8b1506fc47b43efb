# SPDX-License-Identifier: BSD-3-Clause
"""Models that tests of the editing functions change."""

from __future__ import annotations

import random
from typing import Any

from helpers.small_modules import linear, values


def block(impl: Any) -> Any:
    """Two layers behind each other, an activation between them."""

    class Relu(impl.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.clamp(min=0)

    class Block(impl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = linear(impl, 3, 4)
            self.act = Relu()
            self.down = linear(impl, 4, 3)

        def forward(self, x: Any) -> Any:
            return x + self.down(self.act(self.up(x)))

    return Block()


def stacked(impl: Any, depth: int = 4) -> Any:
    """``layers``, a list of blocks, and a ``head``."""

    class Stacked(impl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = impl.nn.ModuleList([block(impl) for _ in range(depth)])
            self.head = linear(impl, 3, 2)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    return Stacked()


def inputs(impl: Any) -> Any:
    """What they take."""
    return values(impl, 5, 3, seed=7)


def random_tree(impl: Any, rng: random.Random, size: int = 12) -> Any:
    """Modules in containers of each kind and as attributes; some hang at several places."""
    nn = impl.nn
    made = [nn.Module() for _ in range(3)]
    for _ in range(size):
        below = rng.sample(made, min(len(made), rng.randint(0, 3)))
        kind = rng.choice(("module", "list", "sequential", "dict"))
        if kind == "module":
            one = nn.Module()
            for i, child in enumerate(below):
                setattr(one, f"{rng.choice('abc')}{i}", child)
        elif kind == "dict":
            one = nn.ModuleDict({f"k{i}": child for i, child in enumerate(below)})
        else:
            one = nn.ModuleList(below) if kind == "list" else nn.Sequential(*below)
        made.append(one)
    return nn.Sequential(*made[-4:])


def registries(model: Any) -> list[Any]:
    """All that the tree holds, by identity and in order."""
    found = []
    for path, module in model.named_modules():
        for table in ("_modules", "_parameters", "_buffers"):
            items = getattr(module, table).items()
            found.append((path, id(module), table, [(name, id(value)) for name, value in items]))
        found.append(sorted(module._non_persistent_buffers_set))
    return found
