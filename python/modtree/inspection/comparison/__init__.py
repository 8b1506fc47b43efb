# SPDX-License-Identifier: BSD-3-Clause
"""What differs between two models, state dicts or files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np

from modtree.core import families
from modtree.core.loading.mismatch import KnownShape, Mismatch, Shape
from modtree.core.loading.rename import Rename
from modtree.files.checkpoint.dtypes import BY_NAME
from modtree.files.checkpoint.progress import progress_bar
from modtree.files.checkpoint.reader import takes_rules
from modtree.files.pickled.stand_in import StandIn
from modtree.files.sources.source import is_file
from modtree.inspection.comparison.result import Diff, Unequal
from modtree.inspection.comparison.sides import Facts, NoValues, Side, open_side
from modtree.inspection.comparison.value_change import value_change
from modtree.inspection.load_failures.causes import doubts_of
from modtree.inspection.load_failures.certainty import near_matches
from modtree.inspection.load_failures.key_rules import likely_rules
from modtree.inspection.tree import values_of

__all__ = ["Diff", "compare"]

#: Of a model's keys; the search for likely names takes more than linear time in their lengths.
_LONGEST_KEY = 1000


def _likely_renames(a: Side, b: Side, result: Diff) -> None:
    """Notes by which rule, or by which single pairs, keys of a seem to have become keys of b."""
    only = (*result.only_in_a, *result.only_in_b)
    if not result.only_in_a or not result.only_in_b or max(map(len, only)) > _LONGEST_KEY:
        return
    given: dict[str, Any] = {key: KnownShape(facts.shape) for key, facts in a.tensors.items()}
    own: dict[str, Shape] = {key: facts.shape for key, facts in b.tensors.items()}
    own |= dict.fromkeys(b.others)
    shapes = {
        key: (facts.shape or (), other)
        for key, facts in a.tensors.items()
        if (other := own.get(key)) is not None and facts.shape not in (None, other)
    }
    found = Mismatch(result.only_in_b, result.only_in_a, shapes, {**given, **a.others}, own)
    changed = likely_rules(found)
    rules = {str(old): new for old, new in changed.rules.items()}
    with_rules = f"with rename={rules!r}, " if rules else ""
    result.doubts += [f"{with_rules}{doubt}" for doubt in doubts_of(changed)]
    if changed.is_named:
        result.likely_rename.update(rules)
    if not changed.rules and not result.doubts:
        result.near_keys.update((old, new) for new, old in near_matches(found))


def _note_reasons(a: Side, b: Side, result: Diff) -> None:
    """Of keys that one side lacks because a model does not have a place for them: why."""
    for model, only in ((b.keys, result.only_in_a), (a.keys, result.only_in_b)):
        if model is not None:
            result.reasons.update(
                (key, model.why_not(key)) for key in only if model.has_reason(key)
            )


def _compare_facts(key: str, a: Facts, b: Facts, result: Diff) -> bool:
    """Notes what differs besides the values. True if these can be compared."""
    if a.dtype != b.dtype:
        result.dtypes[key] = Unequal(a.dtype, b.dtype)
    if a.shape != b.shape:
        result.shapes[key] = Unequal(a.shape, b.shape)
    return a.shape == b.shape and a.shape is not None


def _compare_values(key: str, a: Side, b: Side, rtol: float, atol: float, result: Diff) -> None:
    try:
        arrays = a.array(key), b.array(key)
    except NoValues as reason:
        result.not_compared[key] = str(reason)
        return
    result.compared += 1
    change = value_change(*arrays, rtol, atol)
    del arrays
    a.let_go()
    b.let_go()
    if change is not None:
        result.values[key] = change


def _same(a: Any, b: Any, seen: set[tuple[int, int]] | None = None) -> bool:
    """True if two values that are not tensors are the same. Containers are compared part by part,
    each pair of them once.
    """
    if a is b:
        return True
    seen = set() if seen is None else seen
    if (id(a), id(b)) in seen:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        seen.add((id(a), id(b)))
        return a.keys() == b.keys() and all(_same(a[key], b[key], seen) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        seen.add((id(a), id(b)))
        return len(a) == len(b) and all(_same(x, y, seen) for x, y in zip(a, b, strict=True))
    if isinstance(a, StandIn) and isinstance(b, StandIn):
        seen.add((id(a), id(b)))
        return a.kind == b.kind and all(
            _same(getattr(a, part), getattr(b, part), seen)
            for part in ("is_called", "args", "state", "items", "pairs")
        )
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return _same_arrays(a, b) if _is_array(a) or _is_array(b) else bool(a == b)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or families.family_of(value) is not None


def _same_arrays(a: Any, b: Any) -> bool:
    x, y = (v if f is None else values_of(v, f) for v in (a, b) for f in [families.family_of(v)])
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return False
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return bool(np.array_equal(x, y)) if x.dtype.kind in "OSUMm" else value_change(x, y) is None


def _compare_others(a: Side, b: Side, result: Diff) -> None:
    for key in filter(b.others.__contains__, a.others):
        try:
            same = _same(a.others[key], b.others[key])
        except Exception as error:  # __eq__ of the user's objects
            result.not_compared[key] = f"comparing the values failed: {error}"
            continue
        if not same:
            result.others[key] = Unequal(a.others[key], b.others[key])


def compare(
    a: Any,
    b: Any,
    rtol: float,
    atol: float,
    values: bool,
    rename: Rename | None,
    at: str | tuple[str | None, str | None] | None,
    join: Any,
    large_header: bool,
) -> Diff:
    """See modtree.compare."""
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0:
            raise ValueError(f"{name} is a tolerance of 0 or more, got {tolerance!r}")
    for name, given in (("at", at), ("join", join)):
        if given is not None and not (is_file(a) or is_file(b)):
            raise TypeError(f"{name} is for files, and neither side is a path")
    at_a, at_b = at if isinstance(at, tuple) else (at, at)
    of_b = join is not None and is_file(b) and takes_rules(b)
    # A side that is one file already takes none; where both are, the error is that of a.
    of_a = join is not None and is_file(a) and (not of_b or takes_rules(a))
    with (
        closing(open_side(a, "a", at_a, join if of_a else None, large_header)) as side_a,
        closing(open_side(b, "b", at_b, join if of_b else None, large_header)) as side_b,
    ):
        if rename is not None:
            side_a.rename(rename)
        return _compared(side_a, side_b, rtol, atol, values)


def _compared(a: Side, b: Side, rtol: float, atol: float, values: bool) -> Diff:
    keys_of_a, keys_of_b = a.tensors.keys() | a.others.keys(), b.tensors.keys() | b.others.keys()
    in_both = len(keys_of_a & keys_of_b)
    result = Diff(a.name, b.name, len(keys_of_a), len(keys_of_b), in_both)
    result.only_in_a += [k for k in (*a.tensors, *a.others) if k not in keys_of_b]
    result.only_in_b += [k for k in (*b.tensors, *b.others) if k not in keys_of_a]
    result.left_out.update(
        (side, list(found.left_out)) for side, found in (("a", a), ("b", b)) if found.left_out
    )
    _note_reasons(a, b, result)
    _likely_renames(a, b, result)
    total = sum(_size(facts) for key, facts in a.tensors.items() if values and key in b.tensors)
    with progress_bar(total, "Comparing", None) as advance:
        for key, facts in a.tensors.items():
            if key in b.tensors:
                if _compare_facts(key, facts, b.tensors[key], result) and values:
                    _compare_values(key, a, b, rtol, atol, result)
                advance(_size(facts))
            elif key in b.others:
                result.others[key] = Unequal(_tensor_text(facts), b.others[key])
    for key in filter(b.tensors.__contains__, a.others):
        result.others[key] = Unequal(a.others[key], _tensor_text(b.tensors[key]))
    if values:
        _compare_others(a, b, result)
    if a.versions is not None and b.versions is not None:
        for path in filter(b.versions.__contains__, a.versions):
            if a.versions[path] != b.versions[path]:
                result.versions[path] = Unequal(a.versions[path], b.versions[path])
    return result


def _size(facts: Facts) -> int:
    """The bytes of a tensor, where its dtype is one of files."""
    known = BY_NAME.get(facts.dtype)
    return math.prod(facts.shape or ()) * (32 if known is None else known.bits) // 8


def _tensor_text(facts: Facts) -> str:
    return f"a tensor of {facts.dtype} {'' if facts.shape is None else list(facts.shape)}"
