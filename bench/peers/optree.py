# SPDX-License-Identifier: BSD-3-Clause
"""OpTree has no modules: it walks nested dicts and lists of NumPy arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import optree

from bench import trees
from bench.common import FLOOR
from bench.peers.base import Peer, identity
from bench.trees import Side


def _dicts(value: Any) -> Any:
    """A tree of plain objects as dicts and lists."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list):
        return [_dicts(v) for v in value]
    return {k: _dicts(v) for k, v in vars(value).items()}


@functools.cache
def _side() -> Side:
    return trees.side(FLOOR)


class Library(Peer):
    def side(self) -> Side:
        return _side()

    def identity(self) -> Any:
        raise NotImplementedError("dicts are not called")

    def small(self) -> Any:
        raise NotImplementedError("dicts have no attributes")

    def empty(self) -> Any:
        return {}

    def experts(self, blocks: int, experts: int, leaves: Any = None) -> Any:
        take = leaves or _side().leaves()

        def of(*names: str) -> dict[str, Any]:
            return {name: next(take) for name in names}

        def block() -> dict[str, Any]:
            norm, gate = of("weight", "bias"), of("weight", "bias")
            return {
                "norm": norm,
                "gate": gate,
                "experts": [of("w1", "w2", "w3") for _ in range(experts)],
            }

        return {"blocks": [block() for _ in range(blocks)]}

    def resnet50(self) -> Any:
        return _dicts(trees.resnet50(_side()))

    def chain(self, length: int) -> Any:
        return _dicts(trees.chain(_side(), length))

    def parameters(self, m: Any) -> Any:
        """`optree.tree_leaves(m)`"""
        return optree.tree_leaves(m)

    def named(self, m: Any) -> Any:
        """`optree.tree_flatten_with_path(m)`, paths are tuples"""
        return optree.tree_flatten_with_path(m)

    def state(self, m: Any) -> Any:
        """`dict(zip(map('.'.join, paths), leaves))` of `tree_flatten_with_path(m)`"""
        paths, leaves, _ = optree.tree_flatten_with_path(m)
        names = [".".join(map(str, path)) for path in paths]
        return dict(zip(names, leaves, strict=True))

    def foreign(self, m: Any) -> Any:
        return optree.tree_map(np.ones_like, m)

    def load(self, m: Any, state: Any) -> Any:
        """`optree.tree_map_(np.copyto, m, other)`, copies values"""
        return optree.tree_map_(np.copyto, m, state)

    def apply(self, m: Any) -> Any:
        """`optree.tree_map(identity, m)`, new dicts"""
        return optree.tree_map(identity, m)

    def cast(self, m: Any) -> Any:
        """`optree.tree_map(astype, m)` to float16, then back"""
        half = optree.tree_map(lambda a: a.astype(np.float16), m)
        return optree.tree_map(lambda a: a.astype(np.float32), half)
