# SPDX-License-Identifier: BSD-3-Clause
"""Some thousand rounds of ``tests/fuzz/reentrancy``, in a process of their own;
``MODTREE_FUZZ_ROUNDS`` and ``MODTREE_FUZZ_SEED`` ask for others.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).parents[1] / "fuzz" / "reentrancy"


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    )


def test_rounds_of_meddling(rounds):
    count = os.environ.get("MODTREE_FUZZ_ROUNDS", str(rounds(200, 2000)))
    seed = os.environ.get("MODTREE_FUZZ_SEED", "1")
    process = run("--rounds", count, "--seed", seed)
    assert process.returncode == 0, process.stdout[-8000:] + process.stderr[-2000:]
    assert process.stdout == f"{count} rounds of seed {seed}, 0 findings\n"


def test_a_crash_is_a_finding_with_its_round_and_program(tmp_path):
    """The net itself: the round that ends the process is named, and the ones after it are
    played.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(TOOL)!r})\n"
        "import playing\n"
        "play = playing.Player.round\n"
        "def round(self, rng):\n"
        "    play(self, rng)\n"
        "    if playing.state.number == 3:\n"
        "        os.abort()\n"
        "playing.Player.round = round\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    process = run("--rounds", "6", "--seed", "1", PYTHONPATH=path)
    assert process.returncode == 1
    assert "seed 1, round 3: SIGABRT; it fails alone too" in process.stdout
    assert "--seed 1 --first 3 --rounds 1" in process.stdout
    assert process.stdout.endswith("6 rounds of seed 1, 1 findings\n")
