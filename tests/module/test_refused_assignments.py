# SPDX-License-Identifier: BSD-3-Clause
"""An assignment that code of the class or a hook refuses puts the one entry back, and nothing else.

In torch the old entry is lost. What the code did under other names stays, as in torch.
"""

from __future__ import annotations

from collections import OrderedDict

import pytest
from helpers.util import param, tensor


class Refused(Exception):
    pass


OLD = ["plain", "buffer", "hidden buffer", "module", "parameter", "none"]


def put(impl, m, name, old):
    """Puts what is there before the assignment under a name."""
    if "buffer" in old:
        m.register_buffer(name, tensor(impl), persistent=old == "buffer")
    elif old != "none":
        setattr(m, name, {"plain": 3, "module": impl.nn.Module(), "parameter": param(impl)}[old])


def order(m):
    """The names of all that a module has."""
    state = type(m).__getstate__(m)
    tables = {
        name: sorted(table) if isinstance(table, set) else list(table)
        for name, table in state.items()
        if isinstance(table, dict | set)
    }
    return list(state), tables


def meddle(module, look):
    """What code that refuses has done before, elsewhere."""
    if look:
        vars(module)
    module.count = getattr(module, "count", 0) + 1
    module.helper = type(module.child)()
    module.register_buffer("more", None)


@pytest.mark.parametrize("look", [False, True], ids=["", "look"])
@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("old", OLD)
@pytest.mark.parametrize("value", ["parameter", "module"])
def test_one_entry_is_put_back(ours, value, old, stage, look):
    if (value, old) == ("module", "parameter"):
        pytest.skip("a TypeError before anything is done")
    armed = []

    def refuse(module, name, value):
        if armed:
            armed.clear()
            meddle(module, look)
            raise Refused

    class M(ours.nn.Module):
        def register_parameter(self, name, param):
            if stage == "after":
                super().register_parameter(name, param)
            refuse(self, name, param)
            if stage == "before":
                super().register_parameter(name, param)

    def made():
        m = M() if value == "parameter" else ours.nn.Module()
        m.first, m.child, m.p = 1, ours.nn.Module(), param(ours)
        m.register_buffer("b", None, persistent=False)
        put(ours, m, "x", old)
        m.last, m.child_behind, m.q = 2, ours.nn.Module(), param(ours)
        m.register_buffer("c", None, persistent=False)
        return m

    expected, m = made(), made()
    meddle(expected, look)
    before = getattr(m, "x", None)
    new = param(ours) if value == "parameter" else ours.nn.Module()
    hook = lambda *args: refuse(*args) if value == "module" else None  # noqa: E731
    with ours.module.register_module_module_registration_hook(hook):
        armed.append(True)
        with pytest.raises(Refused):
            m.x = new
    assert getattr(m, "x", None) is before
    assert m.count == 1
    assert order(m) == order(expected)


@pytest.mark.parametrize(
    "table", [OrderedDict, type("Table", (OrderedDict,), {}), type("D", (dict,), {})]
)
def test_the_order_of_other_tables_is_kept(ours, table):
    class M(ours.nn.Module):
        def register_parameter(self, name, param):
            self._buffers["new"] = None
            raise Refused

    m = M()
    m._buffers = table.fromkeys("axb")
    with pytest.raises(Refused):
        m.x = param(ours)
    assert type(m._buffers) is table
    assert list(m._buffers) == list(reversed(list(reversed(m._buffers)))) == ["a", "x", "b", "new"]


def test_what_refuses_may_exchange_the_tables(ours):
    class M(ours.nn.Module):
        def register_parameter(self, name, param):
            self._buffers = {"other": None}
            self.__dict__ = {**self.__dict__, "more": 1}
            raise Refused

    m = M()
    m.register_buffer("x", None)
    m.y = 1
    with pytest.raises(Refused):
        m.x = param(ours)
    assert m._buffers == {"other": None, "x": None} and m.more == 1
    with pytest.raises(Refused):
        m.y = param(ours)
    assert m.y == 1
