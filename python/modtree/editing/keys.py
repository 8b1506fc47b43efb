# SPDX-License-Identifier: BSD-3-Clause
"""What becomes of the keys of a state dict where a tree was changed, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from modtree.editing.walking import TRANSIENT, below, joined, registry


class KeyRules(Protocol):
    """The keys of one change."""

    def forward(self, key: str) -> str | None:
        """The key after the change; None if its entry is gone."""

    def backward(self, key: str) -> str | None:
        """The key before the change; None if its entry is new."""


def path_below(module: Any, wanted: Any) -> str | None:
    """The path from a module to another one; None if that is not below it."""
    return next((path for path, at in below([("", module)]) if at is wanted), None)


def _entries(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The keys of the state dict of modules, with the tensors; None for extra state."""
    found: dict[str, Any] = {}
    for path, at in members:
        left_out = getattr(at, TRANSIENT, ())
        for name, tensor in registry(at, "_parameters").items():
            if tensor is not None:
                found[joined(path, name)] = tensor
        for name, tensor in registry(at, "_buffers").items():
            if tensor is not None and name not in left_out:
                found[joined(path, name)] = tensor
        extra = getattr(type(at), "get_extra_state", None)
        if extra is not None and extra.__qualname__ != "Module.get_extra_state":
            found[joined(path, "_extra_state")] = None
    return found


class _Below:
    """The keys behind a path at which one module took the place of another."""

    def __init__(self, before: Any, after: Any) -> None:
        there, here = list(below([("", before)])), list(below([("", after)]))
        self.inner = next((path for path, at in here if at is before), None)
        self.outer = next((path for path, at in there if at is after), None)
        old, new = _entries(there), _entries(here)
        self.brings_or_takes = {*map(id, old.values())} != {*map(id, new.values())}
        self.there: dict[str, str | None] = {}
        names = {id(tensor): key for key, tensor in reversed(new.items()) if tensor is not None}
        for key, tensor in old.items():
            kept = key in new and (new[key] is tensor or id(tensor) not in names)
            self.there[key] = key if kept else names.get(id(tensor))
        self.back: dict[str, str | None] = dict.fromkeys(new)
        self.back.update({to: key for key, to in self.there.items() if to is not None})

    def forward(self, key: str) -> str | None:
        if self.inner is not None:
            return joined(self.inner, key)
        if self.outer is not None:
            return _cut(key, self.outer)
        return self.there.get(key, key)

    def backward(self, key: str) -> str | None:
        if self.inner is not None:
            return _cut(key, self.inner)
        if self.outer is not None:
            return joined(self.outer, key)
        return self.back.get(key, key)


def _cut(key: str, prefix: str) -> str | None:
    if not key:  # the module itself
        return key
    return key[len(prefix) + 1 :] if key.startswith(prefix + ".") else None


class ReplacedKeys:
    """The keys where modules were replaced: those below other replaced ones first."""

    def __init__(self) -> None:
        self._below: dict[str, _Below] = {}

    def add(self, path: str, before: Any, after: Any) -> bool:
        """Notes a replacement; True if a parameter or buffer came or went."""
        rules = _Below(before, after)
        if rules.inner is not None or rules.outer is not None or rules.there or rules.back:
            self._below[path] = rules
        return rules.brings_or_takes

    def forward(self, key: str) -> str | None:
        cut = key.rfind(".")
        while cut >= 0:
            rules = self._below.get(key[:cut])
            if rules is not None:
                rest = rules.forward(key[cut + 1 :])
                if rest is None:
                    return None
                key = f"{key[:cut]}.{rest}"
            cut = key.rfind(".", 0, cut)
        return key

    def backward(self, key: str) -> str | None:
        cut = key.find(".")
        while cut >= 0:
            rules = self._below.get(key[:cut])
            if rules is not None:
                rest = rules.backward(key[cut + 1 :])
                if rest is None:
                    return None
                key = f"{key[:cut]}.{rest}"
            cut = key.find(".", cut + 1)
        return key


class MovedKeys:
    """The keys where modules, parameters and buffers came, went or have other names.

    Args:
        before: Each path at which something was, with what was there.
        after: The same after the change.
    """

    def __init__(self, before: Sequence[tuple[str, Any]], after: Sequence[tuple[str, Any]]) -> None:
        now, was = dict(after), dict(before)
        came = [(path, value) for path, value in after if was.get(path) is not value]
        places: dict[int, list[str]] = {}
        for path, value in reversed(came):
            places.setdefault(id(value), []).append(path)
        self._there: dict[str, str | None] = {}
        self._back: dict[str, str | None] = {path: None for path, _ in came}
        for path, value in before:
            if now.get(path) is not value:
                rest = places.get(id(value))
                target = self._there[path] = rest.pop() if rest else None
                if target is not None:
                    self._back[target] = path

    def forward(self, key: str) -> str | None:
        return _moved(key, self._there)

    def backward(self, key: str) -> str | None:
        return _moved(key, self._back)


class AliasedKeys:
    """The keys of a change where modules hang at several places: what became of a key under the
    first path of a module became of those under the others too.

    Args:
        rules: What became of keys under first paths.
        aliases: The further paths, and the first one of each.
    """

    def __init__(self, rules: KeyRules, aliases: Mapping[str, str]) -> None:
        self._rules, self._aliases = rules, aliases

    def forward(self, key: str) -> str | None:
        return self._follow(key, self._rules.forward)

    def backward(self, key: str) -> str | None:
        return self._follow(key, self._rules.backward)

    def _follow(self, key: str, follow: Callable[[str], str | None]) -> str | None:
        new = follow(key)
        cut = key.rfind(".")
        while new == key and cut >= 0:
            first = self._aliases.get(key[:cut])
            if first is not None:
                new = self._follow(first + key[cut:], follow)
                if new is not None and new.startswith(f"{first}."):
                    new = key[:cut] + new[len(first) :]
            cut = key.rfind(".", 0, cut)
        return new


def _moved(key: str, paths: Mapping[str, str | None]) -> str | None:
    """The key with the longest of the paths at its beginning replaced."""
    cut = len(key)
    while cut >= 0:
        path = key[:cut]
        if path in paths:
            target = paths[path]
            return None if target is None else target + key[cut:]
        cut = key.rfind(".", 0, cut)
    return key
