# SPDX-License-Identifier: BSD-3-Clause
"""Walks over a tree by its registries: with the machine of a pattern, or of all places."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from modtree import _C
from modtree._patterns import Machine, State, Tail, tail_needle, tail_regex, tail_text
from modtree.core.foreign import is_module_class

__all__ = [
    "Place",
    "below",
    "check_model",
    "describe",
    "is_module",
    "joined",
    "leaves_that_match",
    "modules_that_match",
    "places_of",
    "registry",
    "submodule",
]


class Place(NamedTuple):
    """Where a module hangs."""

    parent: Any
    name: str
    path: str


def is_module(value: Any) -> bool:
    """True for modules of modtree and of torch."""
    return isinstance(value, _C.ModuleBase) or is_module_class(type(value))


def check_model(model: Any) -> Any:
    """The model itself.

    Raises:
        TypeError: It is not a module of modtree or torch.
    """
    if is_module(model) and hasattr(model, "_modules"):
        return model
    what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    if is_module(model):
        what += ", whose __init__ did not call super().__init__()"
    raise TypeError(f"expected a module of modtree or torch, got {what}")


def registry(module: Any, name: str) -> Mapping[str, Any]:
    """A registry of a module; a copy of what scripted modules have in its place."""
    found = getattr(module, name, None)
    if isinstance(found, dict):
        return found
    return dict(found.items()) if found is not None and hasattr(found, "items") else {}


def joined(path: str, name: str) -> str:
    """The path of what a module holds under a name."""
    return f"{path}.{name}" if path else name


def describe(path: str) -> str:
    """A path as messages name it."""
    return repr(path) if path else "the model itself"


def submodule(model: Any, path: str) -> Any:
    """The module at a path, by the registries alone.

    Raises:
        AttributeError: There is none; the message says how far the path leads.
    """
    at, before = model, ""
    for name in path.split(".") if path else ():
        children = registry(at, "_modules")
        if children.get(name) is None:
            there = ", ".join(children) or "no children"
            raise AttributeError(
                f"{path!r}: {describe(before)} ({type(at).__name__}) has no child {name!r}; "
                f"it has {there:.200}"
            )
        at, before = children[name], joined(before, name)
    return at


def modules_that_match(model: Any, machine: Machine) -> list[tuple[str, Any]]:
    """Each module that a machine accepts, once, under the first path that matches."""
    return _once(_walk(model, machine, "named_modules", None))


def leaves_that_match(model: Any, machine: Machine, kinds: list[str]) -> list[tuple[str, Any]]:
    """Each parameter or buffer that a machine accepts, once, under the first path that matches.

    Args:
        model: The root.
        machine: The patterns.
        kinds: ``"parameters"``, ``"buffers"`` or both.
    """

    def matching(path: str, module: Any, state: State) -> Iterator[tuple[str, Any]]:
        for kind in kinds:
            leaves = registry(module, f"_{kind}")
            for position, (name, leaf) in enumerate(leaves.items()):
                if leaf is not None:
                    after = machine.step(state, name, position, len(leaves))
                    if after is not None and after.accepts:
                        yield joined(path, name), leaf

    listing = f"named_{kinds[0]}" if len(kinds) == 1 else None
    return _once(_walk(model, machine, listing, matching))


def _once(found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Each object under its first path."""
    if len({id(value) for _, value in found}) == len(found):
        return found
    first: dict[int, tuple[str, Any]] = {}
    for pair in found:
        first.setdefault(id(pair[1]), pair)
    return list(first.values())


_Matching: TypeAlias = Callable[[str, Any, State], Iterator[tuple[str, Any]]]


