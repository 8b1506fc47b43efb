# SPDX-License-Identifier: BSD-3-Clause
"""Random hooks on nested modules, local and global, that replace, fail, add and remove: modtree and
torch must call the same.

``MODTREE_FUZZ=N`` runs N seeds instead of the default number. Left out is what torch gets wrong
(docs/compat.md): hooks with kwargs removed during a call, and, while a call fails, removals,
additions and global hooks with kwargs.
"""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import pytest
from helpers.implementations import implementation, needs_torch

SEEDS = int(os.environ.get("MODTREE_FUZZ", "400"))
GROUP = 100


class Stop(Exception):
    pass


class Run:
    """One implementation with two nested modules and random hooks; ``events`` records all that
    ran.
    """

    def __init__(self, impl: Any, seed: int) -> None:
        self.impl, self.rng, self.events = impl, random.Random(seed), []
        self.fails = self.rng.random() < 0.4
        self.handles: list[tuple[Any, bool]] = []
        self.made = 0
        events = self.events

        class Inner(impl.nn.Module):
            def forward(self, *args: Any, **kwargs: Any) -> Any:
                events.append(("inner", args, dict(kwargs)))
                return ("inner result", args)

        class Outer(impl.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Inner()

            def forward(self, *args: Any, **kwargs: Any) -> Any:
                events.append(("outer", args, dict(kwargs)))
                return self.inner(*args, **kwargs)

        self.outer = Outer()
        self.names = {self.outer: "outer", self.outer.inner: "inner"}
        for _ in range(self.rng.randrange(1, 7)):
            self.add()

    def show(self, value: Any) -> Any:
        if isinstance(value, self.impl.nn.Module):
            return self.names[value]
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.show, value))
        return dict(value) if isinstance(value, dict) else value

    def add(self, module: Any = None) -> None:
        rng, names = self.rng, self.names
        module = rng.choice(list(names)) if module is None else module
        kind = rng.choice(("pre", "post", "post", "always", "global pre", "global post"))
        kwargs = rng.random() < 0.4 and kind != "global pre"
        if kind.startswith("global") and self.fails:
            kwargs = False
        hook = self.hook(kind, kwargs)
        options: dict[str, Any] = {"with_kwargs": True} if kwargs else {}
        g = self.impl.module
        if kind == "global pre":
            handle = g.register_module_forward_pre_hook(hook)
        elif kind == "global post":
            options["always_call"] = rng.random() < 0.3
            handle = g.register_module_forward_hook(hook, **options)
        else:
            options["prepend"] = rng.random() < 0.3
            if kind == "pre":
                handle = module.register_forward_pre_hook(hook, **options)
            else:
                options["always_call"] = kind == "always"
                handle = module.register_forward_hook(hook, **options)
        self.handles.append((handle, kwargs))

    def hook(self, kind: str, kwargs: bool) -> Any:
        rng = self.rng
        self.made += 1
        label = (kind, self.made, kwargs)
        actions = ("none", "none", "replace", "replace", "odd", "add", "remove", "fail")
        action = rng.choice(actions)
        if action == "fail" and not self.fails or action == "remove" and self.fails:
            action = "none"
        if action == "add" and self.fails and kind in ("always", "global post"):
            action = "none"
        odd = rng.choice((0, False, "", [], {}, (), [1, 2]))

        def run(module: Any, args: Any, *rest: Any) -> Any:
            self.events.append((label, self.names[module], self.show(args), self.show(rest)))
            if action == "add" and self.made < 12:
                self.add(module)
            elif action == "remove":
                plain = [h for h, with_kwargs in self.handles if not with_kwargs]
                if plain:
                    rng.choice(plain).remove()
            elif action == "fail":
                raise Stop(label)
            elif action == "odd":
                return odd
            elif action == "replace" and "pre" in kind:
                new = (*args, self.made) if isinstance(args, tuple) else args
                return (new, {**rest[0], "k": label}) if kwargs else new
            elif action == "replace":
                return ("replaced", label)
            return None

        return run

    def call(self) -> Any:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = self.show(self.outer(1, x=2))
        except Exception as error:
            text = str(error) if isinstance(error, Stop) else ""
            result = (type(error).__name__, text)
        silenced = [str(w.message).partition(" ``")[0] for w in caught]
        return result, silenced, len(self.events)

    def close(self) -> None:
        for handle, _ in self.handles:
            handle.remove()
        self.impl.module._global_forward_hooks_with_kwargs.clear()


def check(kind: str, seed: int) -> Any:
    outcomes = []
    for name in ("torch", kind):
        run = Run(implementation(name), seed)
        try:
            results = [run.call() for _ in range(3)]
            tables = [
                len(getattr(m, table))
                for m in run.names
                for table in (
                    *("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"),
                    *("_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"),
                )
            ]
        finally:
            run.close()
        outcomes.append((run.events, results, tables))
    expected, got = outcomes
    for part, (a, b) in enumerate(zip(expected, got, strict=True)):
        assert a == b, f"{kind}, seed {seed}, {('events', 'results', 'tables')[part]}"
    return expected


@needs_torch
@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_same_as_torch(kind, first):
    for seed in range(first, min(first + GROUP, SEEDS)):
        check(kind, seed)


@needs_torch
def test_runs_are_varied():
    """The generator itself: torch agrees with itself, calls succeed and fail, and failures are
    silenced.
    """
    kinds = set()
    for seed in range(100):
        _, results, _ = check("torch", seed)
        for result, silenced, events in results:
            kinds.add(result[0] if isinstance(result, tuple) and result else "other")
            kinds.update(silenced)
            assert events
    assert {"Stop", "inner result", "replaced", "RuntimeError"} <= kinds
    assert any("forward hook with" in k for k in kinds)
