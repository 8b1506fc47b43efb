# SPDX-License-Identifier: BSD-3-Clause
"""tinygrad has no class for modules: trees are plain Python objects with tensors."""

from __future__ import annotations

import functools
from typing import Any

import tinygrad
from tinygrad import Tensor
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

from bench.peers.base import Peer
from bench.trees import Side


class _Module:
    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)


def _zeros() -> Tensor:
    return Tensor([0.0, 0.0, 0.0, 0.0])


@functools.cache
def _side() -> Side:
    return Side("tinygrad", _Module, list, lambda *m: list(m), _zeros, _zeros, tinygrad)


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def parameters(self, m: Any) -> Any:
        """`get_parameters(m)`"""
        return get_parameters(m)

    def named(self, m: Any) -> Any:
        """`list(get_state_dict(m).items())`"""
        return list(get_state_dict(m).items())

    def state(self, m: Any) -> Any:
        """`get_state_dict(m)`"""
        return get_state_dict(m)

    def foreign(self, m: Any) -> Any:
        return {name: _zeros() for name in get_state_dict(m)}

    def load(self, m: Any, state: Any) -> Any:
        """`load_state_dict(m, sd, realize=False)`, takes tensors"""
        return load_state_dict(m, state, verbose=False, realize=False)
