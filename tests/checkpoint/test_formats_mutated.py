# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of all formats that were changed by chance: shown or refused in each way, in little
memory. No other file is opened, and nothing of them runs.

More of them: ``python tests/checkpoint/test_formats_mutated.py FIRST LAST --format gguf``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.checkpoint_formats import (
    FORMATS,
    MADE_BY_TORCH,
    NAMED_ONLY,
    NOT_IN_SAFETENSORS,
    write_folders,
)
from helpers.needs import needs

SCRIPT = Path(__file__).parents[1] / "isolated" / "read_mutated_formats.py"
NEEDED = {
    "memory": ("fsspec",),
    "http": ("fsspec", "aiohttp"),
    **dict.fromkeys(MADE_BY_TORCH, ("torch",)),
}
COUNT = int(os.environ.get("MODTREE_MUTATIONS", "60"))


def read_mutated(place, first, count, formats=None):
    """How many were read, and how many refused, in each way."""
    (place / "valid").mkdir()
    (place / "place").mkdir()
    write_folders(place / "valid", formats)
    numbers = [str(first), str(count)]
    command = [sys.executable, SCRIPT, *numbers, place / "place", place / "valid"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr[-3000:]
    return {way: (int(a), int(b)) for way, a, b in map(str.split, done.stdout.splitlines())}


@pytest.mark.slow(keep=6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(sys.platform == "win32", reason="limits memory as POSIX does")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs(*NEEDED.get(n, ()))) for n in FORMATS]
)
def test_changed_checkpoints_are_shown_or_refused(name, tmp_path, rounds):
    """MODTREE_MUTATIONS sets how many; a failure names its number, which alone makes the folder."""
    count = rounds(10, COUNT)
    counts = read_mutated(tmp_path, 0, count, [name])
    assert set(counts) == {"opened", "stand-ins", "commands"}
    for way, (read, refused) in counts.items():
        assert read + refused == count and refused > count // 20
        never = name in NAMED_ONLY or (way == "commands" and name in NOT_IN_SAFETENSORS)
        assert (read == 0) if never else (read > count // 20)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--format", action="append", choices=FORMATS, help="one; by default all")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(read_mutated(Path(folder), given.first, given.last - given.first, given.format))
