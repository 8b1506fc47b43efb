# SPDX-License-Identifier: BSD-3-Clause
"""Makes a program that differs as short as it gets: steps are left out while it still differs in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from .program import Program, Step


def minimise(program: Program, differs: Callable[[Program], bool], budget: int = 400) -> Program:
    """The shortest program found by leaving out ever smaller runs of steps. ``differs`` runs a
    program.
    """
    steps = list(program.steps)
    size = max(len(steps) // 2, 1)
    while size:
        start = len(steps)
        while start > 0 and budget > 0:
            trial = steps[: max(start - size, 0)] + steps[start:]
            budget -= 1
            if differs(program._replace(steps=tuple(trial))):
                steps = trial
            start -= size
        size = size // 2 if size > 1 else 0
    return plain(program._replace(steps=tuple(steps)), differs)


def plain(program: Program, differs: Callable[[Program], bool]) -> Program:
    """The same steps with fewer options and shorter lists, where that is enough."""
    for i, step in enumerate(program.steps):
        for name, value in step.arguments.items():
            for smaller in smaller_than(value):
                steps = list(program.steps)
                steps[i] = Step(step.name, {**steps[i].arguments, name: smaller})
                trial = program._replace(steps=tuple(steps))
                if differs(trial):
                    program = trial
                    break
    return program


def smaller_than(value: object) -> list[object]:
    if isinstance(value, dict) and value:
        return [{}, *({k: v} for k, v in value.items() if len(value) > 1)]
    if isinstance(value, list) and value:
        return [[], *([v] for v in value if len(value) > 1)]
    return []
