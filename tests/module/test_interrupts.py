# SPDX-License-Identifier: BSD-3-Clause
"""Native loops see signals, and a tree is whole after one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.implementations import params

ISOLATED = Path(__file__).parents[1] / "isolated"
# Far more than is needed: what does not see the signal never ends.
TIMEOUT = 300

HAS_TIMER = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(ISOLATED / script), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout.split("\n")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("how", [pytest.param("alarm", marks=HAS_TIMER), "thread"])
@pytest.mark.parametrize("kind", params("modtree", "modtree-torch", "torch"))
def test_endless_operations_are_stopped(kind, how):
    lines = [line.split() for line in run("interrupts.py", kind, how) if line]
    assert len(lines) >= 10
    assert {outcome for _, outcome in lines} == {"KeyboardInterrupt"}


@pytest.mark.slow
@HAS_TIMER
@pytest.mark.parametrize("kind", params("modtree", "modtree-torch"))
def test_a_load_that_is_stopped_has_written_all_or_nothing(kind):
    run("handlers.py", kind, "load")


@pytest.mark.slow
@HAS_TIMER
@pytest.mark.parametrize("kind", params("modtree", "modtree-torch"))
def test_handlers_may_change_the_tree(kind):
    run("handlers.py", kind, "change")


@HAS_TIMER
def test_backward_is_stopped():
    run("handlers.py", "modtree", "backward")
