# SPDX-License-Identifier: BSD-3-Clause
"""Random lines of operations on torch and on modtree, and a report of what differs."""

from __future__ import annotations

import fnmatch
import random
import sys
import time
from collections import Counter
from typing import Any, NamedTuple

import torch

import modtree

from . import layers  # noqa: F401  Importing it enters its rules.
from .allowed import allowed_by, is_avoided
from .arguments import NUMBERS, Argument, draw_argument
from .catalog import Operation, operations
from .compare import Outcome, Unknown, difference, run
from .groups import group_of
from .shapes import rule_of
from .values import Draw, TensorValue, tensors_of

#: What LAPACK computes: it may stop the process, or never end, for NaN and infinities.
LAPACK = frozenset("cholesky det inverse matrix_exp matrix_power norm qr slogdet svd".split())


class Line(NamedTuple):
    """One call."""

    operation: Operation
    values: list[Any]
    keywords: dict[str, Any]
    misfit: bool = False  # an argument is of another kind than documented

    def __str__(self) -> str:
        parts = [repr(v) for v in self.values]
        parts += [f"{k}={v!r}" for k, v in self.keywords.items()]
        return f"{self.operation.name}({', '.join(parts)})"

    @property
    def tensors(self) -> list[TensorValue]:
        return tensors_of([*self.values, *self.keywords.values()])


class Failure(NamedTuple):
    line: Line
    word: str
    theirs: Outcome
    ours: Outcome

    @property
    def signature(self) -> str:
        def short(outcome: Outcome) -> str:
            error = outcome.error or outcome.backward_error
            return "" if error is None else f"{error[0].__name__} {error[1][:40]!r}"

        return f"{self.word} {short(self.theirs)} / {short(self.ours)}"

    @property
    def size(self) -> int:
        return len(str(self.line))

    def __str__(self) -> str:
        return f"{self.line}\n  {self.word}\n  torch {self.theirs}\n  ours  {self.ours}"[:3000]


def draw_line(operation: Operation, rng: random.Random) -> Line:
    draw = Draw.start(rng, operation.name)
    form = rng.choice(operation.forms)
    rule = rule_of(operation.name) if rng.random() < 0.875 else None
    if operation.name.startswith("linalg.") or operation.name.rpartition(".")[2] in LAPACK:
        draw.odd = 0.0
    fitting = rule(draw) if rule is not None else {}
    values: list[Any] = []
    keywords: dict[str, Any] = {}
    by_name = odd_one = False
    for argument in form:
        if argument.name in fitting:
            value = fitting[argument.name]
        elif argument.optional and rng.random() < 0.45:
            by_name = True
            continue
        else:
            value = draw_argument(draw, argument)
        if rng.random() < 0.03:
            value, odd_one = misfit(rng, argument, value), True
        odd_one = odd_one or (argument.kind.startswith("real") and isinstance(value, complex))
        draw.given[argument.name] = value
        if argument.keyword or by_name:
            keywords[argument.name] = value
        else:
            values.append(value)
    return Line(operation, values, keywords, odd_one)


def misfit(rng: random.Random, argument: Argument, value: Any) -> Any:
    """A value of another kind: a number for a tensor, a tensor or a float for a number, None."""
    if isinstance(value, TensorValue):
        return rng.choice((*NUMBERS, None)) if rng.random() < 0.7 else [value]
    if isinstance(value, (bool, int, float)):
        number = Draw(rng, odd=0.0).tensor((), rng.choice(("float32", "int64", "bool")))
        return rng.choice((None, 1.5, 1.0, True, 2, "a", number, 1j))
    return rng.choice((None, value, 1))


def try_line(line: Line) -> Failure | None:
    operation = line.operation
    if is_avoided(line):
        return None
    try:
        outcomes = [
            run(operation.function(mt), mt, line.values, line.keywords, operation.inplace)
            for mt in (torch, modtree)
        ]
    except Unknown:
        return None
    word = difference(*outcomes)
    return None if word is None else Failure(line, word, *outcomes)


def lines_of(operation: Operation, seed: int, rounds: int) -> Any:
    """The lines of a seed."""
    for i in range(rounds):
        yield draw_line(operation, random.Random(f"{operation.name} {seed} {i}"))


class Report(NamedTuple):
    """What lines of one operation came to: the shortest line of each difference."""

    failures: dict[str, Failure]
    counts: Counter[str]
    allowed: Counter[str]
    returned: int  # lines that torch did not refuse


def check(operation: Operation, seed: int, rounds: int) -> Report:
    report, returned = Report({}, Counter(), Counter(), 0), 0
    for line in lines_of(operation, seed, rounds):
        failure = try_line(line)
        if failure is None:
            continue
        row = allowed_by(failure)
        if row is not None:
            report.allowed[row] += 1
            continue
        key = failure.signature
        report.counts[key] += 1
        known = report.failures.get(key)
        if known is None or failure.size < known.size:
            report.failures[key] = failure
    return report._replace(returned=returned)


def selected(patterns: list[str]) -> list[Operation]:
    found = operations()
    if not patterns:
        return list(found.values())

    def fits(name: str, pattern: str) -> bool:
        if pattern.startswith("@"):
            return pattern[1:] == group_of(name)
        return fnmatch.fnmatchcase(name, pattern)

    chosen = [o for n, o in found.items() if any(fits(n, p) for p in patterns)]
    if not chosen:
        raise SystemExit(f"no operation is called {' or '.join(patterns)}")
    return chosen


def report(patterns: list[str], seed: int, rounds: int, most: int = 20) -> int:
    """Prints what differs; the number of differences."""
    began, lines, differences = time.monotonic(), 0, 0
    allowed: Counter[str] = Counter()
    for operation in selected(patterns):
        found = check(operation, seed, rounds)
        lines += rounds
        allowed += found.allowed
        differences += len(found.failures)
        for key, count in found.counts.most_common(most):
            print(f"\n{count} x {found.failures[key]}", flush=True)
        if found.counts:
            print(f"== {operation.name}: {len(found.counts)} kinds in {rounds}", flush=True)
    print(f"\n{lines} lines, {differences} differences, {time.monotonic() - began:.0f} s")
    for row, count in allowed.most_common():
        print(f"  allowed {count:6} {row}")
    sys.stdout.flush()
    return differences
