# SPDX-License-Identifier: BSD-3-Clause
"""The tests of ``both``, which the ordinary run has on plain torch, on the native class."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

HERE = Path(__file__).parent
FILES = sorted(path.name for path in (HERE / "both").glob("test_*.py"))
#: The last line of a run in which something happened but skipped tests.
OTHER = re.compile(r"\b\d+ (passed|failed|errors?|xfailed|xpassed)\b|no tests ran")


def _all_skipped(run: subprocess.CompletedProcess[str]) -> str | None:
    """Why, when every test of the run was skipped and nothing else happened; None otherwise.

    pytest's exit status is 0 when it skipped each test, and 5 when it skipped the whole file, as it
    is when it found no test at all.
    """
    lines = run.stdout.strip().splitlines()
    last = lines[-1] if lines else ""
    if run.returncode not in (0, 5) or not re.search(r"\b[1-9]\d* skipped\b", last):
        return None
    if OTHER.search(last):
        return None
    reasons = [line for line in lines if line.startswith("SKIPPED ")]
    return "\n".join(reasons) or last


@pytest.mark.slow(keep=1)
@needs_torch
@pytest.mark.parametrize("name", FILES)
def test_file(name, rounds):
    options = ["--all"] * rounds(0, 1)
    run = subprocess.run(
        [sys.executable, "-m", "modtree", "run", "-m", "pytest", "-qrs", "-p", "no:cacheprovider"]
        + ["-p", "no:xdist", *options, str(HERE / "both" / name)],
        env={**os.environ, "MODTREE_TESTS_UNDER_DROPIN": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    skipped = _all_skipped(run)
    if skipped:
        pytest.skip(skipped)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert re.search(r"\b[1-9]\d* passed", run.stdout)


@pytest.mark.parametrize(
    ("status", "last", "expected"),
    [
        (5, "1 skipped in 0.01s", "1 skipped in 0.01s"),
        (0, "12 skipped, 1 warning in 0.01s", "12 skipped, 1 warning in 0.01s"),
        (5, "no tests ran in 0.01s", None),
        (5, "3 deselected in 0.01s", None),
        (0, "1 passed, 4 skipped in 0.01s", None),
        (1, "1 failed, 4 skipped in 0.01s", None),
        (1, "4 skipped, 1 error in 0.01s", None),
        (2, "4 skipped in 0.01s", None),
        (0, "4 skipped, 1 xfailed in 0.01s", None),
        (5, "", None),
    ],
)
def test_only_a_run_that_skipped_all_is_skipped(status, last, expected):
    run = subprocess.CompletedProcess([], status, f"sss\n{last}\n", "")
    assert _all_skipped(run) == expected


def test_the_reasons_of_skipped_tests_are_told():
    output = "ss\nSKIPPED [2] a.py:1: could not import 'x'\n2 skipped in 0.01s\n"
    run = subprocess.CompletedProcess([], 0, output, "")
    assert _all_skipped(run) == "SKIPPED [2] a.py:1: could not import 'x'"
