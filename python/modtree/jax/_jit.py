# SPDX-License-Identifier: BSD-3-Clause
"""``jax.jit`` for functions that take modules."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, NoReturn

import jax
import numpy as np

from modtree import _C
from modtree.core.patterns import Patterns, matching_paths
from modtree.jax._explain import avals_of, what_changed, what_changed_in_arrays
from modtree.jax._state import first_places
from modtree.jax._tracing import finished, lock, named, outcome_of, run, unbound
from modtree.jax_arrays import family as arrays

_MOST_STRUCTURES = 64
_MOST_KNOWN = 4

_now = threading.local()


class _Compiled:
    """A function for modules of one structure, compiled by jax for each set of shapes."""

    def __init__(self, owner: Jitted, split: Any, static: tuple[Any, ...]) -> None:
        self.owner = owner
        self.structure = split.structure
        self.static = static
        self.avals: Any = None
        self.moved, self.kept = owner._donated_leaves(split)
        self.every = bool(self.moved)
        options = dict(owner._options)
        if self.every:
            options["donate_argnums"] = (0,)
        self.compiled = jax.jit(self._traced, **options)
        self.donated_others = owner._donated_others(split)
        if self.donated_others:
            options["donate_argnums"] = (0, 2) if self.every else (2,)
            self.compiled = jax.jit(self._traced, **options)

    def __call__(self, split: Any) -> Any:
        leaves, others = split.leaves, split.others
        kept: list[Any] = []
        given: Any = ()
        if self.kept:
            kept = [leaves[i] for i in self.kept]
            leaves = [leaves[i] for i in self.moved]
        if self.donated_others:
            given = [others[i] for i in self.donated_others]
            others = [None if i in self.donated_others else x for i, x in enumerate(others)]
        return self.compiled(leaves, kept, given, others)

    def _traced(self, leaves: Any, kept: Any, given: Any, others: Any) -> Any:
        split = _now.split
        if self.kept:
            joined: list[Any] = [None] * self.structure.leaf_count
            for i, leaf in zip(self.moved, leaves, strict=True):
                joined[i] = leaf
            for i, leaf in zip(self.kept, kept, strict=True):
                joined[i] = leaf
            leaves = joined
        if self.donated_others:
            others = list(others)
            for i, other in zip(self.donated_others, given, strict=True):
                others[i] = other
        self._explain(leaves, others)
        function = self.owner._with_static(self.static)
        result, change = run(split, function, leaves, others, once=True, every=self.every)
        return outcome_of(split, result, change)

    def _explain(self, leaves: Any, others: Any) -> None:
        owner = self.owner
        if not owner._explains:
            return
        avals = avals_of(leaves, others)
        if self.avals is not None:
            owner._say(what_changed_in_arrays(self.structure, self.avals, avals))
        self.avals = avals


class Jitted:
    """A function that :func:`jit` has made."""

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Any,
        static_argnames: Any,
        donate: bool | Patterns,
        donate_argnums: Any,
        explain: bool | Callable[[str], Any],
        options: dict[str, Any],
    ) -> None:
        self._function, self._bound = unbound(function)
        self._static_argnums = _tuple(static_argnums)
        self._static_argnames = _tuple(static_argnames)
        self._donate = donate
        self._donate_argnums = _tuple(donate_argnums)
        self._explains = explain
        self._options = options
        self._compiled: dict[Any, _Compiled] = {}
        self._known: list[Any] = []
        named(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._bound:
            args = (*self._bound, *args)
        static: tuple[Any, ...] = ()
        if self._static_argnums or self._static_argnames:
            args, kwargs, static = self._without_static(args, kwargs)
        with lock:
            split = _C._split_modules((args, kwargs), self._known, True, 2)
            key = (split.structure, split.marks("requires_grad"), static, _kinds(static))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._new(key, split, static)
        around = getattr(_now, "split", None)
        _now.split = split
        try:
            outcome = compiled(split)
        except TypeError:
            _check_leaves(split)
            raise
        finally:
            _now.split = around
        return finished(split, outcome, fresh=True)

    def _new(self, key: Any, split: Any, static: tuple[Any, ...]) -> _Compiled:
        structure = split.structure
        _check_leaves(split)
        with lock:
            if self._explains and self._compiled:
                self._say(self._why(key))
            if len(self._compiled) >= _MOST_STRUCTURES:
                self._compiled.pop(next(iter(self._compiled)))
            compiled = self._compiled[key] = _Compiled(self, split, static)
            known = [structure, *(s for s in self._known if s is not structure)]
            self._known = known[:_MOST_KNOWN]
        return compiled

    def _why(self, key: Any) -> str:
        *_, (structure, marks, static, _) = self._compiled
        if structure != key[0]:
            return what_changed(structure, key[0])
        if marks != key[1]:
            paths = {leaf: place[1] for leaf, place in first_places(structure).items()}
            changed = [
                paths[i] for i, (a, b) in enumerate(zip(marks, key[1], strict=True)) if a != b
            ]
            return f"requires_grad changed: {', '.join(changed[:5])}"
        return f"static arguments: {static!r} became {key[2]!r}"

    def _say(self, reason: str) -> None:
        name = getattr(self, "__qualname__", None) or repr(self._function)
        text = f"{name} is traced again: {reason}"
        if callable(self._explains):
            self._explains(text)
        else:
            print(text, file=sys.stderr)

    def _without_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        offset = len(self._bound)
        places = [i + offset if i >= 0 else len(args) + i for i in self._static_argnums]
        static = tuple((i, args[i]) for i in places if i < len(args))
        names = tuple((name, kwargs[name]) for name in self._static_argnames if name in kwargs)
        args = tuple(None if i in places else value for i, value in enumerate(args))
        kwargs = {k: v for k, v in kwargs.items() if k not in self._static_argnames}
        return args, kwargs, static + names

    def _with_static(self, static: tuple[Any, ...]) -> Callable[..., Any]:
        if not static:
            return self._function

        def call(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for place, value in static:
                if isinstance(place, str):
                    kwargs[place] = value
                else:
                    given[place] = value
            return self._function(*given, **kwargs)

        return call

    def _donated_leaves(self, split: Any) -> tuple[list[int], list[int]]:
        count = split.structure.leaf_count
        if self._donate is False or count == 0:
            return [], []
        if self._donate is True:
            return list(range(count)), []
        paths = {leaf: path for leaf, (_, path, _) in first_places(split.structure).items()}
        chosen = matching_paths(self._donate, paths.values())
        moved = [leaf for leaf in range(count) if paths[leaf] in chosen]
        if not moved:
            return [], []
        return moved, [leaf for leaf in range(count) if paths[leaf] not in chosen]

    def _donated_others(self, split: Any) -> frozenset[int]:
        if not self._donate_argnums:
            return frozenset()
        args, _ = split.structure.rebuild(split.modules, split.others)
        offset = len(self._bound)
        wanted = {i + offset if i >= 0 else len(args) + i for i in self._donate_argnums}
        found: set[int] = set()
        start = 0
        for i, value in enumerate(args):
            count = len(_C._split_modules(value, None, True, 0).others)
            if i in wanted:
                found.update(range(start, start + count))
            start += count
        return frozenset(found)

    def _clear(self) -> None:
        """Forgets all that was compiled."""
        self._compiled.clear()
        self._known = []


def _tuple(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _kinds(static: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tells values apart that are equal: 1, 1.0 and True, or 0.0 and -0.0."""
    return tuple(
        (type(value), repr(value) if isinstance(value, float) else None) for _, value in static
    )


