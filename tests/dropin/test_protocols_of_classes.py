# SPDX-License-Identifier: BSD-3-Clause
"""Classes that take part in a protocol of Python do so on the native class too."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from helpers import protocol_classes
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

pytestmark = needs_torch


def outcomes(*options):
    run = subprocess.run(
        [sys.executable, "-m", "modtree", "run", *options, protocol_classes.__file__],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


def test_same_outcomes_plain_and_under_the_dropin():
    plain, native = outcomes("--off"), outcomes()
    assert list(plain) == protocol_classes.NAMES
    assert native == plain
