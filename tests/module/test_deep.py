# SPDX-License-Identifier: BSD-3-Clause
"""Chains of up to 100,000 nested modules, in a process of their own: a crash there is a failure
here, no more.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[1] / "isolated" / "deep.py"
OPERATIONS = re.findall(r"^    def ([a-z]\w*)\(self\):", SCRIPT.read_text(), re.MULTILINE)
_RESULTS: dict[str, dict[str, str]] = {}


def outcomes(kind: str) -> dict[str, str]:
    """What the script printed. After a crash it goes on with the operations that were left."""
    if kind not in _RESULTS:
        found: dict[str, str] = {}
        left = list(OPERATIONS)
        while left:
            process = subprocess.run(
                [sys.executable, str(SCRIPT), kind, *left],
                capture_output=True,
                text=True,
                timeout=300,
            )
            started = None
            for line in process.stdout.splitlines():
                event = json.loads(line)
                started = event.get("start")
                if "done" in event:
                    found[event["done"]] = event["outcome"]
            if started:
                found[started] = f"crashed with {process.returncode}: {process.stderr[-500:]}"
            elif not process.stdout:
                found |= {name: f"did not start: {process.stderr[-500:]}" for name in left}
            left = [name for name in left if name not in found]
        _RESULTS[kind] = found
    return _RESULTS[kind]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_deep_chain(ours, operation):
    assert outcomes(ours.name)[operation] == "ok"


def test_the_script_knows_its_operations():
    assert {"modules", "train", "state_dict", "death", "repr"} <= set(OPERATIONS)
