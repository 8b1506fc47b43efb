# SPDX-License-Identifier: BSD-3-Clause
"""Assignment as a table: where a name lives now x what is assigned -> where it lives afterwards.

The outcomes are written down once, for every implementation: ``P``/``M``/``B`` the registries,
``B*`` a non-persistent buffer, ``D`` the instance dict, ``=None`` a None entry;
``TEp``/``TEm``/``TEb`` the TypeErrors, ``KE`` the KeyError.
"""

from __future__ import annotations

import warnings

import pytest
from helpers.support import raises
from helpers.util import buffer, param, tensor

VALUES = ("param", "module", "buffer", "buffer*", "tensor", "none", "other")

MATRIX = {
    "absent": "P M B B* D D D",
    "parameter": "P TEp TEp TEp TEp P=None TEp",
    "parameter none": "P TEp TEp TEp TEp P=None TEp",
    "module": "P M TEm TEm TEm M=None TEm",
    "module none": "P M TEm TEm TEm M=None TEm",
    "buffer": "P M B B* B B=None TEb",
    "buffer none": "P M B B* B B=None TEb",
    "buffer*": "P M B B* B* B*=None TEb",
    "buffer* none": "P M B B* B* B*=None TEb",
    "instance": "P M KE KE D D D",
    "instance none": "P M KE KE D D D",
    "class attribute": "KE M KE KE D D D",
    "method": "KE M KE KE D D D",
    "read-only property": "KE M KE KE AE AE AE",
    "property with setter": "KE M KE KE set set set",
    "property raising AttributeError": "P M B B* AE AE AE",
    "property raising ValueError": "VE M VE VE AE AE AE",
}
CELLS = [
    pytest.param(now, value, outcome, id=f"{now}-{value}")
    for now, row in MATRIX.items()
    for value, outcome in zip(VALUES, row.split(), strict=True)
]
PLACES = {"P": "_parameters", "M": "_modules", "B": "_buffers", "B*": "_buffers"}
MESSAGES = {
    "TEp": ("cannot assign '", "' as parameter 'x' (torch.nn.Parameter or None expected)"),
    "TEm": ("cannot assign '", "' as child module 'x' (torch.nn.Module or None expected)"),
    "TEb": ("cannot assign '", "' as buffer 'x' (torch.nn.Buffer, torch.Tensor or None expected)"),
    "KE": ("attribute 'x' already exists",),
    "AE": (),
    "VE": ("from the getter",),
}
ERRORS = {"TEp": TypeError, "TEm": TypeError, "TEb": TypeError, "KE": KeyError}
ERRORS |= {"AE": AttributeError, "VE": ValueError}


def make_class(impl, now):
    """A class where ``x`` is what the row says, when the row is about the class."""
    body = {}
    if now == "class attribute":
        body["x"] = "class attribute"
    elif now == "method":
        body["x"] = lambda self: "method"
    elif now == "read-only property":
        body["x"] = property(lambda self: "property")
    elif now == "property with setter":

        def setter(self, value):
            self.__dict__["from_setter"] = value

        body["x"] = property(lambda self: "property", setter)
    elif now.startswith("property raising"):
        kind = {"AttributeError": AttributeError, "ValueError": ValueError}[now.split()[-1]]

        def getter(self):
            raise kind("from the getter")

        body["x"] = property(getter)
    return type("Cell", (impl.nn.Module,), body)


def start(impl, now):
    """A module in the state of the row, with neighbours before and after ``x`` in the registry it
    is in.
    """
    m = make_class(impl, now)()
    for when in ("before", "after"):
        if when == "after":
            if now.startswith("parameter"):
                m.register_parameter("x", None if now.endswith("none") else param(impl))
            elif now.startswith("module"):
                m.add_module("x", None if now.endswith("none") else impl.nn.Module())
            elif now.startswith("buffer"):
                value = None if now.endswith("none") else tensor(impl)
                m.register_buffer("x", value, persistent="*" not in now)
            elif now.startswith("instance"):
                m.x = None if now.endswith("none") else "plain"
        m.register_parameter(f"p_{when}", param(impl))
        m.register_buffer(f"b_{when}", tensor(impl))
        m.add_module(f"m_{when}", impl.nn.Module())
    return m


