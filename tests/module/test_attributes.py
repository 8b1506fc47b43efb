# SPDX-License-Identifier: BSD-3-Clause
"""Reading, writing and deleting attributes (the table of transitions has its own file)."""

from __future__ import annotations

import copy
import warnings

import pytest
from helpers.support import raises, warns
from helpers.util import INTERNAL_KEYS, buffer, names, param, tensor

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


# -- writing -------------------------------------------------------------------------------------

PLAIN = [1, 2.5, "s", None, [1], {"a": 1}, (1,), object(), int, len]


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: type(v).__name__)
def test_plain_values_are_attributes(impl, value):
    m = impl.nn.Module()
    m.x = value
    assert m.x is value and m.__dict__["x"] is value
    assert not m._parameters and not m._buffers and not m._modules


def test_plain_attributes_keep_their_order(impl):
    m = impl.nn.Module()
    m.b, m.a, m.c = 1, 2, 3
    m.b = 4
    del m.a
    m.a = 5
    assert [k for k in m.__dict__ if k not in INTERNAL_KEYS] == ["b", "c", "a"]


def test_containers_of_python_are_opaque(impl):
    m = impl.nn.Module()
    m.list, m.dict = [param(impl), impl.nn.Module()], {"p": param(impl)}
    m.tuple = (tensor(impl), buffer(impl))
    assert list(m.parameters()) == list(m.children()) == list(m.buffers()) == []


def test_a_parameter_flag_makes_a_tensor_a_parameter(impl):
    m = impl.nn.Module()
    t = tensor(impl)
    t._is_param = True
    m.x = t
    assert m._parameters["x"] is t
    t2 = buffer(impl)
    t2._is_param = True  # wins over the buffer flag
    m.y = t2
    assert m._parameters["y"] is t2 and "y" not in m._buffers


def test_a_buffer_flag_makes_a_tensor_a_buffer(impl):
    m = impl.nn.Module()
    t = tensor(impl)
    t._is_buffer, t.persistent = True, False
    m.x = t
    assert m._buffers["x"] is t and m._non_persistent_buffers_set == {"x"}


def test_assigning_a_tensor_keeps_the_persistence(impl):
    m = impl.nn.Module()
    m.register_buffer("on", tensor(impl))
    m.register_buffer("off", tensor(impl), persistent=False)
    m.on, m.off = tensor(impl, 2), tensor(impl, 2)
    assert m._non_persistent_buffers_set == {"off"}
    m.on, m.off = None, None
    assert m._non_persistent_buffers_set == {"off"}
    m.off = buffer(impl)
    assert m._non_persistent_buffers_set == set()
    m.off = buffer(impl, persistent=False)
    assert m._non_persistent_buffers_set == {"off"}
    m.off = param(impl)  # for step 1 a parameter is a parameter, whatever the name was
    assert m._non_persistent_buffers_set == set() and list(m._parameters) == ["off"]


def test_moving_between_kinds_appends_and_rewriting_keeps_the_place(impl):
    m = impl.nn.Module()
    m.a, m.b, m.c = param(impl), param(impl), param(impl)
    m.a = param(impl)
    m.b = None
    m.b = param(impl)
    assert list(m._parameters) == ["a", "b", "c"]
    del m.a
    m.a = param(impl)
    assert list(m._parameters) == ["b", "c", "a"]
    m.x, m.y = impl.nn.Module(), impl.nn.Module()
    m.x = None
    m.x = impl.nn.Module()
    assert list(m._modules) == ["x", "y"]
    m.x = param(impl)
    assert list(m._modules) == ["y"] and list(m._parameters) == ["b", "c", "a", "x"]
    for name in "pq":
        m.register_buffer(name, tensor(impl))
    m.p = None
    m.p = tensor(impl)
    assert list(m._buffers) == ["p", "q"]
    m.p = impl.nn.Module()
    assert list(m._buffers) == ["q"] and list(m._modules) == ["y", "p"]


def test_none_as_plain_value_and_as_reserved_slot(impl):
    m = impl.nn.Module()
    m.plain = None
    m.register_parameter("slot", None)
    with raises(KeyError, "attribute 'plain' already exists"):
        m.plain = buffer(impl)
    m.plain = impl.nn.Module()
    with raises(TypeError, "as parameter 'slot' (torch.nn.Parameter or None expected)"):
        m.slot = tensor(impl)
    m.slot = param(impl)
    assert list(m._parameters) == ["slot"]


