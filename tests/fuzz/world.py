# SPDX-License-Identifier: BSD-3-Clause
"""One implementation with its slots of modules, tensors, classes, state dicts, iterators and
handles, and what ran in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from helpers.implementations import implementation

from .observe import FIRST_ID, Observer
from .program import Program

MODULES, PARAMS, TENSORS, SAVED, WALKS, HANDLES, BLOBS = 6, 6, 6, 3, 3, 6, 3
LOOKS = ("walks", "registries", "dict")
MOST_EVENTS = 400
DEPTH = 2  # steps inside hooks and overrides; below that they pass on

GLOBAL_TABLES = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)


class Stop(Exception):
    """Raised on purpose by hooks and overrides."""


class TooMuch(Exception):
    """A program that runs away: both worlds stop here."""


class World:
    def __init__(self, kind: str, program: Program) -> None:
        self.impl, self.look, self.cycles = implementation(kind), program.look, program.cycles
        self.leaves = (
            "numpy" if program.kind == "modtree" else "torch"
        )  # of the world beside torch's
        impl, lib = self.impl, self.impl.lib
        handle = impl.hooks.RemovableHandle  # its numbers are told from others by their size
        handle.next_id = max(handle.next_id, FIRST_ID)
        self.events: list[Any] = []
        self.muted = False
        self.depth = self.steps_inside = 0
        self.made = 0
        self.classes: list[Any] = [impl.nn.Module, None, None, None]
        self.modules: list[Any] = [impl.nn.Module() for _ in range(MODULES)]
        shapes = ((), (1,), (2,), (2,), (1, 2), (0,))
        self.params: list[Any] = [
            impl.nn.Parameter(lib.full(shapes[i], float(i + 1)), requires_grad=i != 4)
            for i in range(PARAMS)
        ]
        self.tensors: list[Any] = [
            lib.full((), 11.0),
            lib.full((2,), 12.0),
            lib.full((1,), 13, dtype=lib.int64),
            impl.nn.Buffer(lib.full((2,), 14.0)),
            impl.nn.Buffer(lib.full((1, 2), 15.0), persistent=False),
            lib.full((1,), 16.0, dtype=lib.float64),
        ]
        self.saved: list[Any] = [None] * SAVED
        self.walks: list[Any] = [None] * WALKS
        self.handles: list[Any] = [None] * HANDLES
        self.blobs: list[Any] = [None] * BLOBS
        self.functions: list[Any] = []  # what pickles refer to by its place

    def __repr__(self) -> str:
        return f"World({self.impl.name})"

    @property
    def slots(self) -> dict[str, list[Any]]:
        kinds = ("modules", "params", "tensors", "saved", "handles", "walks")
        return {kind: getattr(self, kind) for kind in kinds}

    def keep(self, module: Any, slot: int) -> Any:
        """Puts a module that a step made where later steps find it."""
        if isinstance(module, self.impl.nn.Module):
            self.modules[slot] = module
        return module

    def event(self, *what: Any) -> None:
        """Notes what ran, as it looks now."""
        if self.muted:
            return
        if len(self.events) > MOST_EVENTS:
            raise TooMuch
        self.muted = True
        try:
            self.events.append(Observer(self, shallow=True).show(what))
        finally:
            self.muted = False

    def label(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def inside(self, fn: Callable[[], Any]) -> Any:
        """Runs a step inside a hook or an override; its exception is an event and otherwise
        forgotten.
        """
        if self.depth >= DEPTH:
            return None
        self.depth += 1
        self.steps_inside += 1
        try:
            self.event("inside", fn())
        except (RecursionError, TooMuch):
            raise
        except Exception as error:
            kind = AttributeError if isinstance(error, AttributeError) else type(error)
            self.event("inside raised", kind.__name__)
        finally:
            self.depth -= 1
        return None

    def below(self, module: Any) -> Iterator[Any]:
        """``module`` and what is below it, by the registries."""
        todo, seen = [module], set()
        while todo:
            m = todo.pop()
            if id(m) in seen or not isinstance(m, self.impl.nn.Module):
                continue
            seen.add(id(m))
            yield m
            children = self.children(m)
            todo += children.values() if isinstance(children, dict) else ()

    def reaches(self, module: Any, target: Any) -> bool:
        """Whether ``target`` is ``module`` or below it; modules that share a registry count as
        one.
        """
        own = self.children(target)
        return any(
            m is target or (own is not None and self.children(m) is own) for m in self.below(module)
        )

    def parent_at(self, module: Any, path: str) -> Any:
        """The module that holds the last name of a path, by the registries and instance dicts."""
        for name in path.split(".")[:-1]:
            children = self.children(module)
            module = children.get(name) if isinstance(children, dict) else None
            if module is None:
                break
        return module

    def children(self, module: Any) -> Any:
        try:
            return self.impl.nn.Module.__getattribute__(module, "_modules")
        except (AttributeError, TypeError):
            return None

    def global_tables(self) -> list[dict[Any, Any]]:
        return [getattr(self.impl.module, name) for name in GLOBAL_TABLES]

    def close(self) -> None:
        """Takes the process-wide hooks away."""
        for table in self.global_tables():
            table.clear()
        self.impl.module._global_is_full_backward_hook = None
