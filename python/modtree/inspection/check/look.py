# SPDX-License-Identifier: BSD-3-Clause
"""A model as the checks see it: its nodes, their plain attributes, the tensors in registries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from modtree._C import ModuleBase
from modtree.core import foreign
from modtree.core.families import family_of
from modtree.core.foreign import is_native, state_of
from modtree.editing.walking import is_scripted
from modtree.inspection.inputs import every_node
from modtree.inspection.tree import Leaf, Node, module_dict

__all__ = [
    "Held",
    "Look",
    "is_module",
    "joined",
    "plain_attributes",
    "topmost",
]

# What a module keeps for itself, in modtree and in torch.
_INTERNAL = frozenset(state_of(ModuleBase()))


@dataclass(slots=True)
class Held:
    """A tensor in a registry."""

    node: Node
    leaf: Leaf
    tensor: Any
    family: Any


@dataclass
class Look:
    """A tree with what all checks need.

    Attributes:
        tree: The model.
        nodes: Its modules, each in its first place.
        held: The tensors in registries, each in its first place.
        modules_in_tree: Ids of the modules.
        tensors_in_tree: Ids of the tensors in registries.
    """

    tree: Node
    nodes: list[Node] = field(init=False)
    held: list[Held] = field(init=False)
    modules_in_tree: set[int] = field(init=False)
    tensors_in_tree: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [node for node in every_node(self.tree) if node.first_path is None]
        self.held = list(self._held())
        self.modules_in_tree = {id(node.module) for node in self.nodes}
        self.tensors_in_tree = {id(held.tensor) for held in self.held}

    def _held(self) -> Iterator[Held]:
        for node in self.nodes:
            for leaf in node.leaves:
                registry = "_buffers" if leaf.kind == "buffer" else "_parameters"
                tensor = module_dict(node.module, registry).get(leaf.name)
                family = family_of(tensor)
                if leaf.first_path is None and family is not None:
                    yield Held(node, leaf, tensor, family)


def plain_attributes(module: Any) -> dict[str, Any]:
    """The attributes of a module that are in no registry; none of scripted ones, which have
    torch's own there.
    """
    if is_scripted(module):
        return {}
    return {name: value for name, value in state_of(module).items() if name not in _INTERNAL}


def is_module(value: Any) -> bool:
    """True for a module of modtree or of torch."""
    return is_native(value) or foreign.is_module_class(type(value))


def joined(path: str, name: str) -> str:
    """The path of what a module holds."""
    return f"{path}.{name}" if path else name


def topmost(tree: Node, is_such: Callable[[Node], bool]) -> list[Node]:
    """The nodes that are such with all that is below them, without those below another of them."""
    found: list[Node] = []
    whole: dict[int, bool] = {}
    order = [node for node in every_node(tree) if node.first_path is None]
    for node in reversed(order):
        below = all(whole[id(child)] for child in node.children if child.first_path is None)
        whole[id(node)] = below and is_such(node)
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if whole.get(id(node)):
            found.append(node)
        else:
            waiting += reversed(node.children)
    return found
