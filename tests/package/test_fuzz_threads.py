# SPDX-License-Identifier: BSD-3-Clause
"""The fuzzer of threads: it finds what cannot be, and nothing in a short run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "fuzz" / "threads"


@pytest.fixture(scope="module")
def history():
    specification = importlib.util.spec_from_file_location(
        "fuzz_threads_history", FOLDER / "history.py"
    )
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look for their module there.
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules[specification.name]


def log(history, writes=(), reads=()):
    made = history.Log()
    made.writes += [("w", history.Span(*span), value) for span, value in writes]
    made.reads += [("w", history.Span(*span), value) for span, value in reads]
    return made


def test_an_order_of_steps_that_overlap_explains_what_was_read(history):
    writer = log(history, writes=[((0, 10), 1), ((20, 30), 2)])
    reader = log(history, reads=[((5, 6), 7), ((5, 25), 1), ((21, 22), 1), ((21, 22), 2)])
    assert history.findings([writer, reader], {"w": 7}) == []


@pytest.mark.parametrize(
    ("read", "value"),
    [((40, 50), 1), ((40, 50), "absent"), ((11, 12), 7), ((11, 12), 2), ((40, 50), 3)],
    ids=["overwritten", "deleted", "from before", "from later", "of nobody"],
)
def test_what_no_order_explains_is_found(history, read, value):
    writer = log(history, writes=[((0, 10), 1), ((20, 30), 2)])
    found = history.findings([writer, log(history, reads=[(read, value)])], {"w": 7})
    assert len(found) == 1 and repr(value) in found[0]


def test_a_call_that_missed_a_hook_is_found(history):
    there = history.Log(hooks={1: history.Hook(history.Span(0, 10), history.Span(50, 60))})

    def ran(span, *hooks):
        call = history.Log(calls=[(history.Span(*span), frozenset(hooks))])
        return history.findings([there, call], {})

    assert ran((20, 30), 1) == ran((5, 30)) == ran((5, 30), 1) == ran((20, 55)) == []
    assert len(ran((20, 30))) == 1
    assert len(ran((70, 80), 1)) == 1


def test_threads_see_what_some_order_gives():
    done = subprocess.run(
        [sys.executable, str(FOLDER), "--rounds", "15", "--quiet"], capture_output=True, text=True
    )
    assert done.stdout == "15 rounds, 24000 steps, 0 findings\n", done.stderr + done.stdout
    assert done.returncode == 0
