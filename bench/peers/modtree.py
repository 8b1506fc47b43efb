# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from bench import trees
from bench.common import OURS
from bench.peers.torch_like import TorchLike
from bench.trees import Side


class Library(TorchLike):
    def side(self) -> Side:
        return trees.side(OURS)
