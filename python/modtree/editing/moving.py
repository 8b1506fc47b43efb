# SPDX-License-Identifier: BSD-3-Clause
"""Modules, parameters and buffers at other paths, or at none: inserted, renamed, moved, shared,
removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from modtree.editing.keys import ReplacedKeys, path_below
from modtree.editing.receipts import Receipt, Recording, fill, put, recording
from modtree.editing.walking import (
    KINDS,
    TABLES,
    TRANSIENT,
    Place,
    check_child,
    describe,
    joined,
    places_of,
    registry,
    shape_of,
    submodule,
)
from modtree.editing.wrappers import refuse_graph_target


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


class _Slot(NamedTuple):
    """What is at a path."""

    parent: Any
    parent_path: str
    name: str
    table: str
    value: Any


def _split(model: Any, path: str) -> tuple[Any, str, str]:
    """Parent, its path, and the last part of a path.

    Raises:
        ValueError: It is the path of the model itself.
        AttributeError: The parent does not exist.
    """
    if not isinstance(path, str):
        raise TypeError(f"expected a path such as 'layers.3', got {path!r:.80}")
    if not path:
        raise ValueError("expected the path of a part of the model, got '', the model itself")
    parent_path, _, name = path.rpartition(".")
    return submodule(model, parent_path), parent_path, name


def _slot(model: Any, path: str) -> _Slot:
    parent, parent_path, name = _split(model, path)
    for table in TABLES:
        value = registry(parent, table).get(name)
        if value is not None:
            return _Slot(parent, parent_path, name, table, value)
    there = [name for table in TABLES for name in registry(parent, table)]
    raise AttributeError(
        f"{path!r}: {describe(parent_path)} ({type(parent).__name__}) has no module, parameter or "
        f"buffer {name!r}; it has {', '.join(there) or 'none'}"
    )


def _check_name(parent: Any, path: str, name: str) -> None:
    """Raises ValueError if a child cannot get a name."""
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"expected a name without dots, got {name!r:.80}")
    if hasattr(parent, name) or any(name in registry(parent, table) for table in TABLES):
        raise ValueError(
            f"{describe(path)} ({type(parent).__name__}) has an attribute {name!r} already; "
            f"replace() puts another module in its place"
        )


def _add_module(parent: Any, parent_path: str, name: str, module: Any, before: str | None) -> None:
    children = registry(parent, "_modules")
    path = joined(parent_path, name)
    check_child(parent, module, path)
    if parent is module or path_below(module, parent) is not None:
        raise ValueError(f"{path!r}: the module that is put there holds {describe(parent_path)}")
    if is_numbered(parent) and name.lstrip("-").isdecimal():
        if not 0 <= int(name) <= len(children):
            raise ValueError(
                f"{path!r}: expected a number up to {len(children)}, the length of "
                f"{describe(parent_path)}"
            )
        each = list(children.values())
        each.insert(int(name), module)
        renumber(parent, each)
        return
    if name not in children or children[name] is not None:
        _check_name(parent, parent_path, name)
    if before is not None and before not in children:
        raise ValueError(f"before: {describe(parent_path)} has no child {before!r}")
    parent.add_module(name, module)
    if before is not None:
        rest = {n: child for n, child in registry(parent, "_modules").items() if n != name}
        at = [*rest].index(before)
        items = [*rest.items()]
        fill(registry(parent, "_modules"), dict([*items[:at], (name, module), *items[at:]]))


def insert(model: Any, path: str, module: Any, *, before: str | None = None) -> Receipt:
    """A new module at a path.

    Args:
        model: The root.
        path: Where it is to be. In a list or Sequential, what follows gets a number more.
        module: The module.
        before: The sibling in front of which it is registered; None for the end.
    """
    parent, parent_path, name = _split(model, path)
    with recording(model) as record:
        record.touch(parent, parent_path, name)
        if is_numbered(parent):
            refuse_graph_target(model, path)
        _add_module(parent, parent_path, name, module, before)
        record.note("insert", path, None, module, moves=module)
        return record.receipt()


def rename(model: Any, path: str, name: str) -> Receipt:
    """Another name for a module, parameter or buffer, at the same place among its siblings."""
    slot = _slot(model, path)
    _check_name(slot.parent, slot.parent_path, name)
    if slot.table == "_modules" and is_numbered(slot.parent):
        raise ValueError(
            f"{path!r} is in a list, whose children are numbered; move() changes their order"
        )
    refuse_graph_target(model, path)
    with recording(model) as record:
        record.touch(slot.parent, slot.parent_path, slot.name, name)
        table = registry(slot.parent, slot.table)
        fill(table, {name if old == slot.name else old: v for old, v in table.items()})
        transient: Any = getattr(slot.parent, TRANSIENT, ())
        if slot.table == "_buffers" and slot.name in transient:
            transient.remove(slot.name)
            transient.add(name)
        for each in record.every_path(path):
            renamed = joined(each.rpartition(".")[0], name)
            record.note_one("rename", each, slot.value, renamed)
        return record.receipt()


def move(model: Any, path: str, to: str) -> Receipt:
    """A module, parameter or buffer at another path.

    Args:
        model: The root.
        path: Where it is.
        to: Where it is to be; the parent must be there. In a list or Sequential, the number that it
            has in the end.
    """
    slot = _slot(model, path)
    parent, parent_path, name = _split(model, to)
    refuse_graph_target(model, path)
    with recording(model) as record:
        record.touch(slot.parent, slot.parent_path, slot.name)
        record.touch(parent, parent_path, name)
        if slot.table == "_modules":
            take_out(slot.parent, [slot.name])
            _add_module(parent, parent_path, name, slot.value, None)
        else:
            transient = slot.name in getattr(slot.parent, TRANSIENT, ())
            delattr(slot.parent, slot.name)
            _check_name(parent, parent_path, name)
            if slot.table == "_parameters":
                parent.register_parameter(name, slot.value)
            else:
                parent.register_buffer(name, slot.value, persistent=not transient)
        for each in record.every_path(path):
            record.note_one("move", each, slot.value, to)
        for each in record.every_path(to)[1:]:
            record.note_one("move", path, slot.value, each)
        return record.receipt()


def share(model: Any, path: str, to: str) -> Receipt:
    """What is at one path, at a second one too: a tie.

    Args:
        model: The root.
        path: Where the module, parameter or buffer is.
        to: Where something of its kind is, which it replaces.

    Raises:
        ValueError: The two are of different kinds or shapes.
    """
    slot, target = _slot(model, path), _slot(model, to)
    if slot.table != target.table:
        raise ValueError(
            f"{path!r} is a {KINDS[slot.table]}, and {to!r} is a {KINDS[target.table]}"
        )
    keys = ReplacedKeys()
    with recording(model) as record:
        record.touch(target.parent, target.parent_path, target.name)
        if slot.table == "_modules":
            if path_below(slot.value, target.parent) is not None:
                raise ValueError(f"{path!r} holds {describe(target.parent_path)}")
            put(target.parent, target.name, slot.value, to)
            keys.add(to, target.value, slot.value)
        else:
            shapes = [shape_of(slot.value), shape_of(target.value)]
            if shapes[0] != shapes[1]:
                raise ValueError(f"{path!r} has the shape {shapes[0]}, and {to!r} {shapes[1]}")
            setattr(target.parent, target.name, slot.value)
        record.note("share", to, target.value, slot.value, moves=True)
        return record.receipt(keys)
