# SPDX-License-Identifier: BSD-3-Clause
"""``repr`` of modules."""

from __future__ import annotations

import random

import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import leaf, raises


def named(impl, name, extra=""):
    """An instance of a class of that name whose ``extra_repr`` gives ``extra``."""
    cls = type(name, (impl.nn.Module,), {"extra_repr": lambda self: extra})
    return cls()


def test_empty_module(impl):
    assert repr(impl.nn.Module()) == str(impl.nn.Module()) == "Module()"
    assert repr(named(impl, "Net")) == "Net()"


def test_parameters_and_buffers_are_not_shown(impl):
    m = leaf(impl, "w")
    m.register_buffer("b", impl.lib.tensor([1.0]))
    m.plain = 3
    assert repr(m) == "Module()"


def test_children(impl):
    m = named(impl, "Net")
    m.a = named(impl, "A")
    m.gone = named(impl, "Gone")
    m.gone = None
    m.b = named(impl, "B")
    m.b.inner = named(impl, "Inner", "x=1")
    assert repr(m) == (
        "Net(\n  (a): A()\n  (gone): None\n  (b): B(\n    (inner): Inner(x=1)\n  )\n)"
    )


def test_one_extra_line(impl):
    assert repr(named(impl, "Net", "in=1, out=2")) == "Net(in=1, out=2)"


def test_several_extra_lines(impl):
    assert repr(named(impl, "Net", "one\ntwo")) == "Net(\n  one\n  two\n)"
    assert repr(named(impl, "Net", "one\n\ntwo")) == "Net(\n  one\n  \n  two\n)"
    assert repr(named(impl, "Net", "\n")) == "Net(\n  \n  \n)"


def test_extra_line_with_children(impl):
    m = named(impl, "Net", "x=1")
    m.a = named(impl, "A")
    assert repr(m) == "Net(\n  x=1\n  (a): A()\n)"


@pytest.mark.parametrize("extra", [None, "", 0, [], ()], ids=repr)
def test_extra_that_is_false(impl, extra):
    assert repr(named(impl, "Net", extra)) == "Net()"


@pytest.mark.parametrize("extra", [3, ["x"], True], ids=repr)
def test_extra_that_is_no_text(impl, extra):
    with raises(AttributeError, "split"):
        repr(named(impl, "Net", extra))


def test_repr_of_a_child_is_indented(impl):
    class Own(impl.nn.Module):
        def __repr__(self):
            return "first\nsecond\n\n  third"

    m = named(impl, "Net")
    m.a = Own()
    assert repr(m) == "Net(\n  (a): first\n  second\n\n    third\n)"


def test_get_name_is_virtual(impl):
    class Own(impl.nn.Module):
        def _get_name(self):
            return "Another"

    assert repr(Own()) == "Another()"
    m = impl.nn.Module()
    m._get_name = lambda: "Instance"
    assert repr(m) == "Instance()"


def test_extra_repr_of_an_instance(impl):
    m = impl.nn.Module()
    m.extra_repr = lambda: "here"
    assert repr(m) == "Module(here)"
    assert impl.nn.Module().extra_repr() == ""


def test_unusual_child_names(impl):
    m = impl.nn.Module()
    for name in ("a.b", "", "ü", "0"):
        m._modules[name] = named(impl, "A")
    assert repr(m) == "Module(\n  (a.b): A()\n  (): A()\n  (ü): A()\n  (0): A()\n)"


def test_child_that_is_no_module(impl):
    m = impl.nn.Module()
    m._modules["x"] = 5
    assert repr(m) == "Module(\n  (x): 5\n)"


def test_exceptions_pass_through(impl):
    class Fails(impl.nn.Module):
        def extra_repr(self):
            raise LookupError("mine")

    m = impl.nn.Module()
    m.child = Fails()
    with raises(LookupError, "mine"):
        repr(m)


def test_shared_children_are_shown_each_time(impl):
    m = named(impl, "Net")
    m.a = named(impl, "A", "x")
    m.b = m.a
    assert repr(m) == "Net(\n  (a): A(x)\n  (b): A(x)\n)"


def test_missing_init(impl):
    class Forgot(impl.nn.Module):
        def __init__(self):
            pass

    with raises(AttributeError, "'Forgot' object has no attribute '_modules'"):
        repr(Forgot())


def test_cycle_is_a_recursion_error(impl):
    m = impl.nn.Module()
    m.again = m
    with pytest.raises(RecursionError):
        repr(m)


@needs_torch
@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
def test_random_trees_print_as_in_torch(kind):
    pieces = ("", " ", "x=1", "\t", "a\tb", "    deep", "\r", "ü", "\x0b", "\u2028y")

    def grow(impl, rng, depth):
        kind = rng.randrange(10)
        extra = "\n".join(rng.choices(pieces, k=rng.randrange(5)))
        if kind == 0:
            cls = type("Own", (impl.nn.Module,), {"__repr__": lambda self: extra})
        else:
            cls = type("Net", (impl.nn.Module,), {"extra_repr": lambda self: extra})
        m = cls()
        for i in range(rng.randrange(4) if depth else 0):
            m._modules[f"c{i}"] = None if rng.random() < 0.1 else grow(impl, rng, depth - 1)
        return m

    for seed in range(200):
        shown = [repr(grow(implementation(k), random.Random(seed), 3)) for k in ("torch", kind)]
        assert shown[1] == shown[0], seed


def test_deep_tree(ours):
    m = named(ours, "Leaf")
    for _ in range(500):
        parent = named(ours, "N")
        parent.c = m
        m = parent
    text = repr(m)
    assert text.count("(c): N(") == 499
    assert "  " * 500 + "(c): Leaf()" in text
