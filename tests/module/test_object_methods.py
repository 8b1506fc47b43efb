# SPDX-License-Identifier: BSD-3-Clause
"""``object.__setattr__`` and ``__delattr__`` called on modules: past the registries, as on any
object; also by dataclasses, mixins and classes with methods of their own.
"""

from __future__ import annotations

import copy
import dataclasses

import pytest
from helpers.internals import needs_object_methods
from helpers.support import modes, raises
from helpers.util import INTERNAL_KEYS, names, one, param

pytestmark = needs_object_methods


# -- storing ---------------------------------------------------------------------------------------


def test_a_child_stays_out_of_the_registries(impl):
    for m in modes(impl.nn.Module):
        child, p = impl.nn.Module(), param(impl)
        assert object.__setattr__(m, "child", child) is None
        object.__setattr__(m, "p", p)
        assert m.child is child and m.p is p
        assert m.__dict__["child"] is child and m.__dict__["p"] is p
        assert list(m.children()) == [] and list(m.parameters()) == []
        assert list(m.state_dict()) == [] and repr(m) == "Module()"


def test_a_stored_name_shadows_a_registered_one(impl):
    for m in modes(impl.nn.Module):
        m.x = p = param(impl)
        object.__setattr__(m, "x", 3)
        assert m.x == 3 and m._parameters["x"] is p
        object.__delattr__(m, "x")
        assert m.x is p
        with raises(AttributeError):
            object.__delattr__(m, "x")
        assert m.x is p


@pytest.mark.parametrize("value", [False, "text", None])
def test_training_takes_effect(impl, value):
    for m in modes(impl.nn.Module):
        object.__setattr__(m, "training", value)
        assert m.training is value and m.__dict__["training"] is value
        m.train()
        assert m.training is True
        object.__setattr__(m, "training", False)
        assert impl.nn.Sequential(m).training is True and m.training is False


def test_forward_takes_effect(impl):
    class Own(impl.nn.Module):
        def forward(self, x):
            return "class"

    for m in modes(Own):
        assert m(1) == "class"
        object.__setattr__(m, "forward", lambda x: "instance")
        assert m(1) == "instance"
        object.__delattr__(m, "forward")
        assert m(1) == "class"


@pytest.mark.parametrize("name", ["train", "_apply", "named_parameters", "state_dict"])
def test_a_method_of_the_instance_takes_effect(impl, name):
    for m in modes(impl.nn.Module):
        calls = []

        def method(*args, m=m, calls=calls, **kwargs):
            calls.append(name)
            return getattr(type(m), name)(m, *args, **kwargs)

        root = impl.nn.Module()
        root.child = m
        object.__setattr__(m, name, method)
        root.eval(), root.float(), list(m.parameters()), root.state_dict()
        assert calls and set(calls) == {name}


@pytest.mark.parametrize("name", INTERNAL_KEYS)
def test_internal_entries_are_replaced_and_deleted(impl, name):
    for m in modes(impl.nn.Module):
        value = copy.copy(getattr(m, name))
        object.__setattr__(m, name, value)
        assert getattr(m, name) is value and m.__dict__[name] is value
        object.__delattr__(m, name)
        assert name not in m.__dict__
        with raises(AttributeError, name):
            getattr(m, name)
        with raises(AttributeError, name):
            object.__delattr__(m, name)
        object.__setattr__(m, name, value)
        assert getattr(m, name) is value


def test_registries_are_replaced(impl):
    for m in modes(impl.nn.Module):
        m.a = param(impl)
        object.__setattr__(m, "_parameters", {"b": param(impl, 2)})
        assert names(m.named_parameters()) == ["b"] and one(m.b) == 2
        with raises(AttributeError):
            m.a  # noqa: B018


def test_before_init(impl):
    made = impl.nn.Module.__new__(impl.nn.Module)
    object.__setattr__(made, "early", 1)
    object.__setattr__(made, "_modules", {})
    assert made.early == 1 and made._modules == {} and list(made.children()) == []
    with raises(AttributeError):
        made.training  # noqa: B018
    impl.nn.Module.__init__(made)
    assert made.early == 1 and made.training is True


def test_descriptors_of_the_class_come_first(impl):
    class Own(impl.nn.Module):
        @property
        def value(self):
            return self.__dict__["kept"]

        @value.setter
        def value(self, value):
            self.__dict__["kept"] = value

        @property
        def fixed(self):
            return 1

    for m in modes(Own):
        object.__setattr__(m, "value", param(impl))
        assert m.value is m.__dict__["kept"] and "value" not in m.__dict__
        with raises(AttributeError):
            object.__setattr__(m, "fixed", 2)
        with raises(AttributeError):
            object.__delattr__(m, "fixed")


def test_slots(impl):
    class Own(impl.nn.Module):
        __slots__ = ("child",)

    for m in modes(Own):
        child = impl.nn.Module()
        object.__setattr__(m, "child", child)
        assert m.child is child and "child" not in m.__dict__ and list(m.children()) == []
        object.__delattr__(m, "child")
        with raises(AttributeError):
            m.child  # noqa: B018


