# SPDX-License-Identifier: BSD-3-Clause
"""PaddlePaddle's ``nn.Layer``."""

from __future__ import annotations

import functools
from typing import Any

import paddle

from bench.peers.base import Peer
from bench.trees import Side


def _zeros() -> Any:
    return paddle.zeros([4])


def _parameter() -> Any:
    return paddle.create_parameter([4], "float32")


@functools.cache
def _side() -> Side:
    nn = paddle.nn
    return Side("paddle", nn.Layer, nn.LayerList, nn.Sequential, _zeros, _parameter, paddle)


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def parameters(self, m: Any) -> Any:
        """`m.parameters()`"""
        return m.parameters()

    def named(self, m: Any) -> Any:
        """`list(m.named_parameters())`"""
        return list(m.named_parameters())

    def modules(self, m: Any) -> Any:
        """`m.sublayers(include_self=True)`"""
        return m.sublayers(include_self=True)

    def state(self, m: Any) -> Any:
        """`m.state_dict()`"""
        return m.state_dict()

    def foreign(self, m: Any) -> Any:
        return {name: _zeros() for name in m.state_dict()}

    def load(self, m: Any, state: Any) -> Any:
        """`m.set_state_dict(sd)`, copies values"""
        return m.set_state_dict(state)

    def train(self, m: Any) -> Any:
        """`m.train()`"""
        return m.train()

    def cast(self, m: Any) -> Any:
        """`m.to(dtype='float16')`, then back"""
        m.to(dtype="float16")
        return m.to(dtype="float32")
