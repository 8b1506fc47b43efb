# SPDX-License-Identifier: BSD-3-Clause
"""Reading attributes."""

from __future__ import annotations

import copy
import pickle

import pytest
from helpers.support import raises
from helpers.util import buffer, names, param, tensor

# -- reading -------------------------------------------------------------------------------------


def test_registries_are_read_in_order(impl):
    m = impl.nn.Module()
    p, t, child = param(impl), tensor(impl), impl.nn.Module()
    m._modules["x"] = child
    assert m.x is child
    m._buffers["x"] = t
    assert m.x is t
    m._parameters["x"] = p
    assert m.x is p
    m._parameters["x"] = None  # a None entry is found too
    assert m.x is None


def test_a_missing_name(impl):
    class Own(impl.nn.Module):
        pass

    m = Own()
    with raises(AttributeError, "'Own' object has no attribute 'nope'") as info:
        _ = m.nope
    assert info.value.name == "nope" and info.value.obj is m
    assert getattr(m, "nope", 5) == 5 and not hasattr(m, "nope")
    with raises(AttributeError, "'Own' object has no attribute '\udcff'"):
        getattr(m, "\udcff")


def test_getattr_can_be_called_directly(impl):
    m = impl.nn.Module()
    m.p, m.plain = param(impl), 3
    assert m.__getattr__("p") is m.p
    assert impl.nn.Module.__getattr__(m, "p") is m.p
    with raises(AttributeError, "'Module' object has no attribute 'plain'"):
        m.__getattr__("plain")  # only the registries


def test_class_attributes_shadow_the_registries(impl):
    class M(impl.nn.Module):
        klass = "class"

        def method(self):
            return "method"

    m = M()
    for name in ("klass", "method"):
        m._parameters[name] = param(impl)
    assert m.klass == "class" and m.method() == "method"
    del M.klass
    assert m.klass is m._parameters["klass"]
    M.klass = "again"
    assert m.klass == "again"


def test_a_property_put_on_the_class_later_wins(impl):
    class M(impl.nn.Module):
        pass

    m = M()
    m.x = param(impl)
    assert m.x is m._parameters["x"]
    M.x = property(lambda self: "property")
    assert m.x == "property"
    del M.x
    assert m.x is m._parameters["x"]


def test_a_base_class_attribute_added_later_wins(impl):
    class Base(impl.nn.Module):
        pass

    class M(Base):
        pass

    m = M()
    m.x = param(impl)
    assert m.x is m._parameters["x"]
    Base.x = 3
    assert m.x == 3
    del Base.x
    assert m.x is m._parameters["x"]


def test_instance_entries_shadow_the_registries(impl):
    m = impl.nn.Module()
    m.x = param(impl)
    m.__dict__["x"] = "plain"
    assert m.x == "plain"
    m._buffers["y"] = tensor(impl)
    vars(m)["y"] = "plain"
    assert m.y == "plain"


