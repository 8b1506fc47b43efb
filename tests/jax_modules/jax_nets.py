# SPDX-License-Identifier: BSD-3-Clause
"""Modules of jax arrays for the tests of modtree.jax."""

from __future__ import annotations

from typing import Any

import pytest

from modtree import nn

jax = pytest.importorskip("jax")
jnp = jax.numpy


class Layer(nn.Module):
    """tanh(x @ w + b)."""

    def __init__(self, size: int = 3, seed: int = 0) -> None:
        super().__init__()
        key = jax.random.key(seed)
        self.w = nn.Parameter(jax.random.normal(key, (size, size)) * 0.5)
        self.b = nn.Parameter(jnp.zeros(size))
        self.size = size

    def forward(self, x: Any) -> Any:
        return jnp.tanh(x @ self.w + self.b)


class Counting(nn.Module):
    """Counts its calls, and keeps a mean of what it sees while it trains."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.register_buffer("count", jnp.zeros((), jnp.int32))
        self.register_buffer("mean", jnp.zeros(size))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.count = self.count + 1
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


class Net(nn.Module):
    """Layers with a count between them."""

    def __init__(self, layers: int = 2, size: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(size, i) for i in range(layers)])
        self.norm = Counting(size)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def loss(model: Any, x: Any) -> Any:
    """A number to be differentiated."""
    return (model(x) ** 2).sum()


def batch(rows: int = 4, size: int = 3) -> Any:
    """Some inputs."""
    return jnp.linspace(-1.0, 1.0, rows * size).reshape(rows, size)


def snapshot(model: Any) -> dict[str, Any]:
    """The very arrays of a module, to compare by identity."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def assert_untouched(model: Any, before: dict[str, Any]) -> None:
    """Asserts that a module holds the very arrays."""
    now = snapshot(model)
    assert now.keys() == before.keys()
    assert all(now[name] is before[name] for name in now)