@pytest.mark.parametrize("name", ["a.b", "", "0", "a b", "ünï", "\udcff", "."])
def test_odd_names_for_every_kind(impl, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = impl.nn.Module()
        child = impl.nn.Module()
        setattr(m, name, child)
        assert getattr(m, name) is child and list(m._modules) == [name]
        setattr(m, name, None)
        assert getattr(m, name) is None
        delattr(m, name)
        setattr(m, name, "plain")
        assert m.__dict__[name] == "plain"
        delattr(m, name)
        for value in (param(impl), buffer(impl)):
            if name == "" or "." in name:
                with raises(KeyError, "name can't"):
                    setattr(m, name, value)
                assert not hasattr(m, name)
            else:
                setattr(m, name, value)
                assert getattr(m, name) is value
                delattr(m, name)


@pytest.mark.parametrize("name", ["a.b", "", "."])
def test_a_module_under_a_name_that_breaks_paths_warns(ours, name):
    m = ours.nn.Module()
    child = ours.nn.Module()
    with warns(UserWarning, repr(name)):
        setattr(m, name, child)
    assert list(m._modules) == [name] and m._modules[name] is child


def test_colliding_paths_keep_the_later_value(impl):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m, inner, dotted = impl.nn.Module(), impl.nn.Module(), impl.nn.Module()
        inner.b = impl.nn.Module()
        inner.b.w, dotted.w = param(impl, 1), param(impl, 2)
        m.a = inner
        setattr(m, "a.b", dotted)
    assert names(m.named_parameters()) == ["a.b.w", "a.b.w"]
    assert list(m.state_dict()) == ["a.b.w"]
    assert float(m.state_dict()["a.b.w"][0]) == 2.0


def test_a_user_setattr_with_super(impl):
    seen = []

    class M(impl.nn.Module):
        def __setattr__(self, name, value):
            seen.append(name)
            super().__setattr__(name, value)

    m = M()
    seen.clear()
    m.p, m.c, m.x = param(impl), impl.nn.Module(), 3
    assert seen == ["p", "c", "x"]
    assert list(m._parameters) == ["p"] and list(m._modules) == ["c"] and m.__dict__["x"] == 3


def test_assignment_calls_the_register_methods_of_the_class(impl):
    calls = []

    class M(impl.nn.Module):
        def register_parameter(self, name, value):
            calls.append(("parameter", name, value))
            super().register_parameter(name, value)

        def register_buffer(self, name, value, persistent=True):
            calls.append(("buffer", name, value, persistent))
            super().register_buffer(name, value, persistent)

        def add_module(self, name, module):
            calls.append(("module", name, module))

    m = M()
    p, b, t, child = param(impl), buffer(impl, persistent=False), tensor(impl), impl.nn.Module()
    m.p, m.b = p, b
    m.b = t
    m.p = None
    m.c = child
    assert calls == [
        ("parameter", "p", p),
        ("buffer", "b", b, False),
        ("buffer", "b", t, False),
        ("parameter", "p", None),
    ]
    assert m._modules["c"] is child


def test_assignment_calls_register_methods_of_the_instance(impl):
    m = impl.nn.Module()
    calls = []
    m.register_parameter = lambda name, value: calls.append(("parameter", name))
    m.register_buffer = lambda name, value, persistent=True: calls.append(("buffer", name))
    m.p, m.b = param(impl), buffer(impl)
    assert calls == [("parameter", "p"), ("buffer", "b")]
    assert not m._parameters and not m._buffers


def test_register_buffer_overridden_without_persistent(impl):
    calls = []

    class M(impl.nn.Module):
        def register_buffer(self, name, value):
            calls.append(name)
            super().register_buffer(name, value)

    m = M()
    m.b = buffer(impl)
    assert calls == ["b"] and list(m._buffers) == ["b"]
    with raises(RuntimeError, "Registering a non-persistent buffer on a Module subclass"):
        m.c = buffer(impl, persistent=False)


def test_a_buffer_counter_updated_in_forward(impl):
    """The usual ``self.n = self.n + 1``: stays a buffer, keeps its place and its flag."""

    class Counter(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", impl.lib.tensor(0.0), persistent=False)
            self.register_buffer("other", impl.lib.tensor(0.0))

        def forward(self):
            self.n = self.n + 1

    m = Counter()
    for _ in range(5):
        m()
    assert float(m.n) == 5.0 and list(m._buffers) == ["n", "other"]
    assert m._non_persistent_buffers_set == {"n"}


def test_a_property_setter_sees_plain_values_only(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            return self.__dict__.get("_kept")

        @x.setter
        def x(self, value):
            self.__dict__["_kept"] = value

    m = M()
    for value in (3, None, tensor(impl)):
        m.x = value
        assert m._kept is value and "x" not in m.__dict__
    child = impl.nn.Module()
    m.x = child
    assert m._modules["x"] is child and m._kept is not child


def test_class_annotations_and_slots_do_not_matter(impl):
    class M(impl.nn.Module):
        __slots__ = ("s",)
        weight: int

    m = M()
    m.s = tensor(impl)
    m.weight = param(impl)
    assert "s" not in m.__dict__ and list(m._parameters) == ["weight"]


# -- failed assignments --------------------------------------------------------------------------


def non_leaf(impl):
    """A tensor that says it is a parameter but was computed."""
    t = param(impl) * 2
    if not getattr(t, "grad_fn", None):
        pytest.skip("tensors of this library have no graph yet")
    t._is_param = True
    return t


def test_a_non_leaf_parameter_is_refused(impl):
    m = impl.nn.Module()
    with raises(ValueError, "Cannot assign non-leaf Tensor to parameter 'x'"):
        m.register_parameter("x", non_leaf(impl))
    assert "x" not in m._parameters


@pytest.mark.parametrize("case", ["dotted", "empty", "class"])
@pytest.mark.parametrize("old", ["plain", "module", "buffer"])
def test_a_failed_parameter_assignment_changes_nothing(ours, case, old):
    name = {"dotted": "a.b", "empty": "", "class": "forward"}[case]
    m = ours.nn.Module()
    value = {"plain": 3, "module": ours.nn.Module(), "buffer": tensor(ours)}[old]
    if old == "plain":
        m.__dict__[name] = value
    else:
        {"module": m._modules, "buffer": m._buffers}[old][name] = value
    m._non_persistent_buffers_set.add(name)
    with pytest.raises(KeyError):
        setattr(m, name, param(ours))
    if old == "plain":
        assert m.__dict__[name] == 3
    else:
        assert {"module": m._modules, "buffer": m._buffers}[old][name] is value
    assert m._non_persistent_buffers_set == {name}


@pytest.mark.parametrize("old", ["plain", "module", "buffer"])
def test_a_failing_registration_hook_changes_nothing(ours, old):
    m = ours.nn.Module()
    value = {"plain": 3, "module": ours.nn.Module(), "buffer": tensor(ours)}[old]
    if old == "buffer":
        m.register_buffer("x", value, persistent=False)
    else:
        m.x = value

    def hook(module, name, value):
        raise RuntimeError("refused")

    handle = ours.module.register_module_parameter_registration_hook(hook)
    try:
        with raises(RuntimeError, "refused"):
            m.x = param(ours)
    finally:
        handle.remove()
    assert m.x is value or m.x == value
    assert ("x" in m._non_persistent_buffers_set) == (old == "buffer")
    m.x = param(ours)
    assert list(m._parameters) == ["x"]


@pytest.mark.parametrize("old", ["plain", "buffer", "training"])
def test_a_module_refused_by_a_hook_changes_nothing(ours, old):
    m = ours.nn.Module()
    name = "training" if old == "training" else "x"
    m.x = buffer(ours, persistent=False) if old == "buffer" else 3
    value = getattr(m, name)

    def hook(module, name, value):
        raise RuntimeError("refused")

    with ours.module.register_module_module_registration_hook(hook):
        with raises(RuntimeError, "refused"):
            setattr(m, name, ours.nn.Module())
    assert getattr(m, name) is value
    assert m._non_persistent_buffers_set == ({"x"} if old == "buffer" else set())


def test_torch_loses_the_old_entry_where_ours_keeps_it(impl):
    """The difference pinned from both sides (docs/compat.md)."""
    m = impl.nn.Module()
    m.__dict__["a.b"] = 3
    with raises(KeyError, 'parameter name can\'t contain "."'):
        setattr(m, "a.b", param(impl))
    assert ("a.b" in m.__dict__) == (not impl.is_torch)


# -- deleting ------------------------------------------------------------------------------------


def test_deleting_each_kind(impl):
    m = impl.nn.Module()
    m.p, m.c, m.x = param(impl), impl.nn.Module(), 3
    m.register_buffer("b", tensor(impl), persistent=False)
    for name in ("p", "c", "x", "b"):
        delattr(m, name)
        assert not hasattr(m, name)
        with raises(AttributeError, f"'Module' object has no attribute '{name}'"):
            delattr(m, name)
    assert m._non_persistent_buffers_set == set()
    assert not m._parameters and not m._buffers and not m._modules


def test_deleting_none_entries(impl):
    m = impl.nn.Module()
    m.register_parameter("p", None)
    m.register_buffer("b", None)
    m.add_module("c", None)
    del m.p, m.b, m.c
    assert not m._parameters and not m._buffers and not m._modules


def test_deletion_order_of_one_name_in_every_place(impl):
    m = impl.nn.Module()
    m._parameters["x"], m._buffers["x"] = param(impl), tensor(impl)
    m._modules["x"], m.__dict__["x"] = impl.nn.Module(), 3
    m._non_persistent_buffers_set.add("x")
    left = []
    for _ in range(4):
        del m.x
        places = (m._parameters, m._buffers, m._modules, m.__dict__)
        left.append("".join("x" if "x" in place else "-" for place in places))
        assert ("x" in m._non_persistent_buffers_set) == (len(left) == 1)
    assert left == ["-xxx", "--xx", "---x", "----"]


def test_deleting_a_class_attribute_or_property(impl):
    class M(impl.nn.Module):
        klass = 1

        @property
        def deletable(self):
            return 1

        @deletable.deleter
        def deletable(self):
            self.gone = True

    m = M()
    with pytest.raises(AttributeError):
        del m.klass
    del m.deletable
    assert m.gone is True


def test_a_user_delattr_with_super(impl):
    seen = []

    class M(impl.nn.Module):
        def __delattr__(self, name):
            seen.append(name)
            super().__delattr__(name)

    m = M()
    m.p, m.x = param(impl), 3
    del m.p, m.x
    assert seen == ["p", "x"] and not m._parameters


# -- __dir__ -------------------------------------------------------------------------------------


def test_dir_lists_class_instance_and_registries_sorted(impl):
    m = impl.nn.Module()
    m.zz_plain, m.p, m.child = 1, param(impl), impl.nn.Module()
    m.register_buffer("b", tensor(impl))
    found = dir(m)
    assert found == sorted(found)
    for name in ("zz_plain", "p", "child", "b", "training", "_modules", "forward", "parameters"):
        assert name in found


def test_dir_hides_names_that_start_with_a_digit(impl):
    m = impl.nn.Module()
    m.add_module("0", impl.nn.Module())
    m.add_module("1a", impl.nn.Module())
    m.add_module("a1", impl.nn.Module())
    setattr(m, "2", 3)
    found = dir(m)
    assert "a1" in found
    assert not {"0", "1a", "2"} & set(found)


def test_dir_keeps_duplicates_and_dotted_names(impl):
    m = impl.nn.Module()
    m.forward = lambda x: x
    m.__dict__["dotted.name"] = 1
    m._parameters["forward"] = param(impl)
    assert m.__dir__().count("forward") == 3
    assert "dotted.name" in dir(m)


def test_dir_with_an_empty_name(impl):
    m = impl.nn.Module()
    m.__dict__[""] = 1
    with pytest.raises(IndexError):
        dir(m)


def test_writes_through_copies_do_not_leak(impl):
    """``__dict__`` copied, then changed: the module does not see it."""
    m = impl.nn.Module()
    snapshot = copy.copy(m.__dict__)
    snapshot["x"] = 1
    assert not hasattr(m, "x")
