# SPDX-License-Identifier: BSD-3-Clause
"""Lines with two faults, for which each library may name either.

That a line has two is found by experiment: one argument at a time is replaced by others. If one
library stays with its error while the other comes to the same type of error, both call that a
fault, and what the other named at first was another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import modtree

from ..compare import Outcome, Unknown, run, same_error
from ..values import Named, TensorValue
from .avoided import is_avoided

#: Arguments that repair the usual faults.
NUMBERS = (0, 1, -1, 2, 3, 0.5, None)
DTYPES = ("float32", "float64", "int64", "bool", "complex64")


def has_two_faults(failure: Any) -> bool:
    """True if either names the other's error too, once one argument is another."""
    theirs, ours = failure.theirs.error, failure.ours.error
    if theirs is None or ours is None:
        return False
    for line in repaired(failure.line):
        if is_avoided(line):
            continue
        outcomes = [outcome_of(line, mt) for mt in (torch, modtree)]
        if None in outcomes:
            continue
        a, b = (outcome.error for outcome in outcomes)
        if a is not None and same_fault(b, ours) and same_error(a[0], ours[0]):
            return True
        if b is not None and same_fault(a, theirs) and same_error(theirs[0], b[0]):
            return True
    return False


def outcome_of(line: Any, mt: Any) -> Outcome | None:
    operation = line.operation
    try:
        given = (line.values, line.keywords, operation.inplace)
        found: Outcome = run(operation.function(mt), mt, *given)
    except Unknown:
        return None
    return found


def same_fault(a: tuple[type, str] | None, b: tuple[type, str]) -> bool:
    """The same message but for numbers and dtypes."""
    return a is not None and a[0] is b[0] and words_of(a[1]) == words_of(b[1])


def words_of(message: str) -> str:
    return " ".join(
        re.findall(r"[a-z_]{4,}", re.sub(r"\w*(float|int|bool|complex)\w*", "", message))
    )


def repaired(line: Any) -> Iterator[Any]:
    """The line with one argument replaced or left out."""
    for i, value in enumerate(line.values):
        for other in replacements(value, line):
            yield line._replace(values=[*line.values[:i], other, *line.values[i + 1 :]])
    for name, value in line.keywords.items():
        rest = {k: v for k, v in line.keywords.items() if k != name}
        yield line._replace(keywords=rest)
        for other in replacements(value, line):
            yield line._replace(keywords={**rest, name: other})


def replacements(value: Any, line: Any) -> Iterator[Any]:
    if isinstance(value, TensorValue):
        yield from other_tensors(value, line)
        yield None
    elif isinstance(value, (bool, int, float, complex)):
        yield from (n for n in NUMBERS if n != value or type(n) is not type(value))
    elif isinstance(value, (list, tuple)):
        yield from other_sequences(value, line)
        yield None
    elif isinstance(value, str):
        yield from ("mean", "sum", "nearest", "bilinear", "constant", "add", None)
    elif isinstance(value, Named):
        yield from (Named(dtype) for dtype in DTYPES)
    elif value is None:
        yield from (0, 1)


def other_sequences(value: Any, line: Any) -> Iterator[Any]:
    kind = type(value)
    for n in range(5):
        yield kind([1] * n)
    for i, item in enumerate(value):
        for other in replacements(item, line) if not isinstance(item, (list, tuple)) else ():
            yield kind([*value[:i], other, *value[i + 1 :]])


def other_tensors(value: TensorValue, line: Any) -> Iterator[TensorValue]:
    """Of another dtype, shape or place on the graph; of small numbers."""
    array, others = value.array, [t for t in line.tensors if t is not value]
    shapes = {tuple(n or 1 for n in array.shape), *(t.shape for t in others)}
    shapes |= {(1,) * n for n in range(6)} | {(2, 3, 4, 5)[:n] for n in range(1, 5)}
    yield TensorValue(array, False)
    with np.errstate(all="ignore"):
        for dtype in dict.fromkeys((*DTYPES, *(t.dtype for t in others))):
            numbers = np.nan_to_num(array.real if array.dtype.kind == "c" else array)
            yield TensorValue(np.asarray(np.clip(numbers, 0, 1), dtype))
    for shape in sorted(shapes):
        yield TensorValue(np.ones(shape, array.dtype))
