# SPDX-License-Identifier: BSD-3-Clause
"""Names that lead somewhere else than one thinks."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from modtree.core.module import Module
from modtree.editing.walking import joined, registry
from modtree.inspection.check.look import Finding, Look, plain_attributes
from modtree.inspection.tree import Node

_REGISTRIES = ("_parameters", "_buffers", "_modules")


def shadowed_names(look: Look) -> Iterator[Finding]:
    """Findings ``shadowed-name``."""
    for node in look.nodes:
        attributes = plain_attributes(node.module)
        yield from _methods_hidden(node, attributes)
        seen: dict[str, str] = {}
        for table in _REGISTRIES:
            for name, value in registry(node.module, table).items():
                seen_before = seen.get(name)
                reason = _hidden_by(node.module, name, value, attributes, seen_before)
                seen[name] = table
                if reason:
                    yield Finding(
                        joined(node.path, name),
                        "shadowed-name",
                        f"registered in {table}, but {node.type_name}.{name} is {reason}",
                        _visible(node.module, table, name, attributes, seen_before),
                    )


def _visible(
    module: Any, table: str, name: str, attributes: dict[str, Any], other: str | None
) -> str:
    """What makes a registered value visible. A plain `del` would take the value itself."""
    if other is None and name in attributes:
        return f"self.__dict__.pop({name!r}) removes what hides it"
    new = _free_name(module, name)
    return (
        f"self.{table}[{new!r}] = self.{table}.pop({name!r}) gives it another name"
        f"{'' if other else ', or take what hides it out of the class'}"
    )


def _free_name(module: Any, name: str) -> str:
    taken = {key for table in _REGISTRIES for key in registry(module, table)}
    taken |= plain_attributes(module).keys()
    new = re.sub(r"\W+", "_", name).strip("_") or "unnamed"
    while new == name or new in taken or hasattr(type(module), new):
        new += "_"
    return new


def _methods_hidden(node: Node, attributes: dict[str, Any]) -> Iterator[Finding]:
    """Attributes that hide methods of Module. A function there is meant as such."""
    for name, value in attributes.items():
        if name in _methods() and not callable(value):
            yield Finding(
                joined(node.path, name),
                "shadowed-name",
                f"an attribute ({type(value).__name__}) in the place of the method "
                f"{name}() of {node.type_name}, which cannot be called any more",
                "give the attribute another name",
            )


@functools.cache
def _methods() -> frozenset[str]:
    found = (name for name in dir(Module) if callable(getattr(Module, name)))
    return frozenset(name for name in found if not name.startswith("__"))


def _hidden_by(
    module: Any, name: str, value: Any, attributes: dict[str, Any], other_registry: str | None
) -> str | None:
    """What an attribute of that name is in the place of a registered value; None where it is the
    value.
    """
    if other_registry is not None:
        return f"what {other_registry} has of that name"
    if name in attributes:
        return f"the plain attribute of that name ({type(attributes[name]).__name__})"
    if value is None:
        return None
    for cls in type(module).__mro__:
        if name in vars(cls):
            return _of_class(module, name, value, cls)
    return None


def _of_class(module: Any, name: str, value: Any, cls: type) -> str | None:
    found = vars(cls)[name]
    if hasattr(type(found), "__get__") and hasattr(type(found), "__set__"):  # a property
        try:
            if getattr(module, name) is value:
                return None
        except Exception:  # the user's code; then the value cannot be reached that way either
            pass
        return f"a property of {cls.__name__}"
    return f"the attribute of the class {cls.__name__} ({type(found).__name__})"


def dotted_names(look: Look) -> Iterator[Finding]:
    """Findings ``dotted-name``."""
    for node in look.nodes:
        for table in _REGISTRIES:
            for name in registry(node.module, table):
                if not isinstance(name, str) or "." in name or not name:
                    yield Finding(
                        joined(node.path, str(name)),
                        "dotted-name",
                        f"the name {name!r} in {table} of {node.type_name} cannot be told from "
                        f"a path: get_submodule() and loading of a state dict go astray",
                        f"self.{table}[{_free_name(node.module, str(name))!r}] = "
                        f"self.{table}.pop({name!r}) gives it a name without dots",
                    )
