# SPDX-License-Identifier: BSD-3-Clause
"""The site builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import modtree

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("sphinx", "myst_parser", "furo")

pytestmark = [
    pytest.mark.skipif(not (ROOT / "docs" / "conf.py").is_file(), reason="needs the source tree"),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(tool) for tool in TOOLS),
        reason="the tools of the site are not installed",
    ),
]


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
    """Everything is read and every link is looked up; writing the pages would double the time."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "dummy"]
    search = [str(Path(modtree.__file__).parents[1]), *filter(None, [os.getenv("PYTHONPATH")])]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), str(ROOT / "docs"), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_docstrings_of_attributes_are_not_read_as_types(monkeypatch):
    napoleon = importlib.import_module("sphinx.ext.napoleon")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    lines = ["Where the values are: 'cpu', or 'meta' for nowhere."]
    importlib.import_module("conf").escape(None, "property", "Tensor.device", None, None, lines)
    shown = napoleon.GoogleDocstring(lines, napoleon.Config(), what="property", name="device")
    assert "Where the values are: 'cpu', or 'meta' for nowhere." in shown.lines()
