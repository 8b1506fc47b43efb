# SPDX-License-Identifier: BSD-3-Clause
"""Folders of ranks, of DeepSpeed and of Hugging Face, GGUF files and archives of NumPy that were
changed by chance: shown or refused in each way, in little memory. No other file is opened.

More of them: ``python tests/checkpoint/test_folders_mutated.py FIRST LAST``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.checkpoint_folders import write_folders

SCRIPT = Path(__file__).parents[1] / "isolated" / "read_mutated_folders.py"
COUNT = int(os.environ.get("MODTREE_MUTATIONS", "500"))


def read_mutated(place, first, count):
    """How many were read, and how many refused, in each way."""
    (place / "valid").mkdir()
    (place / "place").mkdir()
    write_folders(place / "valid")
    numbers = [str(first), str(count)]
    command = [sys.executable, SCRIPT, *numbers, place / "place", place / "valid"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr[-3000:]
    return {way: (int(a), int(b)) for way, a, b in map(str.split, done.stdout.splitlines())}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(sys.platform == "win32", reason="limits memory as POSIX does")
def test_changed_folders_are_shown_or_refused(tmp_path):
    """MODTREE_MUTATIONS sets how many; a failure names its number, which alone makes the folder."""
    counts = read_mutated(tmp_path, 0, COUNT)
    assert set(counts) == {"opened", "stand-ins", "commands"}
    for read, refused in counts.values():
        assert read + refused == COUNT and read > COUNT // 20 and refused > COUNT // 20


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        first, last = map(int, sys.argv[1:])
        print(read_mutated(Path(folder), first, last - first))
