# SPDX-License-Identifier: BSD-3-Clause
"""modtree imported a second time in one process is refused, and what exists works on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SET_UP = """
    import copy, importlib, pickle, sys
    import modtree
    from modtree import nn

    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def check():
        assert list(m.state_dict()) == ["0.weight", "0.bias"]
        assert m.load_state_dict(m.state_dict()).missing_keys == []
        m(modtree.ones(1, 2)).sum().backward()
        assert len(list(m.eval().double().parameters())) == 2
        assert repr(m).startswith("Sequential(") and type(copy.deepcopy(m)) is nn.Sequential
        m.float()

    def refused(run):
        try:
            run()
        except ImportError as error:
            assert "cannot be executed a second time" in str(error), error
        else:
            raise AssertionError("executed")

    check()
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SET_UP) + textwrap.dedent(program)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["modtree", "modtree.nn", "modtree.nn.functional", "modtree.core.module"]
)
def test_an_import_after_sys_modules_was_cleared(name):
    run(f"""
        for module in [n for n in sys.modules if n.partition(".")[0] == "modtree"]:
            del sys.modules[module]
        refused(lambda: importlib.import_module("{name}"))
        check()
    """)


def test_reload_of_the_package():
    run("""
        before = nn.Module
        assert importlib.reload(modtree) is modtree
        assert modtree.nn.Module is before
        check()
    """)


@pytest.mark.parametrize(
    "name",
    [
        "core.module",
        "numpy.tensor.parameter",
        "numpy.tensor.tensor",
        "numpy.tensor.devices",
        "numpy.family",
    ],
)
def test_what_native_code_holds_is_not_executed_twice(name):
    run(f"""
        part = importlib.import_module("modtree.{name}")
        refused(lambda: importlib.reload(part))
        check()
        del sys.modules[part.__name__]
        refused(lambda: importlib.import_module(part.__name__))
        check()
    """)


def test_the_parts_that_only_use_it_can_be_reloaded():
    run("""
        for name in ("families", "nn", "serialization", "core.hooks"):
            importlib.reload(importlib.import_module(f"modtree.{name}"))
            check()
    """)
