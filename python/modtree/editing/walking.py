# SPDX-License-Identifier: BSD-3-Clause
"""What is in a tree, by its registries: what matches a pattern, what is below, all places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from modtree import _C
from modtree.core.families import family_of
from modtree.core.foreign import is_module_class
from modtree.core.patterns import Machine

#: Registries, and what is in them.
PARAMETERS = ("_parameters",)
BUFFERS = ("_buffers",)
KINDS = {"_modules": "module", "_parameters": "parameter", "_buffers": "buffer"}
TABLES = tuple(KINDS)
# There are as many paths as a state dict has keys, which may double with each level.
_MOST_PATHS = 1000
#: The names of buffers that are not in a state dict.
TRANSIENT = "_non_persistent_buffers_set"


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


def check_child(parent: Any, child: Any, path: str) -> None:
    """Raises TypeError if what is to be put at a path cannot be a child of a module."""
    if not is_module(child):
        what = f"the class {child.__name__}" if isinstance(child, type) else f"{child!r:.80}"
        hint = "; remove() takes modules out of the tree" if child is None else ""
        raise TypeError(f"{describe(path)}: expected a module to put there, got {what}{hint}")
    ours = isinstance(parent, _C.ModuleBase)
    if not (isinstance(child, _C.ModuleBase) if ours else is_module_class(type(child))):
        home, other = ("modtree", "torch") if ours else ("torch", "modtree")
        raise TypeError(
            f"{describe(path)}: {type(parent).__name__} is a module of {home}, whose children "
            f"cannot be modules of {other}, such as {type(child).__name__}"
        )


def is_scripted(module: Any) -> bool:
    """True for modules of torch.jit, whose tree and calls are compiled."""
    return any(cls.__module__.startswith("torch.jit") for cls in type(module).__mro__)


def refuse_scripted(path: str, module: Any, why: str) -> None:
    """Raises TypeError for a module of torch.jit."""
    if is_scripted(module):
        name = type(module).__name__
        raise TypeError(
            f"{describe(path)} is a scripted module ({name}), {why} the model before "
            f"torch.jit.script or torch.jit.trace"
        )


def registry(module: Any, name: str) -> Mapping[str, Any]:
    """A registry of a module; a copy of what scripted modules have in its place."""
    found = getattr(module, name, None)
    if isinstance(found, dict):
        return found
    return dict(found.items()) if found is not None and hasattr(found, "items") else {}


def shape_of(tensor: Any) -> list[int] | None:
    """The shape of a tensor of any library; None if it is uninitialized, or not a tensor."""
    family = family_of(tensor)
    return None if family is None or family.is_uninitialized(tensor) else [*family.shape(tensor)]


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


def value_at(model: Any, path: str) -> Any:
    """The module, parameter or buffer at a path; None if there is none."""
    parent, _, name = path.rpartition(".")
    try:
        holder = submodule(model, parent)
    except AttributeError:
        return None
    found = (registry(holder, table).get(name) for table in TABLES)
    return next((value for value in found if value is not None), None)


def modules_that_match(model: Any, machine: Machine) -> list[tuple[str, Any]]:
    """Each module that a machine accepts, once, under the first path that matches."""
    return _match(model, machine, None)


def leaves_that_match(
    model: Any, machine: Machine, tables: tuple[str, ...] = PARAMETERS
) -> list[tuple[str, Any]]:
    """Each parameter or buffer that a machine accepts, once, under the first path that matches.

    Args:
        model: The root.
        machine: The patterns.
        tables: The registries that are read.
    """
    return _match(model, machine, tables)


def _match(model: Any, machine: Machine, tables: tuple[str, ...] | None) -> list[tuple[str, Any]]:
    found = _C._match_paths(model, machine.states, machine.start, machine.step, tables)
    if len({id(value) for _, value in found}) == len(found):
        return found
    first: dict[int, tuple[str, Any]] = {}
    for pair in found:
        first.setdefault(id(pair[1]), pair)
    return list(first.values())


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
                children = registry(module, "_modules")
                if children:
                    inner = [
                        (joined(path, n), each) for n, each in children.items() if each is not None
                    ]
                    waiting += [pair for pair in reversed(inner) if id(pair[1]) not in barred]


class Places(NamedTuple):
    """Where modules hang in a tree."""

    of: dict[int, list[Place]]
    """By the ``id`` of a module; the parents under their first path."""
    order: list[int]
    """The ids, each behind those of the modules below it."""
    aliases: dict[str, str]
    """The further paths of modules, and the first one of each."""


def places_of(model: Any, wanted: Collection[int] = ()) -> Places:
    """The places of modules of a tree.

    Args:
        model: The root.
        wanted: The ids of the modules.
    """
    places: dict[int, list[Place]] = {key: [] for key in wanted}
    found = Places(places, [], {})
    first = {id(model): ""}
    open_: list[tuple[str, Any, Iterator[tuple[str, Any]]]] = [("", model, _children(model))]
    while open_:
        path, parent, rest = open_[-1]
        for name, child in rest:
            key = id(child)
            if key in places:
                places[key].append(Place(parent, name, joined(path, name)))
            if key in first:
                if first[key]:
                    found.aliases[joined(path, name)] = first[key]
                continue
            has_children = bool(registry(child, "_modules"))
            first[key] = joined(path, name)
            if has_children:
                open_.append((first[key], child, _children(child)))
                break
            if key in places:
                found.order.append(key)
        else:
            open_.pop()
            if id(parent) in places:
                found.order.append(id(parent))
    return found


class EveryPath:
    """Called with a path: it, and all others that lead to the same place of the tree, since modules
    around it hang at several places.

    Args:
        aliases: The further paths of modules, and the first one of each.
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._others: dict[str, list[str]] = {}
        for alias, first in aliases.items():
            self._others.setdefault(first, []).append(alias)
            self._others.setdefault(alias, []).append(first)

    def __call__(self, path: str) -> list[str]:
        found = {path: None}
        waiting = [path]
        while waiting and len(found) < _MOST_PATHS:
            at = waiting.pop()
            cut = len(at) if self._others else 0
            while cut > 0:
                for other in self._others.get(at[:cut], ()):
                    new = other + at[cut:]
                    if new not in found and not other.startswith(f"{at[:cut]}."):  # a cycle
                        found[new] = None
                        waiting.append(new)
                cut = at.rfind(".", 0, cut)
        return list(found)


def places_of_tensors(model: Any, wanted: Collection[int]) -> dict[int, list[str]]:
    """The paths of tensors in registries, by their ids, each module under its first path."""
    found: dict[int, list[str]] = {key: [] for key in wanted}
    for path, module in below([("", model)]):
        for table in (*PARAMETERS, *BUFFERS):
            for name, tensor in registry(module, table).items():
                if id(tensor) in found:
                    found[id(tensor)].append(joined(path, name))
    return found


def _children(module: Any) -> Iterator[tuple[str, Any]]:
    items = registry(module, "_modules").items()
    return iter([(name, child) for name, child in items if child is not None])
