# SPDX-License-Identifier: BSD-3-Clause
"""The table of functions by library, and what a library lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import modtree as mt
from modtree import nn

jax = pytest.importorskip("jax")
pytest.importorskip("torch")

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "list_family_functions"


@pytest.mark.skipif(not TOOL.exists(), reason="needs the source tree")
def test_the_page_of_functions_by_library_can_be_made(tmp_path):
    place = tmp_path / "page.md"
    subprocess.run([sys.executable, TOOL, place], check=True)
    lines = place.read_text(encoding="utf-8").splitlines()
    assert "| `F.relu` | yes | yes | yes |" in lines


def test_a_function_that_is_missing_is_named_with_the_path_of_the_module():
    class Inner(nn.Module):
        def forward(self, x):
            return mt.linalg.svd(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Identity(), Inner())

        def forward(self, x):
            return self.body(x)

    with pytest.raises(NotImplementedError, match=r"body\.1: linalg\.svd\(\) .* tensors of jax"):
        Outer()(jax.numpy.ones((3, 3)))
    with pytest.raises(NotImplementedError, match=r"^linalg\.svd\(\) is not available"):
        mt.linalg.svd(jax.numpy.ones((3, 3)))