def make_value(impl, kind):
    return {
        "param": lambda: param(impl),
        "module": lambda: impl.nn.Module(),
        "buffer": lambda: buffer(impl),
        "buffer*": lambda: buffer(impl, persistent=False),
        "tensor": lambda: tensor(impl),
        "none": lambda: None,
        "other": lambda: [1],
    }[kind]()


def state(m):
    """Everything the assignment may change."""
    registries = {k: list(getattr(m, k).items()) for k in ("_parameters", "_buffers", "_modules")}
    plain = [(k, id(v)) for k, v in vars(m).items() if not k.startswith("_") and k != "training"]
    return registries, set(m._non_persistent_buffers_set), plain


def same(a, b):
    (ra, npa, pa), (rb, npb, pb) = a, b
    return (
        npa == npb
        and pa == pb
        and all([(k, id(v)) for k, v in ra[key]] == [(k, id(v)) for k, v in rb[key]] for key in ra)
    )


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "looked"])
@pytest.mark.parametrize("now, kind, outcome", CELLS)
def test_cell(impl, now, kind, outcome, looked):
    m = start(impl, now)
    if looked:
        assert m.__dict__ is m.__dict__
    value = make_value(impl, kind)
    before = {k: list(getattr(m, k)) for k in PLACES.values()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if outcome in ERRORS:
            untouched = None if impl.is_torch else state(m)
            with raises(ERRORS[outcome], *MESSAGES[outcome]):
                m.x = value
            if untouched:
                assert same(untouched, state(m))
            return
        m.x = value
    check_places(m, now, outcome, value, before)
    check_reading(m, now, outcome, value)


def check_places(m, now, outcome, value, before):
    """``x`` is in exactly the place of the outcome, in its old position when that was its place
    before.
    """
    place = PLACES.get(outcome.partition("=")[0])
    for key in ("_parameters", "_buffers", "_modules"):
        if key != place:
            assert list(getattr(m, key)) == [n for n in before[key] if n != "x"]
        else:
            order = before[key] if "x" in before[key] else [*before[key], "x"]
            assert list(getattr(m, key)) == order
            assert getattr(m, key)["x"] is value
    assert ("x" in m._non_persistent_buffers_set) == outcome.startswith("B*")
    assert ("x" in m.__dict__) == (outcome == "D")
    if outcome == "D":
        assert m.__dict__["x"] is value
    if outcome == "set":
        assert m.__dict__["from_setter"] is value


def check_reading(m, now, outcome, value):
    """Class attributes shadow a registered module; everything else reads back what was assigned."""
    shadows = {
        "class attribute": lambda: m.x == "class attribute",
        "method": lambda: m.x() == "method",
        "read-only property": lambda: m.x == "property",
        "property with setter": lambda: m.x == "property",
    }
    if now == "property raising ValueError":
        with pytest.raises(ValueError, match="from the getter"):
            _ = m.x
    elif now in shadows and outcome != "D":
        assert shadows[now]()
    else:
        assert m.x is value


@pytest.mark.parametrize("first", VALUES)
@pytest.mark.parametrize("second", VALUES)
def test_three_assignments_in_a_row(impl, first, second):
    """The composition: the place after each step follows from the table alone."""
    for third in VALUES:
        m = impl.nn.Module()
        now = "absent"
        for kind in (first, second, third):
            now = assign(impl, m, now, kind)


def assign(impl, m, now, kind):
    """One assignment to ``x`` in the state ``now``, checked; gives the state afterwards."""
    outcome = dict(zip(VALUES, MATRIX[now].split(), strict=True))[kind]
    value = make_value(impl, kind)
    if outcome in ERRORS:
        with raises(ERRORS[outcome], *MESSAGES[outcome]):
            m.x = value
        return now
    m.x = value
    assert m.x is value
    name, _, none = outcome.partition("=")
    rows = {"P": "parameter", "M": "module", "B": "buffer", "B*": "buffer*", "D": "instance"}
    assert sum("x" in place for place in (m._parameters, m._buffers, m._modules, m.__dict__)) == 1
    assert "x" in (m.__dict__ if name == "D" else getattr(m, PLACES[name]))
    return rows[name] + (" none" if none else "")