def _walk(
    model: Any, machine: Machine, listing: str | None, matching: _Matching | None
) -> list[tuple[str, Any]]:
    """What matches, in the order of ``named_modules``; shared modules several times.

    Args:
        model: The root.
        machine: The patterns.
        listing: The module's own walk, which is native for modules of modtree. It is read instead
            where paths match by their ends alone.
        matching: What matches in a module; None for the modules themselves.
    """
    found: list[tuple[str, Any]] = []
    if machine.start is None:
        return found
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[str, Any, State]] = [("", model, machine.start)]
    while waiting:
        path, module, state = waiting.pop()
        if state.loops:
            # In the same state, the same modules match below it: only under later paths.
            if (id(module), id(state)) in seen:
                continue
            seen.add((id(module), id(state)))
        if state.tails and listing:
            ends = _ends(path, module, state.tails, listing)
            if ends is not None:
                found += ends
                continue
        if matching is None:
            if state.accepts:
                found.append((path, module))
        elif not state.is_end:
            found += matching(path, module, state)
        if state.is_end:
            continue
        children = registry(module, "_modules")
        if not children:
            continue
        prefix = f"{path}." if path else ""
        if state.only is not None:
            child, after = children.get(state.only), state.known[state.only]
            if child is not None and after is not None:
                waiting.append((prefix + state.only, child, after))
        elif matching is None and state.last_names:
            names = state.last_names
            found += [(prefix + n, m) for n, m in children.items() if n in names and m is not None]
        else:
            below = list(_below(prefix, children, machine, state))
            below.reverse()
            waiting += below
    return found


def _below(
    prefix: str, children: Mapping[str, Any], machine: Machine, state: State
) -> Iterator[tuple[str, Any, State]]:
    """The children that can lead to a match."""
    if state.default is not ...:
        get, default = state.known.get, state.default
        for name, child in children.items():
            after = get(name, default)
            if after is not None and child is not None:
                yield prefix + name, child, after
        return
    count = len(children)
    for position, (name, child) in enumerate(children.items()):
        after = machine.step(state, name, position, count)
        if after is not None and child is not None:
            yield prefix + name, child, after


def _ends(
    path: str, module: Any, tails: tuple[Tail, ...], listing: str
) -> list[tuple[str, Any]] | None:
    """What is below a module and has one of these ends; None if its own walk cannot tell."""
    walk = getattr(module, listing, None)
    start = f"{path}." if path else ""
    texts = tuple(filter(None, map(tail_text, tails)))
    matches, needle = tail_regex(tails, start).fullmatch, tail_needle(tails)
    try:
        pairs = walk(prefix=path, remove_duplicate=False)  # type: ignore[misc]
        if len(texts) == len(tails):  # quicker, and almost exact
            found = [pair for pair in pairs if pair[0].endswith(texts)]
        else:
            found = [pair for pair in pairs if needle in pair[0]]
    except (RecursionError, TypeError):  # a tree with a cycle; a method of another signature
        return None
    return [pair for pair in found if matches(pair[0])]


def below(
    members: Iterable[tuple[str, Any]], barred: Collection[int] = ()
) -> Iterator[tuple[str, Any]]:
    """Modules and all that is below them, each once.

    Args:
        members: Paths and modules.
        barred: The ids of modules that are not entered.
    """
    seen: set[int] = set()
    for path, module in members:
        waiting = [(path, module)]
        while waiting:
            path, module = waiting.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module
                inner = [(joined(path, name), child) for name, child in _children(module)]
                waiting += [pair for pair in reversed(inner) if id(pair[1]) not in barred]


def places_of(model: Any, wanted: Collection[int]) -> tuple[dict[int, list[Place]], list[int]]:
    """The places of modules of a tree, and the order in which each follows all that is below it.

    Args:
        model: The root.
        wanted: The ids of the modules. Places, and the order, are by id too.
    """
    places: dict[int, list[Place]] = {key: [] for key in wanted}
    order: list[int] = []
    seen = {id(model)}
    open_: list[tuple[str, Any, Iterator[tuple[str, Any]]]] = [("", model, _children(model))]
    while open_:
        path, parent, rest = open_[-1]
        for name, child in rest:
            key = id(child)
            if key in places:
                places[key].append(Place(parent, name, joined(path, name)))
            if key in seen:
                continue
            seen.add(key)
            if registry(child, "_modules"):
                open_.append((joined(path, name), child, _children(child)))
                break
            if key in places:
                order.append(key)
        else:
            open_.pop()
            if id(parent) in places:
                order.append(id(parent))
    return places, order


def _children(module: Any) -> Iterator[tuple[str, Any]]:
    items = registry(module, "_modules").items()
    return iter([(name, child) for name, child in items if child is not None])
