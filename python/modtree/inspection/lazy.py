# SPDX-License-Identifier: BSD-3-Clause
"""Models with lazy modules: their first forward changes them, so a copy runs it."""

from __future__ import annotations

import copy
from typing import Any

from modtree.core.families import family_of
from modtree.inspection.inputs import every_node
from modtree.inspection.tree import Node, module_dict, read_tree

__all__ = ["to_run"]


def to_run(tree: Node) -> Node:
    """The tree itself, or that of a copy of its model where tensors do not have a shape yet."""
    memo: dict[int, Any] = {}
    for node in every_node(tree):
        for leaf in node.leaves:
            if leaf.shape is None:
                registry = "_buffers" if leaf.kind == "buffer" else "_parameters"
                _copy_uninitialized(module_dict(node.module, registry).get(leaf.name), memo)
    return read_tree(copy.deepcopy(tree.module, memo)) if memo else tree


def _copy_uninitialized(tensor: Any, memo: dict[int, Any]) -> None:
    """torch refuses to copy these; they are nothing but a few flags."""
    family = family_of(tensor)
    if family is not None and family.is_uninitialized(tensor):
        data = tensor.data
        copied = type(tensor)(
            requires_grad=tensor.requires_grad, device=data.device, dtype=data.dtype
        )
        if hasattr(tensor, "persistent"):
            copied.persistent = tensor.persistent
        memo[id(tensor)] = copied