def _check_leaves(split: Any) -> None:
    """TypeError that names a leaf that is not an array of jax."""
    leaves = split.leaves
    for leaf, (_, path, _) in first_places(split.structure).items():
        value = leaves[leaf]
        if isinstance(value, jax.ShapeDtypeStruct):
            _refuse(path, "a shape without values; load or initialize the module first")
        if not arrays.family.owns(type(value)) and not isinstance(value, (np.ndarray, np.generic)):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            _refuse(path, f"a {kind}; convert the module with modtree.to_family(module, 'jax')")


def _refuse(path: str, what: str) -> NoReturn:
    raise TypeError(f"{path}: expected a jax array, got {what}")


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate: bool | Patterns = False,
    donate_argnums: Any = (),
    explain: bool | Callable[[str], Any] = False,
    **options: Any,
) -> Any:
    """``jax.jit`` for a function that takes modules, at any depth of its arguments, or a module.

    The function is traced once for each structure of its modules and each set of shapes. What it
    changes in their parameters and buffers is written back to the very modules, all or none. The
    classes, names, ties, modes, hooks and plain attributes of the modules are constants of a trace:
    where they change between calls, the function is traced again. Objects that are not numbers,
    strings, or lists, tuples and dicts of such are compared by identity.

    Args:
        function: The function, a module, or a method of a module. None: decorates.
        static_argnums: Positional arguments that are constants, hashable.
        static_argnames: Keyword arguments that are constants.
        donate: Give the memory of the modules' arrays to their successors: True for all, or
            patterns of paths. Arrays that were taken from the module before cannot be used then.
        donate_argnums: Other arguments whose memory is given away.
        explain: Say why the function is traced again: on stderr, or to this function.
        options: For ``jax.jit``: ``device``, ``inline``, ``compiler_options``, ...

    Raises:
        jax.errors.UnexpectedTracerError: The function has stored a tracer in a plain attribute.
        RuntimeError: The function has changed what is constant, such as the mode or a plain
            attribute.
    """

    def make(wrapped: Callable[..., Any]) -> Jitted:
        return Jitted(
            wrapped, static_argnums, static_argnames, donate, donate_argnums, explain, options
        )

    return make if function is None else make(function)