def test_data_descriptors_win_over_the_instance(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            return "property"

    m = M()
    m.__dict__["x"] = "instance"
    m._parameters["x"] = param(impl)
    assert m.x == "property"


def test_a_property_may_read_registered_values(impl):
    class M(impl.nn.Module):
        @property
        def both(self):
            return self.a, self.b

    m = M()
    m.a, m.b = param(impl), impl.nn.Module()
    assert m.both == (m.a, m.b)


def test_other_exceptions_of_a_getter_propagate(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            raise KeyError("inside")

    m = M()
    m._parameters["x"] = param(impl)
    with raises(KeyError, "inside"):
        _ = m.x
    with raises(KeyError, "inside"):
        hasattr(m, "x")


def test_a_failing_property_falls_back_to_the_registry(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            raise AttributeError("inside")

    m = M()
    with pytest.raises(AttributeError):
        _ = m.x
    m._parameters["x"] = param(impl)
    assert m.x is m._parameters["x"]


def test_an_attribute_error_inside_a_property_keeps_its_message(ours):
    calls = []

    class M(ours.nn.Module):
        @property
        def size(self):
            calls.append(1)
            return self.wrong_name

    m = M()
    with raises(AttributeError, "'M' object has no attribute 'wrong_name'") as info:
        _ = m.size
    assert "'size'" not in str(info.value)
    assert isinstance(info.value.__cause__, AttributeError) or info.value.name == "wrong_name"
    assert len(calls) == 1  # the getter ran once
    assert getattr(m, "size", 7) == 7


def test_a_custom_attribute_error_of_a_property_keeps_its_type_and_text(ours):
    class Special(AttributeError):
        pass

    class M(ours.nn.Module):
        @property
        def x(self):
            raise Special("needs fit() first")

    with raises(Special, "needs fit() first"):
        _ = M().x


def test_user_getattr_with_super(impl):
    class M(impl.nn.Module):
        def __getattr__(self, name):
            if name == "magic":
                return "magic"
            return super().__getattr__(name)

    m = M()
    m.p, m.child, m.plain = param(impl), impl.nn.Module(), 3
    assert m.magic == "magic" and m.p is m._parameters["p"]
    assert m.child is m._modules["child"] and m.plain == 3
    with raises(AttributeError, "'M' object has no attribute 'nope'"):
        _ = m.nope


def test_user_getattribute_with_super(impl):
    seen = []

    class M(impl.nn.Module):
        def __getattribute__(self, name):
            seen.append(name)
            return super().__getattribute__(name)

    m = M()
    m.p = param(impl)
    seen.clear()
    assert m.p is m._parameters["p"]
    assert "p" in seen
    with raises(AttributeError, "'M' object has no attribute 'nope'"):
        _ = m.nope


def test_deleting_asks_getattr_for_a_registry_that_is_gone(impl):
    """As a module does that shows the registries of another one instead of its own."""

    class Stand(impl.nn.Module):
        def __init__(self, other):
            super().__init__()
            self.__dict__["other"] = other
            for name in ("_parameters", "_buffers", "_modules", "training"):
                delattr(self, name)

        def __getattr__(self, name):
            if "other" not in self.__dict__:
                return super().__getattr__(name)
            return getattr(self.other, name)

    other = impl.nn.Module()
    other.p, other.b = param(impl), buffer(impl)
    m = Stand(other)
    assert m._parameters is other._parameters and m.training is True
    del m.p
    assert names(other.named_parameters()) == [] and names(other.named_buffers()) == ["b"]
    with pytest.raises(AttributeError):
        del m.nothing


def test_a_mixin_getattr_before_module(impl):
    class Mixin:
        def __getattr__(self, name):
            if name.startswith("auto_"):
                return name[5:]
            return super().__getattr__(name)

    class M(Mixin, impl.nn.Module):
        pass

    m = M()
    m.p = param(impl)
    assert m.auto_x == "x" and m.p is m._parameters["p"] and not hasattr(m, "nope")


@pytest.mark.parametrize("name", [3, None, b"x", 1.5])
def test_names_that_are_no_strings(impl, name):
    m = impl.nn.Module()
    with pytest.raises(TypeError):
        getattr(m, name)
    with pytest.raises(TypeError):
        setattr(m, name, 1)
    with pytest.raises(TypeError):
        delattr(m, name)


def test_names_of_a_str_subclass_and_uninterned_names(impl):
    class Name(str):
        pass

    m = impl.nn.Module()
    p, child = param(impl), impl.nn.Module()
    setattr(m, Name("weight"), p)
    setattr(m, "".join(["chi", "ld"]), child)
    assert m.weight is p and getattr(m, Name("weight")) is p
    assert getattr(m, "".join(["wei", "ght"])) is p
    assert m.child is child and getattr(m, "".join(["c", "hild"])) is child
    setattr(m, "".join(["_para", "meters"]), {})
    assert m._parameters == {} and not hasattr(m, "weight")
    delattr(m, Name("child"))
    assert not hasattr(m, "child")


@pytest.mark.parametrize("through", ["pickle", "deepcopy", "update"])
@pytest.mark.parametrize("looked_at", [False, True], ids=["compact", "exposed"])
def test_names_that_are_equal_but_not_the_same_objects(impl, through, looked_at):
    m = impl.nn.Linear(2, 2)
    m.register_buffer("count", impl.lib.zeros(1))
    m.child, m.größe, m.日本 = impl.nn.Identity(), impl.nn.Identity(), 1
    if through == "pickle":
        m = pickle.loads(pickle.dumps(m))
    elif through == "deepcopy":
        m = copy.deepcopy(m)
    else:
        for table in (m._parameters, m._buffers, m._modules):
            entries = {"".join(list(name)): value for name, value in table.items()}
            table.clear()
            table.update(entries)
    if looked_at:
        assert "_parameters" in vars(m)
    for _ in range(3):
        assert m.weight is m._parameters["weight"] and m.bias is m._parameters["bias"]
        assert m.count is m._buffers["count"] and m.child is m._modules["child"]
        assert m.größe is m._modules["größe"] and m.日本 == 1
        for name in ("weigh", "weights", "Weight", "chil", "grosse", "日", ""):
            assert not hasattr(m, name)
    m.weight = None
    assert m.weight is None and list(m._parameters) == ["weight", "bias"]
    del m.child
    assert not hasattr(m, "child")


@pytest.mark.parametrize("name", ["nope", "größe", "日本", "x" * 300, "a.b", "%s"])
@pytest.mark.parametrize("class_name", ["Plain", "Größe", "日本", "N" * 300])
def test_message_of_a_missing_attribute(impl, name, class_name):
    m = type(class_name, (impl.nn.Module,), {})()
    for _ in range(3):
        with pytest.raises(AttributeError) as info:
            getattr(m, name)
        assert str(info.value)[:150] == f"'{class_name}' object has no attribute '{name}'"[:150]
        assert getattr(m, name, 5) == 5 and not hasattr(m, name)
    setattr(m, name, 1)
    assert getattr(m, name) == 1
    delattr(m, name)
    assert not hasattr(m, name)
