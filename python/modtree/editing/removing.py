# SPDX-License-Identifier: BSD-3-Clause
"""Modules taken out of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree.editing.receipts import Change, Receipt, Recording, fill, recording
from modtree.editing.walking import describe, places_of, registry
from modtree.editing.wrappers import refuse_graph_target

__all__ = ["is_numbered", "remove", "renumber", "take_out"]


def is_numbered(module: Any) -> bool:
    """True for a list or Sequential: its children are numbered from 0."""
    names = registry(module, "_modules")
    return (
        hasattr(type(module), "__getitem__")
        and hasattr(type(module), "append")
        and all(name == str(i) for i, name in enumerate(names))
    )


def renumber(module: Any, children: Sequence[Any]) -> None:
    """Gives a list or Sequential these children."""
    fill(registry(module, "_modules"), {str(i): child for i, child in enumerate(children)})


def take_out(parent: Any, name: str) -> None:
    """Takes a child out of its parent; what follows it in a list gets a number less."""
    if is_numbered(parent):
        children = registry(parent, "_modules").items()
        renumber(parent, [child for other, child in children if other != name])
    else:
        delattr(parent, name)


def remove(model: Any, members: Sequence[tuple[str, Any]]) -> Receipt:
    """Takes modules out of all their places.

    Args:
        model: The root.
        members: Paths and modules.

    Raises:
        ValueError: The root is among them, or a graph of torch.fx calls one.
    """
    paths = {id(module): path for path, module in members}
    if id(model) in paths:
        raise ValueError(f"the model itself ({type(model).__name__}) cannot be removed from itself")
    places = places_of(model, paths)
    with recording(model, places.aliases) as record:
        for key in places.order:
            for place in places.of[key]:
                refuse_graph_target(model, place.path)
                _remove_one(record, place.parent, place.path, key)
        return record.receipt()


def _remove_one(record: Recording, parent: Any, path: str, key: int) -> None:
    record.touch(parent, path.rpartition(".")[0])
    # Of a list, others may have gone before it.
    for name, child in registry(parent, "_modules").items():
        if id(child) == key:
            take_out(parent, name)
            if registry(parent, "_modules").get(name) is child:
                raise TypeError(f"{describe(path)}: {type(parent).__name__} keeps it")
            record.changes.append(Change("remove", path, child, None))
            if any(True for _ in child.parameters()):
                record.moves_parameters.append(path)
            return
