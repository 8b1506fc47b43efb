# SPDX-License-Identifier: BSD-3-Clause
"""Flax's NNX. Parameters are ``nnx.Param`` over one jax array: what is measured is the tree."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bench.peers.base import Peer, identity
from bench.trees import Side


class _Module(nnx.Module):
    def __init__(self) -> None:
        pass

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, nnx.BatchStat(value))


_ZEROS = jnp.zeros(4)


@functools.cache
def _side() -> Side:
    return Side(
        "flax",
        _Module,
        nnx.List,
        lambda *m: nnx.List(m),
        lambda: _ZEROS,
        lambda: nnx.Param(_ZEROS),
        jax,
    )


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def parameters(self, m: Any) -> Any:
        """`jax.tree.leaves(nnx.state(m, nnx.Param))`"""
        return jax.tree.leaves(nnx.state(m, nnx.Param))

    def named(self, m: Any) -> Any:
        """`nnx.to_flat_state(nnx.state(m))`, paths are tuples"""
        return nnx.to_flat_state(nnx.state(m))

    def modules(self, m: Any) -> Any:
        """`list(nnx.iter_modules(m))`"""
        return list(nnx.iter_modules(m))

    def state(self, m: Any) -> Any:
        """`nnx.state(m)`"""
        return nnx.state(m)

    def foreign(self, m: Any) -> Any:
        return nnx.state(m)

    def load(self, m: Any, state: Any) -> Any:
        """`nnx.update(m, state)`, takes arrays"""
        nnx.update(m, state)

    def train(self, m: Any) -> Any:
        """`m.train()`"""
        m.train()

    def apply(self, m: Any) -> Any:
        """`nnx.update(m, jax.tree.map(identity, nnx.state(m)))`"""
        nnx.update(m, jax.tree.map(identity, nnx.state(m)))
