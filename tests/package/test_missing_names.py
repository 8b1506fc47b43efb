# SPDX-License-Identifier: BSD-3-Clause
"""The page of names that are absent is what the tool writes today."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "missing.md"
TOOL = ROOT / "tools" / "list_missing"

pytestmark = pytest.mark.skipif(not TOOL.is_file(), reason="needs the source tree")


@needs("torch")
def test_the_page_is_current():
    version = importlib.metadata.version("torch").partition("+")[0]
    if f"torch {version} " not in PAGE.read_text(encoding="utf-8"):
        pytest.skip(f"the page is of another version than {version}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(TOOL), "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_lists_what_is_absent():
    text = PAGE.read_text(encoding="utf-8")
    for title in ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils"):
        assert f"\n## {title}\n" in text
    for title in ("torch.func", "torch.linalg", "torch.autograd", "torch.optim.lr_scheduler"):
        assert f"\n## {title}\n" in text
    assert "`sparse_coo_tensor`" in text and "`Linear`" not in text
