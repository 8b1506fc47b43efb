# SPDX-License-Identifier: BSD-3-Clause
"""Runs programs on torch and on modtree, and reports the first difference of each.

``python -m fuzz.differential --rounds 1000 --seed 0`` (``tools/fuzz_differential`` sets the paths)
runs that many programs and prints each kind of difference once, with the shortest program that
shows it. With ``--operations`` it runs that many lines of each operation instead
(``fuzz/operations``); names may be patterns, such as ``'linalg.*'``. With ``--mixins`` it runs
programs of classes before and behind Module (``fuzz/mixins.py``), with ``--dropin`` under that.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from typing import Any, NamedTuple

# Importing them enters their operations.
from . import classes, containers, copies, hooks, mixins, rare, state, tree, whole  # noqa: F401
from .allowed import SEEN, allowed, avoided
from .minimise import minimise
from .operations import run as operations
from .outcomes import difference, is_broken, run
from .program import Program, Step, choose_weights, draw_step
from .world import DEPTH, LOOKS, TooMuch, World

KINDS = ("modtree", "modtree-torch")


class Failure(NamedTuple):
    program: Program
    label: str
    theirs: Any
    ours: Any

    @property
    def signature(self) -> tuple[str, str]:
        """What is taken for one and the same difference."""
        label = self.label.partition("[")[0]
        if label.startswith("exception"):
            label += f" {short(self.theirs)} / {short(self.ours)}"
        return self.program.steps[-1].name, label

    def __str__(self) -> str:
        return (
            f"{self.program}\n{self.label} of the last step\n  torch "
            f"{repr(self.theirs)[:1500]}\n  ours  {repr(self.ours)[:1500]}"
        )


def short(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], type):
        return f"{value[0].__name__} {value[1][:30]!r}"
    return "returned"


class Pair:
    """The two worlds of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.worlds = [World(k, program) for k in ("torch", program.kind)]
        self.done: list[Step] = []
        self.ended = False

    def step(self, step: Step) -> Failure | None:
        """Runs a step on both; ``ended`` says that no other may follow."""
        theirs = self.worlds[0]
        if self._avoided(step):
            return None
        self.done.append(step)
        try:
            outcomes = [run(world, step) for world in self.worlds]
        except TooMuch:
            self.ended = True
            return None
        found = difference(*outcomes)
        if found is None:
            self.ended = (
                is_broken(outcomes[0]) or (outcomes[0].raised or (None,))[0] is RecursionError
            )
            return None
        self.ended = True
        if allowed(theirs, step, found[0], *outcomes):
            return None
        return Failure(self.program._replace(steps=tuple(self.done)), *found)

    def _avoided(self, step: Step) -> bool:
        with quiet(self.worlds[0]):
            return avoided(self.worlds[0], step)

    def draw(self, rng: random.Random, weights: dict[str, int]) -> Step:
        with quiet(self.worlds[0]):
            while True:
                try:
                    return draw_step(rng, self.worlds[0], weights)
                except Exception:  # an override that fails while a name is looked for
                    continue

    def close(self) -> None:
        for world in self.worlds:
            world.close()


class quiet:  # noqa: N801
    """What runs in the world's overrides leaves no trace."""

    def __init__(self, world: World) -> None:
        self.world, self.caught = world, warnings.catch_warnings()

    def __enter__(self) -> None:
        self.caught.__enter__()
        warnings.simplefilter("ignore")
        self.world.muted, self.before = True, self.world.depth
        self.world.depth = DEPTH

    def __exit__(self, *_: Any) -> None:
        self.world.muted, self.world.depth = False, self.before
        self.caught.__exit__(*_)


def run_random(kind: str, seed: int, count: int) -> tuple[Failure | None, list[Step]]:
    """The program of this seed: 12 steps of growth, ``count`` drawn ones, a close look at each
    module.
    """
    rng = random.Random(f"{kind} {seed}")
    program = Program(kind, seed, rng.choice(LOOKS), rng.random() < 0.1, ())
    weights, growth = choose_weights(rng), growing()
    pair = Pair(program)
    try:
        for i in range(count + 12):
            step = pair.draw(rng, growth if i < 12 else weights)
            failure = pair.step(step)
            if failure or pair.ended:
                return failure, pair.done
        for step in closing(len(pair.worlds[0].modules)):
            failure = pair.step(step)
            if failure or pair.ended:
                return failure, pair.done
    finally:
        pair.close()
    return None, pair.done


def growing() -> dict[str, int]:
    weights = {
        "grow": 6,
        "register_buffer": 3,
        "set_attribute": 4,
        "register_parameter": 2,
        "new_class": 2,
    }
    return weights | {"instantiate": 4, "new_container": 1, "hook_loading": 1, "add_module": 4}


def closing(modules: int) -> list[Step]:
    return [
        Step(name, {"m": i}) for i in range(modules) for name in ("look_closely", "look_at_dict")
    ]


def replay(program: Program) -> Failure | None:
    pair = Pair(program)
    try:
        for step in program.steps:
            failure = pair.step(step)
            if failure or pair.ended:
                return failure
    finally:
        pair.close()
    return None


def shrink(failure: Failure) -> Failure:
    def differs(program: Program) -> bool:
        found = replay(program)
        return found is not None and found.signature == failure.signature

    return replay(minimise(failure.program, differs)) or failure


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--most", type=int, default=20, help="kinds of differences to shrink")
    parser.add_argument(
        "--operations", nargs="*", metavar="NAME", help="single operations instead of programs"
    )
    parser.add_argument(
        "--structures", action="store_true", help="modules with plain attributes in modtree.jax"
    )
    parser.add_argument(
        "--mixins", action="store_true", help="programs of classes around Module (fuzz/mixins.py)"
    )
    parser.add_argument("--dropin", action="store_true", help="those under the drop-in")
    given = parser.parse_args(arguments)
    if given.structures:
        from . import structures  # needs jax

        return min(structures.report(given.seed, given.rounds, given.steps, given.seconds), 1)
    if given.mixins:
        return 1 if mixins.report(given.seed, given.rounds, given.most, given.dropin) else 0
    if given.operations is not None:
        return 1 if operations.report(given.operations, given.seed, given.rounds, given.most) else 0
    began, done, steps = time.monotonic(), 0, 0
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(given.seed, given.seed + given.rounds):
        if time.monotonic() - began > given.seconds:
            break
        failure, ran = run_random(given.kinds[seed % len(given.kinds)], seed, given.steps)
        done, steps = done + 1, steps + len(ran)
        if failure:
            found[failure.signature] += 1
            if found[failure.signature] == 1 and len(found) <= given.most:
                print(f"\n{shrink(failure)}", flush=True)
    print(f"\n{done} programs, {steps} steps, {time.monotonic() - began:.0f} s")
    for row, count in SEEN.most_common():
        print(f"  allowed {count:6} {row}")
    for signature, count in found.most_common():
        print(f"  differs {count:6} {signature}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
