# SPDX-License-Identifier: BSD-3-Clause
"""The modules of bench/, which are no part of the package; tests of them are skipped without the
source tree.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

__all__ = ["ROOT", "bench_on_path", "load_bench"]

ROOT = Path(__file__).resolve().parents[2]

if not (ROOT / "bench").is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(autouse=True)
def bench_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def load_bench(name):
    return importlib.import_module(f"bench.{name}")