def test_dict_and_class_are_assigned(impl):
    class Own(impl.nn.Module):
        def forward(self, x):
            return x + 1

    class Mixin:
        pass

    class Mixed(Mixin, impl.nn.Module):
        pass

    for m in modes(impl.nn.Module):
        m.p = param(impl)
        object.__setattr__(m, "__class__", Own)
        assert m(1) == 2 and names(m.named_parameters()) == ["p"]
        object.__setattr__(m, "__dict__", {"training": 3})
        assert m.training == 3
        with raises(AttributeError):
            m._parameters  # noqa: B018
        with raises(TypeError):
            object.__setattr__(m, "__dict__", 3)
        with raises(TypeError):
            object.__setattr__(m, "__class__", int)
    for m in modes(Mixed):
        m.p = p = param(impl)
        object.__setattr__(m, "__dict__", {**m.__dict__, "x": 1})
        assert m.p is p and m.x == 1


def test_a_dict_that_was_assigned_takes_the_attributes(impl):
    m, attributes = impl.nn.Module(), dict(impl.nn.Module().__dict__)
    m.__dict__ = attributes
    child = impl.nn.Module()
    object.__setattr__(m, "child", child)
    assert attributes["child"] is child
    object.__delattr__(m, "child")
    assert "child" not in attributes


# -- classes ---------------------------------------------------------------------------------------


def test_frozen_dataclass(impl):
    @dataclasses.dataclass(frozen=True, eq=False)
    class Own(impl.nn.Module):
        size: int
        child: object

        def __post_init__(self):
            super().__init__()

        def forward(self, x):
            return x * self.size

    child = impl.nn.Module()
    m = Own(3, child)
    assert (m.size, m.child, m(2)) == (3, child, 6) and list(m.children()) == []
    with raises(dataclasses.FrozenInstanceError):
        m.size = 4
    with raises(dataclasses.FrozenInstanceError):
        del m.size
    object.__setattr__(m, "size", 4)
    assert m(2) == 8
    with raises(dataclasses.FrozenInstanceError):
        m.train(False)
    object.__setattr__(m, "training", False)
    assert m.training is False
    new = copy.deepcopy(m)
    assert new.size == 4 and new.child is not child
    assert dataclasses.replace(m, size=5).size == 5


def test_frozen_dataclass_with_fields_of_the_class_hash(impl):
    @dataclasses.dataclass(frozen=True)
    class Own(impl.nn.Module):
        size: int

        def __post_init__(self):
            super().__init__()

    assert Own(2) == Own(2) and hash(Own(2)) == hash((2,)) and {Own(2): 1}[Own(2)] == 1


def test_a_class_with_its_own_setattr(impl):
    class Own(impl.nn.Module):
        def __setattr__(self, name, value):
            if name.startswith("_own"):
                object.__setattr__(self, name, value)
            else:
                super().__setattr__(name, value)

        def __delattr__(self, name):
            if name.startswith("_own"):
                object.__delattr__(self, name)
            else:
                super().__delattr__(name)

    for m in modes(Own):
        m._own, m.child = impl.nn.Module(), impl.nn.Module()
        assert names(m.named_children()) == ["child"] and m.__dict__["_own"] is m._own
        del m._own, m.child
        assert names(m.named_children()) == [] and "_own" not in m.__dict__


def test_the_wrapper_of_a_model(impl):
    """As torch.compile's: its own module beside the registries, everything else from inside."""

    class Wrapper(impl.nn.Module):
        def __init__(self, inner):
            super().__init__()
            object.__setattr__(self, "_inner", inner)

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def forward(self, *args):
            return self._inner(*args)

    class Inner(impl.nn.Module):
        def forward(self, x):
            return x + 1

    m = Wrapper(Inner())
    m._inner.p = param(impl)
    assert m.p is m._inner.p and m(1) == 2 and list(m.parameters()) == []
    assert list(copy.deepcopy(m).__dict__) == [*INTERNAL_KEYS, "_inner"]


def test_past_module_come_the_methods_of_object(impl):
    class Own(impl.nn.Module):
        def __setattr__(self, name, value):
            if name.startswith("_own"):
                super(impl.nn.Module, self).__setattr__(name, value)
            else:
                super().__setattr__(name, value)

        def __delattr__(self, name):
            if name.startswith("_own"):
                super(impl.nn.Module, self).__delattr__(name)
            else:
                super().__delattr__(name)

    for m in modes(Own):
        m._own, m.child = impl.nn.Module(), impl.nn.Module()
        assert names(m.named_children()) == ["child"] and m.__dict__["_own"] is m._own
        past = super(impl.nn.Module, m)
        assert past.__getattribute__("_own") is m._own
        assert past.__getattribute__("_modules") is m._modules
        with raises(AttributeError, "child"):
            past.__getattribute__("child")
        del m._own, m.child
        assert names(m.named_children()) == [] and "_own" not in m.__dict__


@pytest.mark.parametrize("taken", ["__setattr__", "__delattr__", "__getattribute__"])
def test_a_class_may_take_the_methods_of_object(impl, taken):
    class Own(impl.nn.Module):
        locals()[taken] = getattr(object, taken)

        def forward(self, x):
            return "class"

    class Below(Own):
        pass

    for make in (Own, Below, lambda: copy.deepcopy(Own()), lambda: copy.copy(Below())):
        for m in modes(make):
            m.child, m.plain = impl.nn.Module(), 3
            # One slot serves both: a class with one of the two from object has CPython's way for
            # the other.
            registered = names(m.named_children())
            assert registered == ([] if taken == "__setattr__" else ["child"])
            m.training = False
            assert m.__dict__["training"] is False and m.training is False
            assert m.train().training is True
            m.forward = lambda x: "instance"
            assert m(1) == "instance" and m.plain == 3
            assert m._parameters == {} and list(m.state_dict()) == []
            del m.forward
            assert m(1) == "class"
