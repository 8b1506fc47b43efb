# SPDX-License-Identifier: BSD-3-Clause
"""What the comparison asks of a library. An operation that a library does not have stays None."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from bench import trees
from bench.trees import Side


class Peer:
    """A library with trees built on a ``Side`` of it.

    Each operation takes a tree; its first docstring line is the expression that is timed, for the
    table of expressions. Names of operations are those of ``worker.OPERATIONS``.
    """

    parameters: Callable[[Any], Any] | None = None
    named: Callable[[Any], Any] | None = None
    modules: Callable[[Any], Any] | None = None
    state: Callable[[Any], Any] | None = None
    foreign: Callable[[Any], Any] | None = None
    load: Callable[[Any, Any], Any] | None = None
    train: Callable[[Any], Any] | None = None
    apply: Callable[[Any], Any] | None = None
    cast: Callable[[Any], Any] | None = None

    def side(self) -> Side:
        raise NotImplementedError

    def identity(self) -> Any:
        """Something to call as ``m(x)`` that gives back ``x``."""
        return self.side().classes.Identity()

    def small(self) -> Any:
        """A module with three parameters, a child and a plain value."""
        s = self.side()
        m = s.classes.Three(s.parameter(), s.parameter(), s.parameter())
        m.child = s.classes.Empty()
        m.flag = 1
        return m

    def empty(self) -> Any:
        return self.side().classes.Empty()

    def experts(self, blocks: int, experts: int, leaves: Any = None) -> Any:
        return trees.expert_tree(self.side(), leaves, blocks, experts)

    def resnet50(self) -> Any:
        return trees.resnet50(self.side())

    def chain(self, length: int) -> Any:
        return trees.chain(self.side(), length)

    def deepcopy(self, m: Any) -> Any:
        """`copy.deepcopy(m)`"""
        return copy.deepcopy(m)

    def dumps(self, m: Any) -> Any:
        """`pickle.dumps(m)`"""
        return pickle.dumps(m, pickle.HIGHEST_PROTOCOL)


def identity(leaf: Any) -> Any:
    return leaf
