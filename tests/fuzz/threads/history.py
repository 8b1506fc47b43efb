# SPDX-License-Identifier: BSD-3-Clause
"""What threads did to a cell, and whether some order of these steps gives what they saw.

A cell holds one value at a time, as a register does. A step took effect at some moment between its
begin and its end. Every value is written once, so that what a reader saw tells which write it saw.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

now = time.perf_counter_ns

#: What a cell holds after a deletion, and before the first write.
ABSENT = "absent"


@dataclass
class Span:
    """Of one step: the moment before it, and the one after."""

    begin: int
    end: int


@dataclass
class Cell:
    writes: list[tuple[Span, Hashable]] = field(default_factory=list)
    reads: list[tuple[Span, Hashable]] = field(default_factory=list)

    def wrong_read(self) -> str | None:
        """A read that no order of the steps explains; None where there is not one."""
        by_value = defaultdict(list)
        for span, value in self.writes:
            by_value[value].append(span)
        for read, value in self.reads:
            if value != ABSENT and not by_value[value]:
                return f"{value!r} was read, which nobody wrote"
            if not any(self._is_seen(read, write) for write in by_value[value]):
                return f"{value!r} was read when another value had been written after it"
        return None

    def _is_seen(self, read: Span, write: Span) -> bool:
        """Might a read at this time see that write?"""
        if write.begin > read.end:
            return False
        return not any(
            later.begin > write.end and later.end < read.begin for later, _ in self.writes
        )


@dataclass
class Hook:
    """When a hook was there, for certain and at most."""

    added: Span
    removed: Span | None = None

    def must_run(self, call: Span) -> bool:
        gone = self.removed is not None and self.removed.begin <= call.end
        return self.added.end < call.begin and not gone

    def may_run(self, call: Span) -> bool:
        gone = self.removed is not None and self.removed.end < call.begin
        return self.added.begin <= call.end and not gone


@dataclass
class Log:
    """The steps of one thread. Threads share nothing while they run; the logs are joined after."""

    writes: list[tuple[Hashable, Span, Hashable]] = field(default_factory=list)
    reads: list[tuple[Hashable, Span, Hashable]] = field(default_factory=list)
    hooks: dict[int, Hook] = field(default_factory=dict)
    calls: list[tuple[Span, frozenset[int]]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def findings(logs: list[Log], start: dict[Hashable, Any]) -> list[str]:
    """What is wrong in the logs of threads that began with cells in the state ``start``."""
    cells: dict[Hashable, Cell] = defaultdict(Cell)
    hooks: dict[int, Hook] = {}
    found = [error for log in logs for error in log.errors]
    for log in logs:
        for cell, span, value in log.writes:
            cells[cell].writes.append((span, value))
        for cell, span, value in log.reads:
            cells[cell].reads.append((span, value))
        hooks |= log.hooks
    for name, cell in cells.items():
        cell.writes.append((Span(-1, -1), start.get(name, ABSENT)))
        if wrong := cell.wrong_read():
            found.append(f"{name}: {wrong}")
    for log in logs:
        for span, ran in log.calls:
            missed = [h for h, hook in hooks.items() if hook.must_run(span) and h not in ran]
            odd = [h for h in ran if not hooks[h].may_run(span)]
            if missed or odd:
                found.append(f"a call missed the hooks {missed} and ran {odd}")
    return found
