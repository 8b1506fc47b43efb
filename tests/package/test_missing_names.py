# SPDX-License-Identifier: BSD-3-Clause
"""The tool can make the page of names that are absent, with torch and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

TOOL = Path(__file__).resolve().parents[2] / "tools" / "list_missing"
#: Packages whose module answers for the names that it lacks.
PACKAGES = """nn nn.functional nn.init nn.utils nn.utils.rnn nn.parallel optim optim.lr_scheduler
    utils utils.data utils.checkpoint utils.hooks func linalg autograd autograd.functional
    autograd.graph cuda backends amp random serialization distributed jit compiler profiler hub mps
    xpu accelerator types version functional multiprocessing""".split()

pytestmark = pytest.mark.skipif(not TOOL.is_file(), reason="needs the source tree")


def page(place, *before):
    command = [sys.executable, *before, str(TOOL), str(place / "missing.md")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True)
    return (place / "missing.md").read_text(encoding="utf-8")


@needs("torch")
def test_the_page_lists_what_is_absent(tmp_path):
    text = page(tmp_path)
    for title in ("torch", *(f"torch.{name}" for name in PACKAGES)):
        assert f"\n## {title}\n" in text
    assert "`sparse_coo_tensor`" in text and "`Linear`" not in text


def test_without_torch_the_page_says_so(tmp_path):
    blocked = "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
    text = page(tmp_path, "-c", f"{blocked}runpy.run_path(sys.argv[0], run_name='__main__')")
    assert text.startswith("# Names that are absent\n") and "`" not in text
