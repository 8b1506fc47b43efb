# SPDX-License-Identifier: BSD-3-Clause
"""MLX: a module is a dict of arrays, modules and lists."""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map

from bench.peers.base import Peer, identity
from bench.trees import Side


class _Module(nn.Module):
    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)


def _zeros() -> Any:
    return mx.zeros(4)


@functools.cache
def _side() -> Side:
    return Side("mlx", _Module, list, lambda *m: list(m), _zeros, _zeros, mx)


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def parameters(self, m: Any) -> Any:
        """`m.parameters()`, nested dicts"""
        return m.parameters()

    def named(self, m: Any) -> Any:
        """`tree_flatten(m.parameters())`"""
        return tree_flatten(m.parameters())

    def modules(self, m: Any) -> Any:
        """`m.modules()`"""
        return m.modules()

    def state(self, m: Any) -> Any:
        """`dict(tree_flatten(m.parameters()))`"""
        return dict(tree_flatten(m.parameters()))

    def foreign(self, m: Any) -> Any:
        return [(name, _zeros()) for name, _ in tree_flatten(m.parameters())]

    def load(self, m: Any, state: Any) -> Any:
        """`m.load_weights(pairs)`, takes arrays"""
        return m.load_weights(state)

    def train(self, m: Any) -> Any:
        """`m.train()`"""
        return m.train()

    def apply(self, m: Any) -> Any:
        """`m.update(tree_map(identity, m.parameters()))`"""
        return m.update(tree_map(identity, m.parameters()))

    def cast(self, m: Any) -> Any:
        """`m.set_dtype(mx.float16)`, then back"""
        m.set_dtype(mx.float16)
        m.set_dtype(mx.float32)
