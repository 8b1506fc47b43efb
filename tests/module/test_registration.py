# SPDX-License-Identifier: BSD-3-Clause
"""``register_parameter``, ``register_buffer``, ``add_module`` / ``register_module``: what they
accept, and the order of checks.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers.implementations import HAS_TORCH
from helpers.limits import HANGS_AFTER
from helpers.support import raises
from helpers.util import buffer, names, param, tensor


def register(m, kind, name, value):
    {"parameter": m.register_parameter, "buffer": m.register_buffer, "module": m.add_module}[kind](
        name, value
    )


def good(impl, kind):
    return {"parameter": param, "buffer": tensor, "module": lambda i: i.nn.Module()}[kind](impl)


def registry(m, kind):
    return {"parameter": m._parameters, "buffer": m._buffers, "module": m._modules}[kind]


KINDS = ("parameter", "buffer", "module")


@pytest.mark.parametrize("kind", KINDS)
def test_registering_makes_it_readable_and_returns_none(impl, kind):
    m = impl.nn.Module()
    value = good(impl, kind)
    assert register(m, kind, "x", value) is None
    assert m.x is value and registry(m, kind) == {"x": value} and "x" not in m.__dict__


@pytest.mark.parametrize("kind", KINDS)
def test_keyword_names(impl, kind):
    m = impl.nn.Module()
    value = good(impl, kind)
    if kind == "parameter":
        m.register_parameter(name="x", param=value)
    elif kind == "buffer":
        m.register_buffer(name="x", tensor=value, persistent=False)
        assert m._non_persistent_buffers_set == {"x"}
    else:
        m.add_module(name="x", module=value)
        m.register_module(name="y", module=value)
        assert m.y is value
    assert m.x is value
    with pytest.raises(TypeError):
        m.register_parameter("x")
    with pytest.raises(TypeError):
        m.register_buffer("x", None, True, 1)
    with pytest.raises(TypeError):
        m.add_module("x", None, wrong=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, shown", [(3, "int"), (None, "NoneType"), (b"x", "bytes")])
def test_names_must_be_strings(impl, kind, name, shown):
    m = impl.nn.Module()
    with raises(TypeError, f"{kind} name should be a string. Got {shown}"):
        register(m, kind, name, good(impl, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_dots_and_empty_names(impl, kind):
    m = impl.nn.Module()
    dot = 'can\'t contain "."' + (", got: a.b" if kind == "module" else "")
    with raises(KeyError, f"{kind} name {dot}"):
        register(m, kind, "a.b", good(impl, kind))
    with raises(KeyError, f'{kind} name can\'t be empty string ""'):
        register(m, kind, "", good(impl, kind))
    assert registry(m, kind) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("holder", [*KINDS, "instance", "class", "property"])
def test_names_taken_elsewhere(impl, kind, holder):
    class M(impl.nn.Module):
        if holder == "class":
            x = 1
        if holder == "property":
            x = property(lambda self: 1)

    m = M()
    if holder in KINDS:
        register(m, holder, "x", good(impl, holder))
    elif holder == "instance":
        m.x = None
    if holder == kind:
        value = good(impl, kind)
        register(m, kind, "x", value)  # overwriting in the same registry is fine
        assert m.x is value
    else:
        with raises(KeyError, "attribute 'x' already exists"):
            register(m, kind, "x", good(impl, kind))
        assert "x" not in registry(m, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_overwriting_keeps_the_place(impl, kind):
    m = impl.nn.Module()
    for name in "abc":
        register(m, kind, name, good(impl, kind))
    register(m, kind, "b", None)
    assert list(registry(m, kind)) == ["a", "b", "c"] and m.b is None
    value = good(impl, kind)
    register(m, kind, "b", value)
    assert list(registry(m, kind)) == ["a", "b", "c"] and m.b is value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["0", "a b", "ünï", "\udcff", "x" * 1000, "\0", " "])
def test_odd_names(impl, kind, name):
    m = impl.nn.Module()
    value = good(impl, kind)
    register(m, kind, name, value)
    assert getattr(m, name) is value and list(registry(m, kind)) == [name]
    delattr(m, name)
    assert registry(m, kind) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_getattr_that_never_fails_makes_every_name_taken(impl, kind):
    class M(impl.nn.Module):
        def __getattr__(self, name):
            if name.startswith("_"):
                return super().__getattr__(name)
            return 3

    m = M()
    with raises(KeyError, "attribute 'x' already exists"):
        register(m, kind, "x", good(impl, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_of_a_getter_come_through_the_existence_check(impl, kind):
    class M(impl.nn.Module):
        @property
        def x(self):
            raise ZeroDivisionError("getter")

    with raises(ZeroDivisionError, "getter"):
        register(M(), kind, "x", good(impl, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_whose_property_raises_attribute_error_is_free(impl, kind):
    class M(impl.nn.Module):
        @property
        def x(self):
            raise AttributeError("getter")

    m = M()
    value = good(impl, kind)
    register(m, kind, "x", value)
    assert m.x is value


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [3, "s", [1], np.zeros(2), object()], ids=lambda v: type(v).__name__
)
def test_wrong_values(impl, value):
    m = impl.nn.Module()
    with raises(
        TypeError,
        "cannot assign '",
        "' object to parameter 'x' (torch.nn.Parameter or None required)",
    ):
        m.register_parameter("x", value)
    with raises(
        TypeError, "cannot assign '", "' object to buffer 'x' (torch Tensor or None required)"
    ):
        m.register_buffer("x", value)
    with raises(TypeError, "is not a Module subclass"):
        m.add_module("x", value)
    assert not hasattr(m, "x")


def test_a_tensor_or_module_is_no_parameter(impl):
    m = impl.nn.Module()
    for value in (tensor(impl), buffer(impl), impl.nn.Module()):
        with raises(TypeError, "object to parameter 'x' (torch.nn.Parameter or None required)"):
            m.register_parameter("x", value)
    with raises(TypeError, "object to buffer 'x' (torch Tensor or None required)"):
        m.register_buffer("x", impl.nn.Module())
    with raises(TypeError, "is not a Module subclass"):
        m.add_module("x", param(impl))
    with raises(TypeError, "is not a Module subclass"):
        m.add_module("x", impl.nn.Module)  # the class, not an instance


@pytest.mark.parametrize(
    "value, shown",
    [(3, "int"), ("s", "str"), ([1], "list"), (int, "int"), (np.float32(1), "numpy.float32")],
    ids=["int", "str", "list", "class", "numpy scalar"],
)
def test_how_types_are_named(impl, value, shown):
    m = impl.nn.Module()
    with raises(TypeError, f"cannot assign '{shown}' object to parameter 'x'"):
        m.register_parameter("x", value)
    with raises(TypeError, f"{shown} is not a Module subclass"):
        m.add_module("x", value)
    m.register_parameter("p", None)
    with raises(TypeError, f"cannot assign '{shown}' as parameter 'p'"):
        m.p = value
    m.add_module("c", None)
    with raises(TypeError, f"cannot assign '{shown}' as child module 'c'"):
        m.c = value


def test_a_user_class_is_named_with_its_module(impl):
    class Thing:
        pass

    with raises(
        TypeError, f"cannot assign '{__name__}.{Thing.__qualname__}' object to parameter 'x'"
    ):
        impl.nn.Module().register_parameter("x", Thing())


def test_order_of_checks_of_parameters_and_buffers(impl):
    m = impl.nn.Module()
    m.x = 1
    for register_one in (m.register_parameter, m.register_buffer):
        with raises(TypeError, "name should be a string"):
            register_one(3, "wrong value")
        with raises(KeyError, "can't contain"):
            register_one("x.y", "wrong value")
        with raises(KeyError, "can't be empty"):
            register_one("", "wrong value")
        with raises(KeyError, "already exists"):
            register_one("x", "wrong value")
        with raises(TypeError, "cannot assign"):
            register_one("y", "wrong value")


def test_order_of_checks_of_modules(impl):
    m = impl.nn.Module()
    m.x = 1
    m.__dict__["a.b"] = m.__dict__[""] = 1
    child = impl.nn.Module()
    with raises(TypeError, "is not a Module subclass"):
        m.add_module(3, "wrong value")
    with raises(TypeError, "module name should be a string"):
        m.add_module(3, child)
    with raises(KeyError, "attribute 'a.b' already exists"):
        m.add_module("a.b", child)
    with raises(KeyError, "attribute '' already exists"):
        m.add_module("", child)
    m._modules["d.d"] = m._modules[""] = None
    with raises(KeyError, 'module name can\'t contain ".", got: d.d'):
        m.add_module("d.d", child)


def test_names_of_modules_are_judged_before_a_missing_registry(impl):
    m, child = impl.nn.Module(), impl.nn.Module()
    del m._modules
    for name, text in (("", "can't be empty"), ("a.b", "can't contain")):
        with raises(KeyError, f"module name {text}"):
            m.add_module(name, child)
    for name in ("a", "training"):
        with raises(AttributeError, "'_modules'"):
            m.add_module(name, child)


def test_none_entries(impl):
    m = impl.nn.Module()
    m.register_parameter("p", None)
    m.register_buffer("b", None)
    m.register_buffer("n", None, persistent=False)
    m.add_module("c", None)
    assert m.p is m.b is m.c is m.n is None
    assert m._parameters == {"p": None} and m._buffers == {"b": None, "n": None}
    assert m._modules == {"c": None} and m._non_persistent_buffers_set == {"n"}
    assert list(m.parameters()) == list(m.buffers()) == list(m.children()) == []
    assert list(m.state_dict()) == []


# -- buffers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "persistent, kept", [(True, True), (1, True), (False, False), (0, False), ("", False)]
)
def test_persistence_is_truthiness(impl, persistent, kept):
    m = impl.nn.Module()
    m.register_buffer("b", tensor(impl), persistent=not kept)
    m.register_buffer("b", tensor(impl), persistent)
    assert ("b" in m._non_persistent_buffers_set) == (not kept)
    assert list(m.state_dict()) == (["b"] if kept else [])


def test_register_buffer_ignores_the_flag_of_the_value(impl):
    m = impl.nn.Module()
    m.register_buffer("b", buffer(impl, persistent=False))
    assert m._non_persistent_buffers_set == set()
    m.register_buffer("c", buffer(impl, persistent=True), persistent=False)
    assert m._non_persistent_buffers_set == {"c"}


def test_a_parameter_may_be_a_buffer(impl):
    m = impl.nn.Module()
    p = param(impl)
    m.register_buffer("b", p)
    assert list(m.parameters()) == [] and list(m.buffers()) == [p] and m.b is p


# -- modules ---------------------------------------------------------------------------------------


def test_register_module_calls_add_module(impl):
    calls = []

    class M(impl.nn.Module):
        def add_module(self, name, module):
            calls.append((name, module))

    m = M()
    child = impl.nn.Module()
    assert m.register_module("x", child) is None
    assert calls == [("x", child)] and not m._modules


def test_a_module_can_be_registered_in_itself_and_twice(impl):
    m = impl.nn.Module()
    child = impl.nn.Module()
    m.add_module("a", child)
    m.add_module("b", child)
    m.add_module("me", m)
    assert names(m.named_modules()) == ["", "a"]
    assert m.me.me.a is child


def test_register_methods_are_overridable(impl):
    class Prefixed(impl.nn.Module):
        def register_parameter(self, name, param):
            super().register_parameter("own_" + name, param)

    m = Prefixed()
    m.w = param(impl)
    assert list(m._parameters) == ["own_w"] and not hasattr(m, "w")


def test_the_way_out_of_a_name_that_is_taken(ours):
    """What the message says is done: a `del` of what a class has does nothing."""

    class Model(ours.nn.Module):
        constant = 3

        @property
        def computed(self):
            return 3

        @computed.setter
        def computed(self, value):
            pass

    model = Model()
    model.plain, model.child = 3, ours.nn.Module()
    model.weight, model.table = param(ours, 1.0), buffer(ours, 1.0)
    model.__dict__["constant"] = 4
    for name in ("plain", "child", "weight", "table", "constant", "computed", "forward"):
        with raises(KeyError, f"attribute '{name}' already exists", "choose another name") as info:
            register = model.register_buffer if name == "weight" else model.register_parameter
            register(name, None)
        if "delete it first" in str(info.value):
            delattr(model, name)
            model.register_buffer(name, None)
        else:
            assert name in ("constant", "computed", "forward")


def test_class_getattr_is_asked_for_a_name_that_is_registered(impl):
    asked = []

    class Asked(impl.nn.Module):
        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    m = Asked()
    m.register_parameter("w", None)
    m.register_buffer("b", None)
    m.add_module("c", None)
    asked.clear()
    m.register_parameter("w", impl.nn.Parameter(impl.lib.tensor([1.0])))
    m.register_buffer("b", impl.lib.tensor([1.0]))
    m.add_module("c", impl.nn.Module())
    m.w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    assert asked == ["w", "b", "c", "w"]


def test_error_of_the_class_getattr_refuses_a_registered_name(impl):
    class Refusing(impl.nn.Module):
        def __getattr__(self, name):
            if name == "b":
                raise LookupError(name)
            return super().__getattr__(name)

    m = Refusing()
    m._buffers["b"] = None
    with pytest.raises(LookupError):
        m.register_buffer("b", impl.lib.tensor([1.0]))
    assert m._buffers["b"] is None


def test_messages_name_what_is_there():
    """In a program without torch they name modtree's classes."""
    code = """if True:
        import sys
        from modtree import nn
        if "torch" in sys.argv:
            import torch
        m = nn.Linear(2, 2)
        m.register_buffer("b", None)
        for change in (
            lambda: setattr(m, "weight", 1),
            lambda: m.register_parameter("x", 1),
            lambda: m.register_buffer("x", 1),
            lambda: setattr(m, "b", 1),
        ):
            try:
                change()
            except TypeError as error:
                print(str(error).partition("(")[2])
    """
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    assert said.stdout.splitlines() == [
        "modtree.nn.Parameter or None expected)",
        "modtree.nn.Parameter or None required)",
        "modtree Tensor or None required)",
        "modtree.nn.Buffer, modtree.Tensor or None expected)",
    ], said.stderr
    if HAS_TORCH:
        said = subprocess.run([*command, "torch"], capture_output=True, text=True)
        assert said.stdout.startswith("torch.nn.Parameter or None expected)\n"), said.stderr


def test_class_in_place_of_a_module(ours):
    with raises(TypeError, "is not a Module subclass: it is a class; call it, as in nn.ReLU()"):
        ours.nn.Sequential(ours.nn.Identity)
    with raises(TypeError, "int is not a Module subclass"):
        ours.nn.Sequential(3)
