# SPDX-License-Identifier: BSD-3-Clause
"""Other modules in the place of those that hang in a tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from modtree.core.families import family_of
from modtree.editing.keys import ReplacedKeys, path_below
from modtree.editing.receipts import Receipt, put, recording
from modtree.editing.walking import check_child, describe, is_module, places_of, registry
from modtree.editing.wrappers import refuse_compiled

Maker: TypeAlias = Callable[[str, Any], Any]

#: The tables of hooks on calls; each with those that say how its hooks are called.
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
)


def maker_of(what: Any, number: int) -> Maker:
    """A function of path and module for each form of what may be put in place.

    Args:
        what: A function, a class that takes no arguments, or a module.
        number: How many modules are to be replaced.

    Raises:
        TypeError: It is none of these.
        ValueError: One module is given for several.
    """
    if isinstance(what, type):
        return lambda path, module: what()
    if is_module(what):
        if number > 1:
            raise ValueError(
                f"replace() got one {type(what).__name__} for {number} modules, which would then "
                f"share it; give a function of path and module that makes one for each"
            )
        return lambda path, module: what
    if not callable(what):
        raise TypeError(
            f"replace() takes a function of path and module, a class or a module, got {what!r:.80}"
        )
    return what


def replace(
    model: Any,
    members: Sequence[tuple[str, Any]],
    make: Maker,
    *,
    like: bool,
    kind: str,
) -> Receipt:
    """Puts ``make(path, module)`` wherever a module hangs. What is below another selected module is
    replaced before that.

    Args:
        model: The root.
        members: Paths and modules.
        make: What is put there; the module itself to leave it.
        like: Whether the new modules get the mode, device and hooks of the old ones.
        kind: What the receipt calls it.

    Raises:
        ValueError: The root is among them.
    """
    paths = {id(module): path for path, module in members}
    if id(model) in paths:
        raise ValueError(
            f"the model itself ({type(model).__name__}) cannot be replaced in itself: put another "
            f"object in its variable, or leave it out with exclude or a pattern such as '**'"
        )
    modules = {id(module): module for _, module in members}
    places = places_of(model, modules)
    keys = ReplacedKeys()
    with recording(model, places) as record:
        for key in places.order:
            path, module = paths[key], modules[key]
            new = make(path, module)
            if new is module:
                continue
            check_child(places.of[key][0].parent, new, path)
            if like:
                _make_like(new, module)
            for place in places.of[key]:
                if registry(place.parent, "_modules").get(place.name) is not module:
                    raise RuntimeError(
                        f"{describe(place.path)} was changed while modules were replaced; the "
                        f"function must return the new module and leave the tree alone"
                    )
                refuse_compiled(place.parent, place.name, place.path)
                record.touch(place.parent, place.path.rpartition(".")[0], place.name)
                put(place.parent, place.name, new, place.path)
                moves = keys.add(place.path, module, new)
                record.note(kind, place.path, module, new, moves=moves)
        return record.receipt(keys)


def only_child(name: str | None, path: str, module: Any) -> Any:
    """What a wrapper holds.

    Raises:
        ValueError: It has several children, or not the one that is named.
    """
    children = {n: child for n, child in registry(module, "_modules").items() if child is not None}
    if name is None and len(children) == 1:
        (name,) = children
    if name not in children:
        there = ", ".join(children) or "none"
        raise ValueError(
            f"{describe(path)} ({type(module).__name__}): expected "
            f"{'one child' if name is None else f'a child {name!r}'}, got {there}; "
            f"unwrap(name) says which one stays"
        )
    return children[name]


def _make_like(new: Any, old: Any) -> None:
    """Gives a module the mode, device and hooks of another; what it holds of that stays."""
    kept = {id(module) for module in old.modules()}
    fresh = [module for module in new.modules() if id(module) not in kept]
    for module in fresh:
        if module.training is not old.training:
            module.training = old.training
    device = _device(old)
    if device is not None and _device(new) not in (None, device):
        new.to(device)
    if path_below(new, old) is not None:
        return  # the hooks are called with the old module, inside
    for name in _HOOKS:
        theirs = getattr(old, name, None)
        if theirs:
            getattr(new, name).update(theirs)
    if old._backward_hooks:
        new._is_full_backward_hook = old._is_full_backward_hook


def _device(module: Any) -> Any:
    for registered in ("parameters", "buffers"):
        for tensor in getattr(module, registered)():
            if family_of(tensor) is not None:
                return getattr(tensor, "device", None)
    return None
