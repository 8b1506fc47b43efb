# SPDX-License-Identifier: BSD-3-Clause
"""``modtree bench``: that it measures, not what."""

from __future__ import annotations

import json

import pytest
from helpers.implementations import needs_torch


def test_a_table(cli):
    ended = cli("bench", "--layers", 3, "--seconds", 0, "--no-torch")
    assert ended.status == 0 and ended.err == ""
    assert ended.lines[1] == "a tree of 100 modules; nanoseconds per item"
    rows = {line[:25].strip(): float(line.split()[-1].replace(",", "")) for line in ended.lines[4:]}
    assert {"m.weight", "state_dict()", "copy.deepcopy()"} <= set(rows)
    assert all(nanoseconds > 0 for nanoseconds in rows.values())


@needs_torch
def test_with_torch_beside_it(cli):
    ended = cli("bench", "--layers", 3, "--seconds", 0, "--json")
    answer = json.loads(ended.out)
    assert ended.status == 0 and answer["modules"] == 100 and "torch" in answer["versions"]
    assert all(set(row["ns"]) == {"modtree", "torch"} for row in answer["operations"])


@pytest.mark.parametrize("option", [["--layers", "0"], ["--layers", "x"], ["--seconds", "-1"]])
def test_wrong_options(cli, option):
    ended = cli("bench", *option)
    assert ended.status == 2 and "expected a number of" in ended.err.replace("from", "of")
