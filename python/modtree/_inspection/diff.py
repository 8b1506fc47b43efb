# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.diff``: what differs between two models, state dicts or files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from modtree import families
from modtree._inspection.diff_result import Diff, Unequal
from modtree._inspection.sides import Facts, NoValues, Side, can_be_side, open_side
from modtree._inspection.value_change import value_change
from modtree._module.loading.causes import Mismatch, likely_rules, near_matches
from modtree._module.loading.rename import Rename
from modtree._module.module import Module
from modtree._ops import functions
from modtree._ops.overridable import overridable
from modtree._tensor.tensor import Tensor

__all__ = ["compare", "diff"]

Comparable: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Module

#: Of a model's keys; the search for likely names takes more than linear time in their lengths.
_LONGEST_KEY = 1000


class _Shape(NamedTuple):
    shape: tuple[int, ...]


def _likely_renames(a: Side, b: Side, result: Diff) -> None:
    """Notes by which rule, or by which single pairs, keys of a seem to have become keys of b."""
    only = (*result.only_in_a, *result.only_in_b)
    if not result.only_in_a or not result.only_in_b or max(map(len, only)) > _LONGEST_KEY:
        return
    shapes = {
        key: _Shape(a.tensors[key].shape or ()) if key in a.tensors else a.others[key]
        for key in result.only_in_a
    }

    def shape_in_b(key: str) -> tuple[int, ...] | None:
        return b.tensors[key].shape if key in b.tensors else None

    found = Mismatch(result.only_in_b, result.only_in_a, {}, shapes, shape_in_b)
    result.likely_rename.update(likely_rules(found))
    if not result.likely_rename:
        result.near_keys.update((old, new) for new, old in near_matches(found))


def _compare_facts(key: str, a: Facts, b: Facts, result: Diff) -> bool:
    """Notes what differs besides the values. Can these be compared?"""
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
    if change is not None:
        result.values[key] = change


def _same(a: Any, b: Any) -> bool:
    """Are two values that are no tensors the same? Containers are compared part by part."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return _same_arrays(a, b) if _is_array(a) or _is_array(b) else bool(a == b)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or families.family_of(value) is not None


def _same_arrays(a: Any, b: Any) -> bool:
    x, y = (v if f is None else f.to_numpy(v) for v in (a, b) for f in [families.family_of(v)])
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
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    values: bool = True,
    rename: Rename | None = None,
) -> Diff:
    """:func:`diff` of what is no tensor."""
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0:
            raise ValueError(f"{name} is a tolerance of 0 or more, got {tolerance!r}")
    with closing(open_side(a, "a")) as side_a, closing(open_side(b, "b")) as side_b:
        if rename is not None:
            side_a.rename(rename)
        return _compared(side_a, side_b, rtol, atol, values)


def _compared(a: Side, b: Side, rtol: float, atol: float, values: bool) -> Diff:
    keys_of_a, keys_of_b = a.tensors.keys() | a.others.keys(), b.tensors.keys() | b.others.keys()
    in_both = len(keys_of_a & keys_of_b)
    result = Diff(a.name, b.name, len(keys_of_a), len(keys_of_b), in_both)
    result.only_in_a += [k for k in (*a.tensors, *a.others) if k not in keys_of_b]
    result.only_in_b += [k for k in (*b.tensors, *b.others) if k not in keys_of_a]
    _likely_renames(a, b, result)
    for key, facts in a.tensors.items():
        if key in b.tensors:
            if _compare_facts(key, facts, b.tensors[key], result) and values:
                _compare_values(key, a, b, rtol, atol, result)
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


def _tensor_text(facts: Facts) -> str:
    return f"a tensor of {facts.dtype} {'' if facts.shape is None else list(facts.shape)}"


@overload
def diff(
    a: Comparable,
    b: Comparable,
    /,
    *,
    rtol: float = ...,
    atol: float = ...,
    values: bool = ...,
    rename: Rename | None = ...,
) -> Diff: ...
@overload
def diff(
    input: Tensor,
    n: int = ...,
    dim: int = ...,
    prepend: Tensor | None = ...,
    append: Tensor | None = ...,
    *,
    out: Tensor | None = ...,
) -> Tensor: ...
def diff(
    input: Any,
    n: Any = 1,
    dim: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    out: Any = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    values: bool = True,
    rename: Any = None,
) -> Any:
    """``diff(a, b)`` compares two models, state dicts or checkpoints; of a tensor, differences of
    neighbours.

    Models, state dicts and paths go together in any combination. Files are read tensor by tensor.

    >>> import copy
    >>> before = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> after = copy.deepcopy(before)
    >>> after[0].bias.data[1] += 1
    >>> print(mt.diff(before, after))
    a: Sequential a, 2 entries
    b: Sequential b, 2 entries
    values differ (1 of 2 entries):
      0.bias: 1 of 3 elements, by at most 1 (relative ...)

    Args:
        input: ``a``: a model, a state dict, the path of a checkpoint, or a tensor.
        n: ``b``, the same; of a tensor: how often differences are taken.
        dim: Of a tensor: along which dimension.
        prepend: Of a tensor: what is joined in front of it first.
        append: Of a tensor: what is joined behind it first.
        out: Of a tensor: where the result is written.
        rtol: Elements are the same when ``|a - b| <= atol + rtol * |b|``; NaN is the same as NaN.
        atol: See ``rtol``.
        values: Compare values, not only keys, shapes and dtypes.
        rename: Rules that the keys of ``a`` go through first, as ``load_state_dict`` has them:
            ``{"module.": ""}``.

    Returns:
        A :class:`Diff`, true where something differs; or a tensor.

    Raises:
        TypeError: One of the two cannot be compared.
        OSError: A file cannot be opened.
        CheckpointError: A file is damaged, or no checkpoint.
    """
    if can_be_side(input):
        if type(n) is int and n == 1:
            raise TypeError("diff compares two models, state dicts or paths: b is missing")
        if dim != -1 or not (prepend is append is out is None):
            raise TypeError("dim, prepend, append and out are for tensors, not for comparisons")
        return compare(input, n, rtol=rtol, atol=atol, values=values, rename=rename)
    if rtol or atol or not values or rename is not None:
        raise TypeError(
            "rtol, atol, values and rename are for models, state dicts and paths, and diff got "
            f"{type(input).__name__} to take differences of"
        )
    return functions.diff(input, n, dim, prepend, append, out=out)


diff = overridable(diff)
