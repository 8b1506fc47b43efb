# SPDX-License-Identifier: BSD-3-Clause
"""Programs of torch and of libraries on it give the same bits on modtree's Module.

Programs whose library is not installed are skipped; ``tools/ecosystem`` makes an environment with
all of them.
"""

from __future__ import annotations

import importlib.util

import pytest
from helpers.dropin_programs import compared, differences, names, needs, run
from helpers.implementations import needs_torch

pytestmark = needs_torch


def program(name: str) -> pytest.param:
    missing = [n for n in needs(name) if importlib.util.find_spec(n) is None]
    reason = f"needs pip install {' '.join(missing)}"
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=reason))


def both(name, tmp_path, *arguments):
    for side in ("plain", "dropin"):
        (tmp_path / side).mkdir()
    plain = run(name, False, tmp_path / "plain", *arguments)
    return plain, run(name, True, tmp_path / "dropin", *arguments)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("name", [program(name) for name in names()])
def test_same_bits_plain_and_under_the_dropin(name, tmp_path):
    assert compared(*both(name, tmp_path)) == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("writer", [False, True], ids=["plain writes", "dropin writes"])
def test_files_of_modules_go_both_ways(writer, tmp_path):
    for folder in ("files", "write", "read", "same"):
        (tmp_path / folder).mkdir()
    files = str(tmp_path / "files")
    written = run("exchange", writer, tmp_path / "write", "write", files)
    assert (written.error, written.native) == ("", writer)
    other = run("exchange", not writer, tmp_path / "read", "read", files)
    same = run("exchange", writer, tmp_path / "same", "read", files)
    assert (other.error, same.error, other.native) == ("", "", not writer)
    assert "text" in same.facts["process 0"]["net.pt"]
    assert differences(same.facts, other.facts) == []
