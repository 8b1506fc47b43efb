# SPDX-License-Identifier: BSD-3-Clause
"""The seventeen internal attributes: what they are, and that they stay the single source of truth."""

from __future__ import annotations

import weakref
from collections import OrderedDict

import pytest
from support import raises
from util import HOOK_TABLES, INTERNAL_KEYS, REGISTRIES, names, param, small_tree, tensor

TABLES = tuple(k for k in HOOK_TABLES if k != "_is_full_backward_hook")


def test_keys_and_their_order(impl):
    assert tuple(impl.nn.Module().__dict__) == INTERNAL_KEYS


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "after __dict__"])
def test_types_and_initial_values(impl, looked):
    m = impl.nn.Module()
    if looked:
        assert len(m.__dict__) == 17
    assert m.training is True
    assert m._is_full_backward_hook is None
    assert type(m._non_persistent_buffers_set) is set and not m._non_persistent_buffers_set
    for key in REGISTRIES:
        assert isinstance(getattr(m, key), dict) and getattr(m, key) == {}
    for key in TABLES:
        assert isinstance(getattr(m, key), OrderedDict) and getattr(m, key) == {}


def test_every_module_has_its_own(impl):
    a, b = impl.nn.Module(), impl.nn.Module()
    for key in (*REGISTRIES, *TABLES, "_non_persistent_buffers_set"):
        assert getattr(a, key) is not getattr(b, key)
        assert getattr(a, key) is getattr(a, key)


@pytest.mark.parametrize("key", TABLES)
def test_hook_tables_can_be_weakly_referenced(impl, key):
    m = impl.nn.Module()
    assert weakref.ref(getattr(m, key))() is getattr(m, key)


def test_a_hook_table_replaced_by_a_plain_dict_refuses_hooks(impl):
    m = impl.nn.Module()
    m._forward_hooks = {}
    with raises(TypeError, "cannot create weak reference to 'dict'"):
        m.register_forward_hook(lambda *a: None)


def test_a_hook_table_replaced_by_an_ordered_dict_works(impl):
    class M(impl.nn.Module):
        def forward(self, x):
            return x

    m, seen = M(), []
    m._forward_hooks = OrderedDict(own=lambda *a: seen.append("own"))
    m.register_forward_hook(lambda *a: seen.append("registered"))
    m(1)
    m._forward_hooks.move_to_end("own")
    m(1)
    assert seen == ["own", "registered", "registered", "own"]


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "after __dict__"])
def test_direct_writes_are_seen_at_once(impl, looked):
    m = impl.nn.Module()
    if looked:
        _ = m.__dict__
    p, t, child = param(impl), tensor(impl), impl.nn.Module()
    m._parameters["p"] = p
    m._buffers["b"] = t
    m._modules["c"] = child
    assert m.p is p and m.b is t and m.c is child
    assert names(m.named_parameters()) == ["p"]
    assert names(m.named_buffers()) == ["b"]
    assert names(m.named_modules()) == ["", "c"]
    m._non_persistent_buffers_set.add("b")
    assert list(m.state_dict()) == ["p"]
    del m._parameters["p"], m._buffers["b"], m._modules["c"]
    assert (
        names(m.named_parameters()) == names(m.named_buffers()) == names(m.named_children()) == []
    )
    assert not hasattr(m, "p") and not hasattr(m, "b") and not hasattr(m, "c")


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "after __dict__"])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("key", REGISTRIES)
def test_rebinding_a_registry(impl, key, kind, looked):
    m = small_tree(impl)
    if looked:
        _ = m.__dict__
    value = impl.nn.Module() if key == "_modules" else param(impl)
    new = kind(only=value)
    setattr(m, key, new)
    assert getattr(m, key) is new and m.__dict__[key] is new
    assert m.only is value
    new["late"] = value
    walk = {"_parameters": m.named_parameters, "_buffers": m.named_buffers}
    if key == "_modules":
        assert names(m.named_modules(remove_duplicate=False)) == ["", "only", "late"]
    else:
        found = walk[key](recurse=False, remove_duplicate=False)
        assert names(found) == ["only", "late"]
    assert m.late is value


def test_a_dict_subclass_as_registry_keeps_its_own_access(impl):
    class Loud(dict):
        reads = 0

        def items(self):
            type(self).reads += 1
            return super().items()

    m = impl.nn.Module()
    m._modules = Loud(child=impl.nn.Module())
    assert names(m.named_children()) == ["child"]
    assert Loud.reads == 1


@pytest.mark.parametrize("value", ["int", "tensor", "none"])
def test_direct_writes_are_not_validated(impl, value):
    m = impl.nn.Module()
    stored = {"int": 3, "tensor": tensor(impl), "none": None}[value]
    m._parameters["x"] = stored
    assert m.x is stored
    found = list(m.named_parameters())
    assert found == [] if stored is None else found[0][1] is stored
    m.register_parameter("x", param(impl))  # the name belongs to the registry
    assert m.x is not stored


def test_a_child_that_is_no_module_can_be_stored_directly(impl):
    m = impl.nn.Module()
    m._modules["x"] = 3
    assert m.x == 3
    assert list(m.children()) == [3]
    with raises(AttributeError, "named_modules"):
        list(m.named_modules())


def test_keys_of_a_hook_table_need_not_be_ints(impl):
    class M(impl.nn.Module):
        def forward(self, x):
            return x

    m, seen = M(), []
    m._forward_pre_hooks["mine"] = lambda *a: seen.append("pre")
    m._forward_hooks[None] = lambda *a: seen.append("post")
    m(1)
    assert seen == ["pre", "post"]


