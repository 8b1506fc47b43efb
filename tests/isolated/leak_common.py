# SPDX-License-Identifier: BSD-3-Clause
"""What the leak scripts share: run something 1,000 times and look at what is left."""

from __future__ import annotations

import gc
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from helpers.implementations import implementation  # noqa: E402
from helpers.util import small_tree  # noqa: E402

__all__ = ["implementation_asked_for", "no_leak", "raising", "small_tree"]

ROUNDS = 1_000
# Blocks that caches may still take after the warm-up; a leak of one block per round gives 1,000.
SLACK = 400


def implementation_asked_for():
    return implementation(sys.argv[1])


def no_leak(name, action, *watched):
    """``action`` leaves no blocks behind, and no references to the watched objects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(100):
            action()
        gc.collect()
        references = [sys.getrefcount(x) for x in watched]
        grown = SLACK
        for _ in range(2):  # CPython's own caches may fill once, a leak goes on
            if grown >= SLACK:
                blocks = sys.getallocatedblocks()
                for _ in range(ROUNDS):
                    action()
                gc.collect()
                grown = sys.getallocatedblocks() - blocks
        more = [sys.getrefcount(x) - r for x, r in zip(watched, references, strict=True)]
    assert grown < SLACK, f"{name}: {grown} blocks more after {ROUNDS} rounds"
    assert all(abs(d) < 5 for d in more), f"{name}: reference counts changed by {more}"


def raising(action, *kinds):
    """The action, which must fail, without its error."""

    expected = kinds or (Exception,)

    def run():
        try:
            action()
        except expected:
            return
        raise AssertionError("did not fail")

    return run
