# SPDX-License-Identifier: BSD-3-Clause
"""A registry or hook table of a class of its own is asked by the native class as by torch's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from helpers import odd_tables
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

pytestmark = needs_torch


def outcomes(*options):
    run = subprocess.run(
        [sys.executable, "-m", "modtree", "run", *options, odd_tables.__file__],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


@pytest.mark.slow
def test_same_outcomes_plain_and_under_the_dropin():
    plain, native = outcomes("--off"), outcomes()
    assert list(plain) == odd_tables.TABLES
    for slot in plain:
        assert native[slot] == plain[slot]
