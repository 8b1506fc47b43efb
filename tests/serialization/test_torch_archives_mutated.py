# SPDX-License-Identifier: BSD-3-Clause
"""Archives in torch's form that were changed by chance: read or refused in each way, in little
memory, and nothing is written beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "isolated" / "load_mutated.py"
COUNT = int(os.environ.get("MODTREE_MUTATIONS", "1500"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits memory as POSIX does")
def test_changed_archives_are_read_or_refused(tmp_path, rounds):
    """MODTREE_MUTATIONS sets how many; a failure names its number, which alone makes the file."""
    count = rounds(100, COUNT)
    command = [sys.executable, SCRIPT, "0", str(count), tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = {way: (int(a), int(b)) for way, a, b in map(str.split, done.stdout.splitlines())}
    assert set(counts) == {"load", "mapped", "opened"}
    for read, refused in counts.values():
        assert read + refused == count and read > count // 20 and refused > count // 20
