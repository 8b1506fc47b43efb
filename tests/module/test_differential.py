# SPDX-License-Identifier: BSD-3-Clause
"""Random trees and random edits, the same on modtree and on torch: every public observation must
agree.

``MODTREE_FUZZ=N`` runs N seeds instead of the default number.
"""

from __future__ import annotations

import os

import pytest
from helpers.implementations import implementation, needs_torch
from helpers.util import World, agree, aim, apply_edit, compare, edits, skipped

SEEDS = int(os.environ.get("MODTREE_FUZZ", "60"))
GROUP = 20


def run(kind: str, seed: int, count: int = 40) -> None:
    oracle, got = World(implementation("torch"), seed), World(implementation(kind), seed)
    compare(oracle, got)
    cycles = seed % 10 == 9
    done = []
    for edit in edits(seed, count):
        edit = aim(oracle, edit)
        if skipped(oracle, edit, cycles):
            continue
        done.append(edit)
        expected, result = apply_edit(oracle, edit), apply_edit(got, edit)
        assert agree(expected, result), (
            f"{got!r}, edit {len(done)}: {edit}\n  expected {expected!r}\n  got      {result!r}"
        )
        if len(done) % 20 == 0:
            compare(oracle, got)
    compare(oracle, got)
    compare(oracle, got, look_at_dict=True)


@pytest.mark.slow(keep=2)
@needs_torch
@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_same_as_torch(kind, first):
    for seed in range(first, min(first + GROUP, SEEDS)):
        run(kind, seed)


@needs_torch
@pytest.mark.parametrize("first", range(0, min(SEEDS, 40), GROUP))
def test_worlds_of_one_seed_are_the_same(first):
    """The generator itself: two torch worlds of one seed never differ, and different seeds do."""
    for seed in range(first, first + GROUP):
        run("torch", seed, count=25)
    with pytest.raises(AssertionError):
        compare(World(implementation("torch"), first), World(implementation("torch"), first + 1))
