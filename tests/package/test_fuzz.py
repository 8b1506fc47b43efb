# SPDX-License-Identifier: BSD-3-Clause
"""Random programs on modtree and on torch (``tests/fuzz``): some hundreds here, more with
``tools/fuzz_differential``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.implementations import needs_torch

pytestmark = needs_torch

GROUP, SEEDS = 20, 120


@pytest.fixture(scope="module")
def differential():
    from fuzz import differential

    return differential


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_same_as_torch(differential, kind, first):
    for seed in range(first, first + GROUP):
        failure, _ = differential.run_random(kind, seed, 40)
        assert failure is None, str(failure)


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("first", range(0, SEEDS, 2 * GROUP))
def test_classes_around_module(differential, kind, first):
    for seed in range(first, first + 2 * GROUP):
        found = differential.mixins.compare(kind, differential.mixins.draw_program(seed))
        assert found is None, f"seed {seed}\n{found}"


def test_classes_around_module_under_the_dropin(differential):
    seeds = range(60)
    plain, native = (
        differential.mixins.in_process(seeds, *launcher)
        for launcher in ((), ("-m", "modtree", "run"))
    )
    for seed, theirs, ours in zip(seeds, plain, native, strict=True):
        found = differential.mixins.difference(differential.mixins.draw_program(seed), theirs, ours)
        assert found is None, f"seed {seed}\n{found}"


def test_programs_are_varied(differential):
    """Nearly all operations are drawn, and programs do not end early."""
    from fuzz.program import OPERATIONS

    drawn, lengths = set(), []
    for seed in range(2 * GROUP):
        _, steps = differential.run_random("modtree", 1000 + seed, 40)
        drawn.update(step.name for step in steps)
        lengths.append(len(steps))
    assert len(drawn) > 0.8 * len(OPERATIONS), sorted(OPERATIONS.keys() - drawn)
    assert sum(lengths) > 40 * len(lengths)


def test_a_difference_is_found_and_made_short(differential, monkeypatch):
    """A module system that forgets one thing."""
    import modtree

    register = modtree.nn.Module.register_buffer

    def forgets(self, name, tensor, persistent=True):
        register(self, name, tensor)

    monkeypatch.setattr(modtree.nn.Module, "register_buffer", forgets)
    failures = (differential.run_random("modtree", seed, 40)[0] for seed in range(GROUP))
    failure = next(f for f in failures if f is not None)
    short = differential.shrink(failure)
    assert short.signature == failure.signature
    assert len(short.program.steps) < 4


def test_what_is_allowed_has_its_row(differential):
    from fuzz.allowed import ALLOWED, AVOIDED

    path = Path(__file__).parents[2] / "docs" / "compat.md"
    rows = re.findall(r"^\| (.*?) \|", path.read_text(encoding="utf-8"), re.MULTILINE)
    for entry in (*ALLOWED, *AVOIDED):
        assert any(row.startswith(entry.row) for row in rows), entry.row
