# SPDX-License-Identifier: BSD-3-Clause
"""What the checks read of a model, and what they return: its nodes, their plain attributes, the
tensors in registries; findings, and their report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from modtree._C import ModuleBase
from modtree.core import foreign
from modtree.core.families import family_of
from modtree.core.foreign import is_native, state_of
from modtree.editing.walking import is_scripted
from modtree.inspection.tree import Leaf, Node, first_nodes, tensor_of

# So many of a kind are printed.
_PRINTED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """A likely mistake.

    Attributes:
        path: Where: the path of a module, with the attribute where there is one; "" is the model.
        kind: A word for what it is, one of those in the guide "Seeing a model".
        message: What was found.
        hint: What to do about it.
    """

    path: str
    kind: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.path or 'the model'}: {self.message} [{self.kind}]\n  {self.hint}"


class Findings(list[Finding]):
    """A list of findings that prints as a report: by kind, the first few of each."""

    def __str__(self) -> str:
        if not self:
            return "nothing found"
        kinds: dict[str, list[Finding]] = {}
        for finding in self:
            kinds.setdefault(finding.kind, []).append(finding)
        return "\n\n".join(_section(kind, found) for kind, found in kinds.items())

    __repr__ = __str__  # what a prompt shows


def _section(kind: str, found: list[Finding]) -> str:
    lines = [f"{kind} ({len(found):,})"]
    hint = ""
    for finding in found[:_PRINTED]:
        if hint and finding.hint != hint:
            lines.append(f"    {hint}")
        hint = finding.hint
        lines.append(f"  {finding.path or 'the model'}: {finding.message}")
    lines.append(f"    {hint}")
    if len(found) > _PRINTED:
        lines.append(f"  and {len(found) - _PRINTED:,} more")
    return "\n".join(lines)


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
        self.nodes = first_nodes(self.tree)
        self.held = list(self._held())
        self.modules_in_tree = {id(node.module) for node in self.nodes}
        self.tensors_in_tree = {id(held.tensor) for held in self.held}

    def _held(self) -> Iterator[Held]:
        for node in self.nodes:
            for leaf in node.leaves:
                tensor = tensor_of(node, leaf)
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


def topmost(tree: Node, is_such: Callable[[Node], bool]) -> list[Node]:
    """The nodes that are such with all that is below them, without those below another of them."""
    found: list[Node] = []
    whole: dict[int, bool] = {}
    for node in reversed(first_nodes(tree)):
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
