# SPDX-License-Identifier: BSD-3-Clause
"""Random arguments for single operations on torch and on modtree (``tests/fuzz/operations``): some
lines of each here, more with ``tools/fuzz_differential --operations``.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from helpers.implementations import needs_torch

pytestmark = needs_torch

ROUNDS, SEED = 12, 0
#: What a difference is called that is no matter of which error comes.
WRONG = ("value", "dtype", "shape", "structure", "argument afterwards", "requires_grad")


@pytest.fixture(scope="module")
def run():
    from fuzz.operations import run

    return run


GROUPS = "pointwise comparison conversion reduction order shape attention losses"


@pytest.mark.parametrize("group", GROUPS.split())
def test_results_are_those_of_torch(run, group):
    found = []
    for operation in run.selected([f"@{group}"]):
        for failure in run.check(operation, SEED, ROUNDS).failures.values():
            if failure.word in WRONG or failure.word.startswith("gradient"):
                found.append(str(failure))
    assert not found, "\n\n".join(found[:5])


@pytest.mark.parametrize("group", ["pointwise", "comparison"])
def test_what_torch_refuses_is_refused(run, group):
    """Of the plain forms; a few differences of each kind are left (docs/compat.md)."""
    names = ("add", "sub", "mul", "maximum", "minimum", "exp", "log", "sin", "floor", "gt", "eq")
    found = []
    for operation in run.selected([f"@{group}"]):
        if operation.name in names:
            found += map(str, run.check(operation, SEED, ROUNDS).failures.values())
    assert not found, "\n\n".join(found[:5])


def test_operations_are_found(run):
    """Most public functions of both libraries have a form."""
    names = {operation.name for operation in run.selected([])}
    assert {"add", "Tensor.add_", "F.relu", "linalg.inv", "operator.add", "sort"} <= names
    assert len(names) > 700


def test_every_operation_is_in_a_group(run):
    from fuzz.operations.groups import group_of

    assert [name for name in (o.name for o in run.selected([])) if group_of(name) is None] == []


def test_every_public_function_of_both_is_an_operation(run, torch):
    """But for those that set a mode, which are passed over."""
    from fuzz.operations.catalog import PASSED_OVER, spaces

    import modtree

    known = {operation.name for operation in run.selected([])}
    passed_over = frozenset().union(*PASSED_OVER.values())
    theirs = spaces(torch)
    missing = [
        name
        for where, space in spaces(modtree).items()
        for name in dir(space)
        if not name.startswith(("_", "set_", "use_", "is_autocast"))
        and not inspect.isclass(getattr(space, name))
        and callable(getattr(space, name))
        and callable(getattr(theirs[where], name, None))
        and name not in passed_over
        and (f"{where}.{name}" if where else name) not in known
    ]
    assert missing == []


def test_a_difference_is_found(run, monkeypatch):
    """A library that rounds."""
    import modtree

    monkeypatch.setattr(modtree, "sin", lambda x: modtree.cos(x))
    (operation,) = run.selected(["sin"])
    words = {failure.word for failure in run.check(operation, SEED, 30).failures.values()}
    assert "value" in words


def test_what_is_allowed_has_its_row():
    from fuzz.operations.allowed import ALLOWED, AVOIDED

    path = Path(__file__).parents[2] / "docs" / "compat.md"
    rows = re.findall(r"^\| (.*?) \|", path.read_text(encoding="utf-8"), re.MULTILINE)
    for entry in (*ALLOWED, *AVOIDED):
        assert any(row.startswith(entry.row) for row in rows), entry.row
