# SPDX-License-Identifier: BSD-3-Clause
"""Rules that rename the keys of a state dict."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from modtree.core.state_dict import StateDict

_Rule: TypeAlias = tuple[str | re.Pattern[str], str]
_Function: TypeAlias = Callable[[str], str | None]
Rename: TypeAlias = _Function | Mapping[Any, str] | Iterable[_Rule]


def _apply_rules(rules: list[_Rule]) -> _Function:
    def renamed(key: str) -> str:
        for old, new in rules:
            if isinstance(old, re.Pattern):
                key = old.sub(new, key)
            elif key.startswith(old):
                key = new + key[len(old) :]
        return key

    return renamed


def rename_function(rename: Rename) -> _Function:
    """One function of a key for each form that a rule of renaming may have.

    Args:
        rename: a function from the old key to the new one (None: leave the entry out); or a
            mapping, or pairs, of what is replaced and by what: a str is replaced where a key begins
            with it, a compiled pattern wherever it matches, as ``re.sub`` does. Rules are applied
            one after the other.

    Raises:
        TypeError: for anything else.
    """
    if callable(rename):
        return rename
    if isinstance(rename, str):
        raise TypeError(
            f"rename takes a mapping such as {{{rename!r}: ''}}, pairs or a function, got the str "
            f"{rename!r}"
        )
    pairs = rename.items() if isinstance(rename, Mapping) else rename
    rules: list[_Rule] = []
    try:
        for old, new in pairs:
            rules.append((old, new))
    except (TypeError, ValueError):
        raise TypeError(
            "rename takes a mapping of prefixes or patterns, pairs of them, or a function, got "
            f"{rename!r}"
        ) from None
    for old, new in rules:
        if not isinstance(old, (str, re.Pattern)) or not isinstance(new, str):
            raise TypeError(
                "a rule of rename replaces a str or a compiled pattern by a str, got "
                f"{old!r}: {new!r}"
            )
    return _apply_rules(rules)


def _parent(key: str) -> str:
    return key.rpartition(".")[0]


def _renamed_metadata(
    metadata: Mapping[str, Any], keys: Mapping[str, str], function: _Function
) -> OrderedDict[str, Any]:
    """The versions of modules, under the paths that the renamed keys give them."""
    paths: dict[str, str] = {}
    for old, new in keys.items():
        if old.rpartition(".")[2] == new.rpartition(".")[2]:
            paths.setdefault(_parent(old), _parent(new))
    renamed: OrderedDict[str, Any] = OrderedDict()
    for path, entry in metadata.items():
        if path not in paths and path:
            # A module without entries of its own: what becomes of the keys below it.
            below = function(path + ".")
            paths[path] = path if below is None else below.removesuffix(".")
        new = paths.get(path, path)
        if new not in renamed or path == new:
            renamed[new] = entry
    return renamed


def rename_keys(state_dict: Mapping[str, Any], rename: Rename) -> StateDict:
    """A state dict with the same values under other keys, its versions included.

    Args:
        rename: see :func:`rename_function`.

    Raises:
        TypeError: ``rename`` is none of these, or gave a key that is not a str.
        ValueError: two entries get the same key.
    """
    function = rename_function(rename)
    renamed = StateDict()
    keys: dict[str, str] = {}
    owner: dict[str, str] = {}
    for key, value in state_dict.items():
        new = function(key)
        if new is None:
            continue
        if not isinstance(new, str):
            raise TypeError(f"rename gave {new!r} for the key {key!r}: expected a str or None")
        if new in owner:
            raise ValueError(f"rename gives {owner[new]!r} and {key!r} the same key {new!r}")
        owner[new] = key
        keys[key] = new
        renamed[new] = value
    metadata = getattr(state_dict, "_metadata", None)
    if isinstance(metadata, Mapping):
        renamed._metadata = _renamed_metadata(metadata, keys, function)
    return renamed
