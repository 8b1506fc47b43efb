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

HERE = Path(__file__).parent
FILES = sorted(path.name for path in (HERE / "both").glob("test_*.py"))


@needs_torch
@pytest.mark.parametrize("name", FILES)
def test_file(name):
    run = subprocess.run(
        [sys.executable, "-m", "modtree", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-p", "no:xdist", str(HERE / "both" / name)],
        env={**os.environ, "MODTREE_TESTS_UNDER_DROPIN": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert re.search(r"\b[1-9]\d* passed", run.stdout)
