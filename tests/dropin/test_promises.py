# SPDX-License-Identifier: BSD-3-Clause
"""What docs/dropin.md says of the rows of docs/compat.md: they hold on the native class."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

ROOT = Path(__file__).parents[2]
SECTIONS = ("Attributes", "Traversal", "Call and hooks", "state_dict")
#: torch's own Python functions do these.
TORCHS_OWN = {
    "test_removal_forgets_both_flags",
    "test_kind_may_change_once_all_hooks_are_removed",
    "test_global_kind_may_change_once_all_hooks_are_removed",
    "test_copy_keeps_the_metadata",
    "test_bound_methods_can_be_public_hooks",
    "test_public_registration_does_not_change_private_ones_elsewhere",
    "test_copy_of_a_stored_hook_keeps_the_names_of_its_function",
    "test_the_result_tells_what_is_on_meta",
}


def rows():
    """The tests that the sections name."""
    text = (ROOT / "docs" / "compat.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    for section in sections:
        if section.startswith(SECTIONS):
            yield from re.findall(r"`(tests/[\w/]+\.py::\w+)", section)


@needs_torch
def test_the_rows_of_these_sections_hold():
    names = dict.fromkeys(name for name in rows() if not name.startswith("tests/dropin"))
    assert {name.rpartition("::")[2] for name in names} >= TORCHS_OWN
    chosen = [name for name in names if name.rpartition("::")[2] not in TORCHS_OWN]
    assert len(chosen) > 20
    folders = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        + ["-p", "helpers.native_class", "-k", "modtree-torch", *chosen],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert re.search(r"\b[2-9]\d passed", run.stdout), run.stdout[-500:]
