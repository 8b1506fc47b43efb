# SPDX-License-Identifier: BSD-3-Clause
"""Tensors and modules where the tree does not see them: in plain attributes, lists and dicts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from modtree.core.families import family_of
from modtree.core.foreign import is_native
from modtree.editing.ties import meet, memory_of
from modtree.editing.walking import joined, registry
from modtree.inspection.check.look import (
    Finding,
    Look,
    is_module,
    plain_attributes,
)
from modtree.inspection.tree import Node

# Containers are opened so deep, and so many of their elements are looked at.
_DEEPEST = 4
_MOST = 1000

# Where a parameter of FullyShardedDataParallel has the parameters that it is made of.
_FLAT = ("_param_infos", "_shared_param_infos")

# Where `prune`, `weight_norm` and `spectral_norm` keep what they compute an attribute from.
_SOURCES = ("_orig", "_g", "_v")

_NOT_REACHED = "parameters(), state_dict(), train() and to() do not reach it"


def hidden(look: Look) -> Iterator[Finding]:
    """Findings ``hidden-tensor``, ``hidden-parameter``, ``hidden-module``, ``foreign-module``."""
    seen = look.tensors_in_tree | look.modules_in_tree
    views = _views_of_flat_parameters(look)
    for node in look.nodes:
        sources = {leaf.name for leaf in node.leaves}
        for name, value in plain_attributes(node.module).items():
            if any(name + end in sources for end in _SOURCES) or (id(node.module), name) in views:
                continue  # computed anew at each call
            for way, found in _inside(value, ""):
                if id(found) in seen or _leads_back(found, look) or _is_reached(found, look):
                    continue
                if hasattr(found, _FLAT[0]):  # of FullyShardedDataParallel, over what is registered
                    continue
                seen.add(id(found))
                place = joined(node.path, name) + way
                if is_module(found):
                    yield _hidden_module(place, node, name, way, found, look)
                else:
                    yield _hidden_tensor(place, node, name, way, found, look)


def _views_of_flat_parameters(look: Look) -> set[tuple[int, str]]:
    """The modules and names where FullyShardedDataParallel puts views of what is registered."""
    return {
        (id(info.module), info.param_name)
        for held in look.held
        for infos in _FLAT
        for info in getattr(held.tensor, infos, None) or ()
    }


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
            waiting += registry(module, "_modules").values()
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
    """True for a module around the model, such as a parent that a child points back to."""
    waiting, seen = [found] if is_module(found) else [], set()
    while waiting:
        module = waiting.pop()
        if module is look.tree.module:
            return True
        if id(module) not in seen:
            seen.add(id(module))
            waiting += registry(module, "_modules").values()
    return False


def _is_reached(found: Any, look: Look) -> bool:
    """True for a module around others, of which all that hold something are in the tree, or
    share their tensors with it.
    """
    if not is_module(found):
        return False
    waiting, seen, reached = [found], set(), False
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        if id(module) in look.modules_in_tree:
            reached = True
            continue
        tensors = [
            tensor
            for table in ("_parameters", "_buffers")
            for tensor in registry(module, table).values()
            if tensor is not None
        ]
        if any(id(tensor) not in look.tensors_in_tree for tensor in tensors):
            return False
        reached = reached or bool(tensors)
        waiting += registry(module, "_modules").values()
    return reached


def _hidden_tensor(place: str, node: Node, name: str, way: str, found: Any, look: Look) -> Finding:
    family: Any = family_of(found)
    what = f"in a plain attribute of {node.type_name}"
    if family.is_parameter(found):
        return Finding(
            place,
            "hidden-parameter",
            f"a parameter {what}: parameters(), and so the optimizer, state_dict() and to() do "
            f"not reach it",
            _container_hint(node, name, way, look, "Parameter")
            if way
            else f"self.{name} = self.{name} registers it: it was put there past __setattr__",
        )
    has_graph = family.has_grad_fn(found)
    graph = ", and it keeps the graph of a forward alive" if has_graph else ""
    return Finding(
        place,
        "hidden-tensor",
        f"a tensor {what}: state_dict() and to() do not reach it{graph}",
        _view_hint(found, look) or _buffer_hint(node, name, way, has_graph, look),
    )


def _view_hint(found: Any, look: Look) -> str | None:
    """What to do about a view of what is registered, which is not to be registered once more."""
    memory = memory_of(found)
    for held in look.held if memory is not None else ():
        other = memory_of(held.tensor)
        if other is not None and meet(memory, other):
            return (
                f"make it of {held.leaf.path} in forward, whose memory it has until to() or a load "
                f"parts the two"
            )
    return None


def _buffer_hint(node: Node, name: str, way: str, has_graph: bool, look: Look) -> str:
    if has_graph:
        what = f"self.{name}{way}" if way else f"self.{name} = None"
        rest = (
            "is to be detached, or taken out" if way else "lets the graph go, and so does detach()"
        )
        return f"{what} {rest}"
    container = plain_attributes(node.module)[name]
    what = "registers it, and forward reads it there" if way else "registers it"
    if not way:
        call = f"self.register_buffer({name!r}, self.__dict__.pop({name!r}))"
    elif isinstance(container, (list, tuple)) and _are_all(container, "Tensor", look):
        each = f"self.register_buffer(f'{name}_{{i}}', tensor)"
        call = f"for i, tensor in enumerate(self.{name}): {each}"
        what = "registers them, and forward reads them there"
    elif "{" in way:
        return f"register it under a name of its own, and not in the set self.{name}"
    else:
        call = f"self.register_buffer({_flat_name(name, way)!r}, self.{name}{way})"
    return (
        f"{call} {what}, with persistent=False where it is not to be saved; what a forward left "
        f"behind can be set to None"
    )


def _flat_name(name: str, way: str) -> str:
    return re.sub(r"\W+", "_", name + way).strip("_")


def _are_all(container: Any, kind: str, look: Look) -> bool:
    """True if the elements are all of one kind, and none of them is in the tree."""
    parts = container.values() if isinstance(container, Mapping) else container
    known = look.tensors_in_tree | look.modules_in_tree
    return all(id(part) not in known and _kind(part) == kind for part in parts)


def _kind(value: Any) -> str | None:
    if is_module(value):
        return "Module"
    family = family_of(value)
    if family is None:
        return None
    return "Parameter" if family.is_parameter(value) else "Tensor"


def _container_hint(node: Node, name: str, way: str, look: Look, kind: str) -> str:
    """How what is in a list or dict gets into the tree."""
    container = plain_attributes(node.module)[name]
    is_dict = isinstance(container, Mapping)
    is_row = is_dict or isinstance(container, (list, tuple))
    names = container if is_dict else ()
    if all(isinstance(key, str) and key and "." not in key for key in names):
        if is_row and _are_all(container, kind, look):
            new = f"nn.{kind}{'Dict' if is_dict else 'List'}"
            return f"self.{name} = {new}(self.{name}) holds it where the tree sees it"
    if "{" in way:
        return f"register it under a name of its own, and not in the set self.{name}"
    method = "add_module" if kind == "Module" else "register_parameter"
    return (
        f"self.{method}({_flat_name(name, way)!r}, self.{name}{way}) registers it under a name of "
        f"its own"
    )


def _hidden_module(place: str, node: Node, name: str, way: str, found: Any, look: Look) -> Finding:
    kind = type(found).__name__
    if is_native(found) != is_native(node.module):
        libraries = ("torch", "modtree") if is_native(node.module) else ("modtree", "torch")
        return Finding(
            place,
            "foreign-module",
            f"a module of {libraries[0]} ({kind}) in a module of {libraries[1]}: {_NOT_REACHED}",
            f"take the layer of {libraries[1]}.nn in its place, with the values of this one; "
            f"`modtree run` makes one class of the two",
        )
    return Finding(
        place,
        "hidden-module",
        f"a {kind} in a plain attribute of {node.type_name}: {_NOT_REACHED}",
        _container_hint(node, name, way, look, "Module")
        if way
        else f"self.{name} = self.{name} registers it: it was put there past __setattr__",
    )
