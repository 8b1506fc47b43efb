# SPDX-License-Identifier: BSD-3-Clause
"""modtree imported twice in one process, and its parts reloaded."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SET_UP = """
    import copy, importlib, pickle, sys
    import modtree
    from modtree import nn

    def forget(matches=lambda name: True):
        for name in [n for n in sys.modules if n.partition(".")[0] == "modtree" and matches(n)]:
            del sys.modules[name]

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x):
            return self.inner(x)

    m = Own()

    def check():
        assert list(m.state_dict()) == ["inner.0.weight", "inner.0.bias"]
        assert m.load_state_dict(m.state_dict()).missing_keys == []
        assert m(modtree.ones(1, 2)).shape == (1, 2)
        m(modtree.ones(1, 2)).sum().backward()
        assert len(list(m.eval().double().parameters())) == 2
        assert repr(m).startswith("Own(") and type(copy.deepcopy(m)) is Own
        assert type(pickle.loads(pickle.dumps(m.inner))) is nn.Sequential
        m.float()

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
def test_a_second_import_gives_the_modules_of_the_first(name):
    run(f"""
        before = dict(sys.modules)
        for _ in range(2):
            forget()
            again = importlib.import_module("{name}")
            assert again is before["{name}"] and sys.modules["modtree"] is modtree
            assert importlib.import_module("modtree").nn.Module is nn.Module
            assert set(before) == set(sys.modules), set(before) ^ set(sys.modules)
            check()
            made = importlib.import_module("modtree.nn").Linear(2, 3)
            m.inner.append(made)
            assert "inner.2.weight" in m.state_dict()
            del m.inner[-1]
    """)


def test_reload_of_the_package():
    run("""
        before = nn.Module
        assert importlib.reload(modtree) is modtree
        assert modtree.nn.Module is before
        check()
        forget()
        import modtree
        check()
    """)


@pytest.mark.parametrize(
    "name",
    ["core.module", "_tensor.parameter", "_tensor.tensor", "_tensor.devices", "families.numpy"],
)
def test_what_native_code_holds_is_not_executed_twice(name):
    run(f"""
        part = importlib.import_module("modtree.{name}")
        before = dict(vars(part))
        for attempt in (
            lambda: importlib.reload(part),
            lambda: (forget(lambda n: n == part.__name__), importlib.import_module(part.__name__)),
            lambda: (forget(lambda n: n != "modtree"), importlib.import_module(part.__name__)),
        ):
            try:
                attempt()
            except ImportError as error:
                assert "cannot be executed a second time" in str(error), error
            else:
                raise AssertionError("executed")
            changed = {{k for k, v in vars(part).items() if before[k] is not v}}
            assert all(k.startswith("__") for k in changed), changed  # __spec__, __all__ and so on
            forget()
            import modtree
            assert importlib.import_module(part.__name__) is part
            check()
    """)


def test_the_parts_that_only_use_it_can_be_reloaded():
    run("""
        for name in ("families", "nn", "serialization", "core.hooks"):
            importlib.reload(importlib.import_module(f"modtree.{name}"))
            check()
    """)
