# SPDX-License-Identifier: BSD-3-Clause
"""``tools/library_suites`` on checkouts that are made up."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

TOOL = Path(__file__).parents[2] / "tools" / "library_suites"

pytestmark = [
    needs_torch,
    pytest.mark.skipif(not TOOL.is_file(), reason="needs the source tree"),
]

#: Counts its rounds in a file beside it, as the tests of one run may not see those of another.
SUITE = """\
import os, pathlib, sys
import pytest, torch
from library import VALUE

native = "modtree.dropin" in sys.modules
rounds = pathlib.Path(f"rounds-{native}")

def test_passes():
    assert VALUE == 3 and torch.nn.Linear(1, 1)(torch.ones(1)).shape == (1,)

def test_fails():
    assert VALUE == 4

def test_is_flaky():
    rounds.write_text(rounds.read_text() + "." if rounds.exists() else ".")
    assert len(rounds.read_text()) != 2

@pytest.mark.parametrize("side", ["torch", "modtree"])
def test_differs(side):
    assert native == (side == "modtree")

@pytest.fixture
def broken():
    yield
    raise ValueError

def test_with_a_fixture_that_fails_late(broken):
    assert VALUE == 4

@pytest.mark.xfail
def test_is_known_to_fail():
    assert False

@pytest.mark.skip
def test_is_skipped():
    pass
"""

CRASH = """\
import os, sys
def test_crashes():
    import torch
    if "modtree.dropin" in sys.modules:
        os._exit(9)
def test_after():
    pass
"""


def checkout(folder: Path, suite: str) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "library.py").write_text("VALUE = 3\n")
    (folder / "test_library.py").write_text(suite)
    return folder


def compared(*words: object) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    line = [sys.executable, str(TOOL), *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, env=kept, timeout=HANGS_AFTER)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_a_checkout_has_a_name_without_git(tmp_path, monkeypatch):
    name_of = runpy.run_path(str(TOOL))["name_of"]
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".git").mkdir()
    assert name_of(tmp_path) == tmp_path.name


@pytest.mark.slow
def test_tests_are_compared_by_their_ids(tmp_path):
    suite = checkout(tmp_path / "suite", SUITE)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- library suites: begin -->\n<!-- library suites: end -->\nafter\n")
    done = compared(suite, "--results", tmp_path / "rows.json", "--markdown", page)
    assert done.returncode == 1, done.stderr
    names, _, row = (cells(line) for line in done.stdout.splitlines() if line.startswith("|"))
    found = dict(zip(names, row, strict=True))
    assert {k: v for k, v in found.items() if not v.endswith(" s")} == {
        "suite": "suite",
        "tests": "8",
        "passed on torch": "3",
        "same": "5",
        "only plain fails": "1",
        "flaky": "1",
        "differs": "1",
    }
    assert json.loads((tmp_path / "rows.json").read_text()) == [found]
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]
    assert lines == [
        "only plain fails: test_library.py::test_differs[modtree]: torch failed, failed; "
        "modtree run passed, passed",
        "flaky: test_library.py::test_is_flaky: torch passed, failed; modtree run passed, failed",
        "differs: test_library.py::test_differs[torch]: torch passed, passed; "
        "modtree run failed, failed",
    ]
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "| suite | 8 | 3 |" in text


@pytest.mark.slow
def test_words_for_pytest_and_a_suite_that_is_equal(tmp_path):
    suite = checkout(tmp_path / "suite", SUITE)
    done = compared(suite, "--rounds", 1, "--pytest", "-k 'passes or test_fails'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| suite | 2 | 1 | 2 | 0 | 0 | 0 |" in done.stdout


@pytest.mark.slow
def test_a_run_that_crashes_is_named(tmp_path):
    done = compared(checkout(tmp_path / "crash", CRASH), "--rounds", 1)
    assert done.returncode == 1
    assert "differs: test_library.py::test_crashes: torch passed; modtree run crashed" in (
        done.stdout
    )
    assert "modtree run, round 1: exit status 9" in done.stdout
    assert "| crash (incomplete) |" in done.stdout


def test_a_folder_that_is_not_there(tmp_path):
    done = compared(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere is not a folder: give checkouts that are there" in done.stderr