# -- __dict__ ------------------------------------------------------------------------------------


def test_dict_is_live_and_the_same_object(impl):
    m = impl.nn.Module()
    m.before = 1
    d = m.__dict__
    assert d is m.__dict__ and d is vars(m)
    assert list(d) == [*INTERNAL_KEYS, "before"]
    m.after = 2
    d["direct"] = 3
    assert m.direct == 3 and d["after"] == 2
    del d["before"]
    assert not hasattr(m, "before")
    m.p = param(impl)
    assert list(d["_parameters"]) == ["p"] and "p" not in d


def test_registry_objects_are_the_same_before_and_after_the_dict_is_looked_at(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    before = {k: getattr(m, k) for k in INTERNAL_KEYS}
    assert all(m.__dict__[k] is v for k, v in before.items())
    assert all(getattr(m, k) is v for k, v in before.items())


def test_dict_can_be_assigned(impl):
    a, b = small_tree(impl), impl.nn.Module()
    b.__dict__ = a.__dict__
    assert names(b.named_parameters()) == names(a.named_parameters())
    b.extra = param(impl)
    assert a.extra is b.extra
    state = dict(impl.nn.Module().__dict__)
    a.__dict__ = state
    assert a.__dict__ is state and names(a.named_modules()) == [""]
    with pytest.raises(TypeError):
        a.__dict__ = 3


def test_dict_entries_can_be_replaced(impl):
    m = small_tree(impl)
    m.__dict__["_modules"] = {"new": impl.nn.Module()}
    m.__dict__["training"] = False
    assert names(m.named_modules()) == ["", "new"]
    assert m.training is False
    m.__dict__.update(_parameters={}, plain=1)
    assert names(m.named_parameters()) == [] and m.plain == 1


@pytest.mark.parametrize("key", INTERNAL_KEYS)
@pytest.mark.parametrize("how", ["dict", "delattr"])
def test_a_deleted_entry_is_missing(impl, key, how):
    m = impl.nn.Module()
    if how == "dict":
        del m.__dict__[key]
    else:
        delattr(m, key)
    with raises(AttributeError, f"'Module' object has no attribute '{key}'"):
        getattr(m, key)
    assert not hasattr(m, key)
    assert key not in m.__dict__ and len(m.__dict__) == 16
    with raises(AttributeError):
        delattr(m, key)
    setattr(m, key, {})
    assert getattr(m, key) == {} and list(m.__dict__)[-1] == key


@pytest.mark.parametrize(
    "key, action",
    [
        ("_modules", lambda m: list(m.named_modules())),
        ("_modules", lambda m: m.train()),
        ("_modules", repr),
        ("_modules", lambda m: m.state_dict()),
        ("_parameters", lambda m: list(m.parameters())),
        ("_buffers", lambda m: list(m.buffers())),
        ("_parameters", dir),
        ("_buffers", dir),
        ("_parameters", lambda m: m.state_dict()),
        ("_non_persistent_buffers_set", lambda m: m.state_dict()),
        ("_state_dict_hooks", lambda m: m.state_dict()),
        ("_backward_hooks", lambda m: m(1)),
        ("_forward_hooks", lambda m: m(1)),
        ("_forward_pre_hooks", lambda m: m(1)),
        ("_backward_pre_hooks", lambda m: m(1)),
    ],
)
def test_operations_name_a_missing_entry(impl, key, action):
    class M(impl.nn.Module):
        def forward(self, x):
            return x

    m = M()
    m.register_buffer("b", tensor(impl))
    delattr(m, key)
    with raises(AttributeError, f"'{key}'"):
        action(m)


@pytest.mark.parametrize("key", REGISTRIES)
def test_reading_goes_on_without_a_registry(impl, key):
    m = impl.nn.Module()
    m.p, m.c = param(impl), impl.nn.Module()
    m.register_buffer("b", tensor(impl))
    delattr(m, key)
    gone = {"_parameters": "p", "_buffers": "b", "_modules": "c"}
    assert [n for n in ("p", "b", "c") if not hasattr(m, n)] == [gone[key]]


# -- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, "no", None, [1]])
def test_training_takes_any_value(impl, value):
    m = impl.nn.Module()
    m.training = value
    assert m.training is value and m.__dict__["training"] is value


def test_training_can_become_a_parameter(impl):
    m = impl.nn.Module()
    p = param(impl)
    m.training = p
    assert "training" not in m.__dict__
    assert m.training is p and names(m.named_parameters()) == ["training"]
    with raises(TypeError, "as parameter 'training'"):
        m.train()


def test_assigning_a_parameter_to_the_name_of_a_registry_drops_it(impl):
    m = impl.nn.Module()
    p = param(impl)
    m._buffers = p
    assert "_buffers" not in m.__dict__
    assert m._parameters["_buffers"] is p and m._buffers is p


def test_a_tree_edited_only_through_its_registries(impl):
    """What pruning and sharding code does: move entries between registries and instance dicts by hand."""
    m = small_tree(impl)
    weight = m.left._parameters.pop("weight")
    m.left.__dict__["weight"] = weight
    assert m.left.weight is weight
    assert names(m.named_parameters()) == ["scale", "left.bias", "right.weight", "right.own"]
    del m.left.__dict__["weight"]
    m.left._parameters["weight"] = weight
    assert names(m.named_parameters()) == ["scale", "left.bias", "left.weight", "right.own"]
