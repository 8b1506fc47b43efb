# SPDX-License-Identifier: BSD-3-Clause
"""Modules taken out of a tree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from modtree.editing.receipts import Receipt, Recording, fill, recording
from modtree.editing.walking import Place, describe, places_of, registry
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


def take_out(parent: Any, names: Collection[str]) -> None:
    """Takes children out of their parent; what follows them in a list gets smaller numbers."""
    if is_numbered(parent):
        children = registry(parent, "_modules").items()
        renumber(parent, [child for name, child in children if name not in names])
    else:
        for name in names:
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
    below: dict[int, list[Place]] = {}
    for key in places.order:
        for place in places.of[key]:
            refuse_graph_target(model, place.path)
            below.setdefault(id(place.parent), []).append(place)
    with recording(model, places) as record:
        for each in below.values():
            _remove(record, each)
        return record.receipt()


def _remove(record: Recording, places: Sequence[Place]) -> None:
    """Takes modules out of their parent."""
    parent, names = places[0].parent, {place.name: place.path for place in places}
    record.touch(parent, places[0].path.rpartition(".")[0], *names)
    children = dict(registry(parent, "_modules"))
    take_out(parent, names)
    for name, path in names.items():
        if registry(parent, "_modules").get(name) is children[name]:
            raise TypeError(f"{describe(path)}: {type(parent).__name__} keeps it")
        record.note("remove", path, children[name], None, moves=children[name])
