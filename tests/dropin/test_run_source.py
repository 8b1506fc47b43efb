# SPDX-License-Identifier: BSD-3-Clause
"""``modtree run`` gives a program the language that python gives it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SOURCE = "def double(x: int) -> int: return 2 * x\nprint(double.__annotations__)\n"


@pytest.mark.parametrize("kind", ["script", "code"])
def test_annotations_stay_objects(kind, tmp_path):
    (tmp_path / "program.py").write_text(SOURCE)
    program = [str(tmp_path / "program.py")] if kind == "script" else ["-c", SOURCE]
    command = [sys.executable, "-m", "modtree", "run", "--off", *program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({"x": int, "return": int})
