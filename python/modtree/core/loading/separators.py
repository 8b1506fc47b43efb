# SPDX-License-Identifier: BSD-3-Clause
"""Keys that differ in what separates their parts: ``norm.1`` for ``norm1``, ``_`` or ``/`` for a
dot.
"""

from __future__ import annotations

import re

from modtree.core.loading.mismatch import Mismatch, mismatch_of

__all__ = ["flat_keys", "separator_rules"]

_LONGEST_READ = 300  # letters of a key that is read
_MOST_KEYS = 20_000
_MOST_STEMS = 12  # words of one rule
#: A word and the number behind it, at the end of a part of a key.
_NUMBERED = re.compile(r"\b([^\W\d](?:\w*?[^\W\d_])?)([._]?)([0-9]+)(?=\.|$)")

_Rules = list[tuple[re.Pattern[str], str, str]]


def separator_rules(found: Mismatch) -> _Rules:
    """Rules by which all keys become those of the model, with what they are about."""
    if not found.missing or not found.unexpected or len(found.own) > _MOST_KEYS:
        return []
    for rules in (_slashes(found), _numbers(found)):
        if rules and _is_whole(found, rules):
            return rules
    return []


def flat_keys(found: Mismatch) -> str | None:
    """What stands for the dots, where the keys without them are those of the model."""
    if not found.missing or not found.unexpected or len(found.own) > _MOST_KEYS:
        return None
    for mark in ("_", "/", "-", ":", ""):
        names = {key.replace(".", mark): key for key in found.own}
        if len(names) < len(found.own) or any(key not in names for key in found.state_dict):
            continue
        given = {names[key]: value for key, value in found.state_dict.items()}
        if mismatch_of(given, found).is_empty:
            return mark
    return None


def _is_whole(found: Mismatch, rules: _Rules) -> bool:
    """Do the rules give each key that was not expected a place, and the model all that it lacks?"""
    given = {}
    for key, value in found.state_dict.items():
        new = key
        if type(key) is str:
            for pattern, by, _ in rules:
                new = pattern.sub(by, new)
        if new in given or (new != key and key in found.own):
            return False
        given[new] = value
    return mismatch_of(given, found).is_empty


def _slashes(found: Mismatch) -> _Rules:
    if any("/" in key for key in found.own) or not any("/" in key for key in found.unexpected):
        return []
    return [(re.compile("/"), ".", "the keys of the state dict have '/' for '.'")]


def _numbers(found: Mismatch) -> _Rules:
    """Numbers that are parts of their own on one side alone, for the words before them."""
    own: dict[str, str] = {}
    for key in found.missing:
        if len(key) > _LONGEST_READ or own.setdefault(_joined(key), key) != key:
            return []
    words: dict[tuple[str, str], dict[str, None]] = {}
    for key in found.unexpected:
        partner = own.get(_joined(key)) if len(key) <= _LONGEST_READ else None
        if partner is None:
            return []
        pairs = zip(_NUMBERED.findall(key), _NUMBERED.findall(partner), strict=False)
        for (word, mark, _), (_, new_mark, _) in pairs:
            if mark != new_mark:
                words.setdefault((mark, new_mark), {})[word] = None
    rules: _Rules = []
    for (mark, new_mark), stems in words.items():
        names = "|".join(map(re.escape, stems))
        first = next(iter(stems))
        rules.append(
            (
                re.compile(rf"\b({names}){re.escape(mark)}([0-9]+)(?=\.|$)"),
                rf"\1{new_mark}\2",
                f"numbers behind words: '{first}{mark}1' is '{first}{new_mark}1' now",
            )
        )
    return rules if sum(map(len, words.values())) <= _MOST_STEMS else []


def _joined(key: str) -> str:
    return _NUMBERED.sub(r"\1\3", key)
