# SPDX-License-Identifier: BSD-3-Clause
"""Modules as pytrees, so that jax and its libraries take them as they are."""

from __future__ import annotations

import weakref
from typing import Any

import jax

from modtree import _C
from modtree.core.module import Module
from modtree.jax._tracing import lock

__all__ = ["register_module_class", "register_module_classes"]

# The structure that the last module of each class had.
_last: dict[type, Any] = {}

# Modules that were made of leaves, by id: these may be anything that jax or a program has put
# there, such as True or None everywhere, which does not make ties of them.
_made: dict[int, tuple[weakref.ref[Any], Any]] = {}


def _flatten(module: Any) -> tuple[list[Any], Any]:
    cls = type(module)
    made = _made.get(id(module))
    with lock:
        if made is not None:
            split = _C._split_modules(module, made[1], False, 0, True)
            if split.structure is made[1]:
                return split.leaves, split.structure
        split = _C._split_modules(module, _last.get(cls), False)
    _last[cls] = split.structure
    return split.leaves, split.structure


def _flatten_with_keys(module: Any) -> tuple[list[tuple[Any, Any]], Any]:
    leaves, structure = _flatten(module)
    paths: dict[int, str] = {}
    for _, path, leaf, _ in structure.places:
        paths.setdefault(leaf, path)
    return [(jax.tree_util.DictKey(paths[i]), leaf) for i, leaf in enumerate(leaves)], structure


def _unflatten(structure: Any, leaves: Any) -> Any:
    module = structure.make(leaves, None)[0]
    key = id(module)
    _made[key] = weakref.ref(module, lambda _: _made.pop(key, None)), structure
    return module


_registered: set[type] = set()


def register_module_class(cls: type) -> None:
    """Makes the instances of a class of modules pytrees: their arrays, by path, each once.

    All classes are registered when ``modtree.jax`` is imported, and each new one when it is made,
    unless an ``__init_subclass__`` of its own keeps that to itself.
    """
    try:
        if cls in _registered:
            return
    except TypeError:
        return  # a metaclass without a hash, which jax needs as well
    _registered.add(cls)
    try:
        jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, _unflatten, _flatten)
    except ValueError:
        pass  # the program has registered it in its own way


def register_module_classes() -> None:
    """Registers all classes of modules that there are, and those that come."""
    waiting = [Module]
    while waiting:
        cls = waiting.pop()
        register_module_class(cls)
        waiting += type.__subclasses__(cls)

    def __init_subclass__(cls: type, **kwargs: Any) -> None:
        super(Module, cls).__init_subclass__(**kwargs)
        register_module_class(cls)

    Module.__init_subclass__ = classmethod(__init_subclass__)
