# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that are still there, and modules in another mode than what is around them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

from modtree.core import module as module_file
from modtree.core.foreign import state_of
from modtree.inspection.check.look import Finding, Look
from modtree.inspection.tree import Node

_TABLES = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}

_HINT = (
    "call remove() on the handle that register_..._hook() returned, best in a finally block; a "
    "hook that is to stay can be left"
)


def hooks_left(look: Look) -> Iterator[Finding]:
    """Findings ``hook-left`` for hooks of modules and parameters, and for those of all modules."""
    for node in look.nodes:
        state = state_of(node.module)
        for table, word in _TABLES.items():
            yield from _in_table(node.path, word, state.get(table))
    for held in look.held:
        on_gradient = getattr(held.tensor, "_backward_hooks", None)
        yield from _in_table(held.leaf.path, "hook on the gradient", on_gradient)
    yield from _for_all_modules()


def _in_table(path: str, word: str, table: Any) -> Iterator[Finding]:
    for hook in list((table or {}).values()):
        if not _is_of_library(hook):
            yield Finding(path, "hook-left", f"a {word} is registered: {_name(hook)}", _HINT)


def _for_all_modules() -> Iterator[Finding]:
    seen: set[int] = set()
    for file in (module_file, sys.modules.get("torch.nn.modules.module")):
        for table, word in _TABLES.items():
            hooks: Any = getattr(file, f"_global{table}", None)
            if id(hooks) not in seen:
                seen.add(id(hooks))
                yield from _in_table("", f"{word} for all modules of the process", hooks)


def _is_of_library(hook: Any) -> bool:
    """True if a part of modtree or torch registered it, such as pruning or a lazy module."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    home = getattr(hook, "__module__", None)
    homes = [home, *(cls.__module__ for cls in type(hook).__mro__)]
    return any(str(home).partition(".")[0] in ("modtree", "torch") for home in homes)


def _name(hook: Any) -> str:
    name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    return f"{getattr(hook, '__module__', None) or type(hook).__module__}.{name}"


def modes(look: Look) -> Iterator[Finding]:
    """Findings ``mixed-modes``: parts in training mode of a model in evaluation mode, and modules
    in two places of different mode.
    """
    if _mode(look.tree) is False:
        for node in look.nodes:
            if _mode(node) is False:
                yield from map(_still_training, _left_in_training(node))
    yield from _in_two_modes(look)


def _left_in_training(node: Node) -> list[Node]:
    """The topmost modules below that are in training mode and may work by it."""
    found = []
    waiting = node.children[::-1]
    while waiting:
        child = waiting.pop()
        if _mode(child) is not True or child.first_path is not None:
            continue
        if _has_modes(child.module):
            found.append(child)
        else:
            waiting += child.children[::-1]
    return found


def _still_training(node: Node) -> Finding:
    return Finding(
        node.path,
        "mixed-modes",
        f"{node.type_name} is in training mode, what is around it in evaluation mode: dropout and "
        f"batch norm work on there",
        "model.eval() switches all of it; a train() of your own has to call super().train(mode)",
    )


def _has_modes(module: Any) -> bool:
    """False for what torch.ao puts in the place of layers, in training mode: integer layers,
    observers, and modules without a forward around them.
    """
    home = type(module).__module__
    is_quantized = home.startswith("torch.ao.") and "quanti" in home
    is_bare = type(module).__name__ == "Module" and home.startswith("torch.nn.")
    return not (is_bare or is_quantized) or bool(getattr(module, "dropout", 0))


def _mode(node: Node) -> bool | None:
    return getattr(node.module, "training", None)


def _in_two_modes(look: Look) -> Iterator[Finding]:
    parents: dict[int, list[Node]] = {}
    for node in look.nodes:
        for child in node.children:
            parents.setdefault(id(child.module), []).append(node)
    for node in look.nodes:
        above = parents.get(id(node.module), [])
        if len({_mode(parent) for parent in above}) > 1:
            places = ", ".join(f"{parent.path or 'the model'}" for parent in above)
            yield Finding(
                node.path,
                "mixed-modes",
                f"{node.type_name} is in several modules that are not all in one mode "
                f"({places}), and has the mode that was set last",
                "switch the whole model by train() or eval(), or give each place a module of its "
                "own",
            )
