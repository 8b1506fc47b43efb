# SPDX-License-Identifier: BSD-3-Clause
"""What torch and modtree say in the same words."""

from __future__ import annotations

from typing import Any

from bench.peers.base import Peer, identity


class TorchLike(Peer):
    def parameters(self, m: Any) -> Any:
        """`list(m.parameters())`"""
        return list(m.parameters())

    def named(self, m: Any) -> Any:
        """`list(m.named_parameters())`"""
        return list(m.named_parameters())

    def modules(self, m: Any) -> Any:
        """`list(m.modules())`"""
        return list(m.modules())

    def state(self, m: Any) -> Any:
        """`m.state_dict()`"""
        return m.state_dict()

    def foreign(self, m: Any) -> Any:
        zeros = self.side().zeros
        return {name: zeros() for name in m.state_dict()}

    def load(self, m: Any, state: Any) -> Any:
        """`m.load_state_dict(sd)`, copies values"""
        return m.load_state_dict(state)

    def train(self, m: Any) -> Any:
        """`m.train()`"""
        return m.train()

    def apply(self, m: Any) -> Any:
        """`m._apply(identity)`"""
        return m._apply(identity)

    def cast(self, m: Any) -> Any:
        """`m.to(float16)`, then back"""
        lib = self.side().lib
        return m.to(lib.float16).to(lib.float32)
