# SPDX-License-Identifier: BSD-3-Clause
"""Runs ``tests/isolated/leak_*.py``, each in a process of its own: what 1,000 rounds leave
behind.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from helpers.limits import HANGS_AFTER

SCRIPTS = sorted(p for p in (pathlib.Path(__file__).parents[1] / "isolated").glob("leak_*.py"))
SCRIPTS = [p for p in SCRIPTS if p.stem != "leak_common"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_no_leak(ours, script):
    process = subprocess.run(
        [sys.executable, str(script), ours.name],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert process.returncode == 0, process.stderr[-2000:]


def test_training_steps_leave_nothing_to_collect():
    script = pathlib.Path(__file__).parents[1] / "isolated" / "steps_without_collector.py"
    process = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=HANGS_AFTER
    )
    assert process.returncode == 0, process.stderr[-2000:]


def test_interpreter_exit_with_live_cycles(ours):
    """Cycles, walks and hooks that are alive when the interpreter goes down."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from helpers.implementations import implementation
from helpers.util import small_tree
impl = implementation(sys.argv[2])
class Late(impl.nn.Module):
    def __del__(self):
        [n for n, _ in self.named_modules()]
        self.extra = impl.nn.Module()
tree = small_tree(impl)
tree.late = Late()
tree.late.up = tree
tree.me = tree
tree.walk = tree.named_parameters()
next(tree.walk)
tree.register_forward_hook(lambda *a: tree)
impl.nn.Module.kept = [tree]
impl.module.register_module_forward_hook(lambda *a: None)
sys.kept = tree
"""
    folder = str(pathlib.Path(__file__).parents[1])
    process = subprocess.run(
        [sys.executable, "-c", code, folder, ours.name],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stderr == ""
