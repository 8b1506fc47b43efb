# SPDX-License-Identifier: BSD-3-Clause
"""The last section of docs/behaviour.md says of every statement what modtree does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import modtree as mt

ROOT = Path(__file__).parents[2]
PAGE, TABLE = (ROOT / "docs/behaviour.md").read_text(encoding="utf-8").split("## 16. ")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in TABLE.splitlines()
    if re.match(r"\| \d", line)
]


def numbers(text):
    """\"3.1 to 3.4\" and \"3.1\" as pairs of section and statement."""
    ends = [tuple(map(int, part.split("."))) for part in text.split(" to ")]
    return [(ends[0][0], n) for n in range(ends[0][1], ends[-1][1] + 1)]


STATEMENTS = [
    tuple(map(int, found))
    for found in re.findall(r"^(?:\| )?(\d+)\.(\d+) ", PAGE, re.M)
    if found[0] != "0"
]


def test_every_statement_is_in_one_row():
    listed = [number for row in ROWS for number in numbers(row[0])]
    assert listed == STATEMENTS
    assert len(STATEMENTS) > 200


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_rows_say_what_and_where(row):
    _, what, where = row
    assert re.match("same|better|absent", what)
    for path in re.findall(r"`(tests/[^`:]*)", where):
        assert (ROOT / path).exists()
    if "tests/behaviour" in where:
        observed = "".join(
            (ROOT / path).read_text() for path in re.findall(r"`(tests/behaviour/[^`]*)`", where)
        )
        for number in numbers(row[0]):
            assert f'@statement("{number[0]}.{number[1]}"' in observed


def test_every_attribute_of_section_15_is_there():
    table = PAGE.split("## 15.")[1]
    names = [
        name
        for line in re.findall(r"^\| (`.*?) \|", table, re.M)
        for name in re.findall(r"`(\w+)`", line)
    ]
    assert len(names) > 80
    m = mt.nn.Module()
    missing = [n for n in names if not hasattr(m, n)]
    assert missing == ["_is_replica"]  # there on replicas alone
    assert m._replicate_for_data_parallel()._is_replica
