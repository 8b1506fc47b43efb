# SPDX-License-Identifier: BSD-3-Clause
"""Tensors and modules where the tree does not see them: in plain attributes, lists and dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from modtree._inspection.check.findings import Finding
from modtree._inspection.check.look import (
    Look,
    is_module,
    is_of_modtree,
    joined,
    plain_attributes,
)
from modtree._inspection.tree import Node, module_dict
from modtree.families import family_of

__all__ = ["hidden", "modules_in_attributes"]

# Containers are opened so deep, and so many of their elements are looked at.
_DEEPEST = 4
_MOST = 1000

# Where `prune`, `weight_norm` and `spectral_norm` keep what they compute an attribute from.
_SOURCES = ("_orig", "_g", "_v")

_NOT_REACHED = "parameters(), state_dict(), train() and to() do not reach it"


def hidden(look: Look) -> Iterator[Finding]:
    """Findings ``hidden-tensor``, ``hidden-parameter``, ``hidden-module``, ``foreign-module``."""
    seen = look.tensors_in_tree | look.modules_in_tree
    for node in look.nodes:
        sources = {leaf.name for leaf in node.leaves}
        for name, value in plain_attributes(node.module).items():
            if any(name + end in sources for end in _SOURCES):
                continue  # computed anew at each call
            for way, found in _inside(value, ""):
                if id(found) in seen or _leads_back(found, look):
                    continue
                seen.add(id(found))
                place = joined(node.path, name) + way
                if is_module(found):
                    yield _hidden_module(place, node, name, way, found)
                else:
                    yield _hidden_tensor(place, node, name, way, found)


def modules_in_attributes(look: Look) -> dict[int, Any]:
    """The modules that plain attributes lead to, with all below them, by id."""
    waiting = [
        found
        for node in look.nodes
        for value in plain_attributes(node.module).values()
        for _, found in _inside(value, "")
        if is_module(found)
    ]
    known: dict[int, Any] = {}
    while waiting:
        module = waiting.pop()
        if id(module) not in known and module is not None:
            known[id(module)] = module
            waiting += module_dict(module, "_modules").values()
    return known


def _inside(value: Any, way: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The tensors and modules in a value, with the indices that lead to them."""
    if is_module(value) or family_of(value) is not None:
        yield way, value
    elif depth == _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, part in list(value.items())[:_MOST]:
            yield from _inside(part, f"{way}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value[:_MOST]):
            yield from _inside(part, f"{way}[{i}]", depth + 1)
    elif isinstance(value, (set, frozenset)):
        for part in list(value)[:_MOST]:
            yield from _inside(part, f"{way}{{...}}", depth + 1)


def _leads_back(found: Any, look: Look) -> bool:
    """Is it a module around the model, such as a parent that a child points back to?"""
    waiting, seen = [found] if is_module(found) else [], set()
    while waiting:
        module = waiting.pop()
        if module is look.tree.module:
            return True
        if id(module) not in seen:
            seen.add(id(module))
            waiting += module_dict(module, "_modules").values()
    return False


def _hidden_tensor(place: str, node: Node, name: str, way: str, found: Any) -> Finding:
    family: Any = family_of(found)
    what = f"in a plain attribute of {node.type_name}"
    if family.is_parameter(found):
        container = "nn.ParameterDict" if way.startswith("['") else "nn.ParameterList"
        return Finding(
            place,
            "hidden-parameter",
            f"a parameter {what}: parameters(), and so the optimizer, state_dict() and to() do "
            f"not reach it",
            f"self.{name} = {container}(...) holds it where the tree sees it"
            if way
            else f"self.{name} = nn.Parameter(...), not past __setattr__, registers it",
        )
    graph = ", and it keeps the graph of a forward alive" if family.has_grad_fn(found) else ""
    return Finding(
        place,
        "hidden-tensor",
        f"a tensor {what}: state_dict() and to() do not reach it{graph}",
        f"self.register_buffer({name!r}, tensor) registers it, with persistent=False where it is "
        f"not to be saved; what a forward left behind can be set to None",
    )


def _hidden_module(place: str, node: Node, name: str, way: str, found: Any) -> Finding:
    kind = type(found).__name__
    if is_of_modtree(found) != is_of_modtree(node.module):
        libraries = ("torch", "modtree") if is_of_modtree(node.module) else ("modtree", "torch")
        return Finding(
            place,
            "foreign-module",
            f"a module of {libraries[0]} ({kind}) in a module of {libraries[1]}: {_NOT_REACHED}",
            f"take the layer of {libraries[1]}.nn in its place; `modtree run` makes one class of "
            f"the two",
        )
    container = "nn.ModuleDict" if way.startswith("['") else "nn.ModuleList"
    return Finding(
        place,
        "hidden-module",
        f"a {kind} in a plain attribute of {node.type_name}: {_NOT_REACHED}",
        f"self.{name} = {container}(...) holds it where the tree sees it"
        if way
        else f"self.{name} = module, not past __setattr__, registers it",
    )
