# SPDX-License-Identifier: BSD-3-Clause
"""Modules as pytrees, so that jax and its libraries take them as they are."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from typing import Any

import jax

from modtree import _C
from modtree.core.module import Module
from modtree.jax._tracing import lock

# What jax has put into modules that it made, by the id of the module, where this alone does not say
# which entries are one leaf: the same object for several leaves, such as True everywhere, or None.
# By name: the object, and another one for the leaf.
_hints: dict[int, tuple[weakref.ref[Any], dict[str, tuple[Any, Any]]]] = {}


def _flatten(module: Any) -> tuple[list[Any], Any]:
    with lock:
        split = _C._split_modules(module, None, False, 0, _hints)
    return split.leaves, split.structure


def _flatten_with_keys(module: Any) -> tuple[list[tuple[Any, Any]], Any]:
    leaves, structure = _flatten(module)
    paths: dict[int, str] = {}
    for _, path, leaf, _ in structure.places:
        paths.setdefault(leaf, path)
    return [(jax.tree_util.DictKey(paths[i]), leaf) for i, leaf in enumerate(leaves)], structure


def _unflatten(structure: Any, leaves: Any) -> Any:
    leaves = list(leaves)
    modules = structure.make(leaves, None)
    if len({id(None), *map(id, leaves)}) <= len(leaves):
        _note_hints(structure, leaves, modules)
    return modules[0]


def _note_hints(structure: Any, leaves: list[Any], modules: list[Any]) -> None:
    counts = Counter(map(id, leaves))
    tokens = [object() for _ in leaves]
    hints: dict[int, dict[str, tuple[Any, Any]]] = {}
    for module, path, leaf, _ in structure.places:
        if leaf >= 0 and (leaves[leaf] is None or counts[id(leaves[leaf])] > 1):
            prefix = structure.modules[module][1]
            name = path[len(prefix) + 1 :] if prefix else path
            hints.setdefault(module, {})[name] = leaves[leaf], tokens[leaf]
    for index, entries in hints.items():
        module = modules[index]
        forget = functools.partial(_forget, id(module))
        _hints[id(module)] = weakref.ref(module, forget), entries


def _forget(key: int, _: Any) -> None:
    _hints.pop(key, None)


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
