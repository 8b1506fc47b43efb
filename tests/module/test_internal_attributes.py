# SPDX-License-Identifier: BSD-3-Clause
"""The seventeen internal attributes: what they are, and that they stay the single source of
truth.
"""

from __future__ import annotations

import copy
import re
import weakref
from collections import OrderedDict

import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import nothing_to_delete, raises, values
from helpers.util import HOOK_TABLES, INTERNAL_KEYS, REGISTRIES, names, param, small_tree, tensor

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


# -- __dict__ --------------------------------------------------------------------------------------


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


# -- entries that the class answers for ------------------------------------------------------------

EVERYTHING = {
    "named_modules": lambda m, new: names(m.named_modules()),
    "modules": lambda m, new: len(list(m.modules())),
    "named_children": lambda m, new: names(m.named_children()),
    "children": lambda m, new: len(list(m.children())),
    "named_parameters": lambda m, new: names(m.named_parameters()),
    "parameters": lambda m, new: len(list(m.parameters(recurse=False))),
    "named_buffers": lambda m, new: names(m.named_buffers()),
    "buffers": lambda m, new: len(list(m.buffers())),
    "apply": lambda m, new: names(m.apply(lambda x: setattr(x, "seen", 1)).named_modules()),
    "_apply": lambda m, new: [values(p) for p in m._apply(lambda t: t * 2).parameters()],
    "train": lambda m, new: [x.training for x in m.train(False).modules()],
    "eval": lambda m, new: [x.training for x in m.eval().modules()],
    "requires_grad_": lambda m, new: [
        p.requires_grad for p in m.requires_grad_(False).parameters()
    ],
    "zero_grad": lambda m, new: m.zero_grad(),
    "state_dict": lambda m, new: list(m.state_dict()),
    "load_state_dict": lambda m, new: m.load_state_dict(m.state_dict()),
    "load of other keys": lambda m, new: m.load_state_dict(
        dict.fromkeys(("c.w", "c.v", "d.x", "np"), m.get_parameter("w")), strict=False
    ),
    "repr": lambda m, new: repr(m),
    "dir": lambda m, new: sorted(set(dir(m)) - set(dir(type(m)))),
    "deepcopy": lambda m, new: names(copy.deepcopy(m).named_modules()),
    "call": lambda m, new: m(3),
    "del": lambda m, new: (delattr(m, "w"), names(m.named_parameters())),
    "add_module": lambda m, new: (m.add_module("d", new), names(m.named_modules())),
    "assign": lambda m, new: (setattr(m, "d", new), names(m.named_modules())),
    "buffer": lambda m, new: (m.register_buffer("n", m.b, False), list(m.state_dict())),
    "assign a buffer": lambda m, new: (setattr(m, "b", m.b), list(m.state_dict())),
}
MISSING = {
    **{key: (key,) for key in (*REGISTRIES, "_non_persistent_buffers_set", "_forward_hooks")},
    "hooks": TABLES,
    "all": INTERNAL_KEYS,
}


def stand_in(impl, missing, answer):
    """A module that lacks entries, the module that it stands for, and what the hooks of that one
    did.
    """
    inner, fired = impl.nn.Module(), []
    inner.w, inner.c = param(impl), impl.nn.Module()
    inner.c.v = param(impl)
    inner.register_buffer("b", tensor(impl))
    inner.register_buffer("np", tensor(impl), persistent=False)
    inner.register_forward_hook(lambda *a: fired.append("forward"))
    inner.register_state_dict_pre_hook(lambda *a: fired.append("save"))
    inner.register_load_state_dict_pre_hook(lambda *a: fired.append("load"))
    inner.register_load_state_dict_post_hook(lambda *a: fired.append("loaded"))

    class StandIn(impl.nn.Module):
        forward = staticmethod(lambda x: x)
        if answer == "__getattr__":

            def __getattr__(self, name):
                return getattr(inner, name)

    m = StandIn()
    for key in missing:
        del m.__dict__[key]
        if answer == "class attribute":
            setattr(StandIn, key, getattr(inner, key))
    return m, inner, fired


def outcomes(impl, missing, answer):
    found = {}
    for operation, run in EVERYTHING.items():
        m, _, fired = stand_in(impl, missing, answer)
        try:
            result = run(m, impl.nn.Module())
        except (AttributeError, RuntimeError) as e:
            # What ours says after torch's words.
            text = re.split("; | [(]looking|: call", str(e))[0]
            if text == nothing_to_delete(impl, "StandIn", "w"):
                text = "'StandIn' object has no attribute 'w'"
            result = type(e), text
        found[operation] = re.sub(r"modtree|torch| at 0x\w+", "", repr(result)), fired
    return found


@needs_torch
@pytest.mark.parametrize("answer", ["__getattr__", "class attribute", "none"])
@pytest.mark.parametrize("missing", MISSING)
def test_entries_that_the_class_answers_for(ours, missing, answer):
    """Everything that reads a missing entry asks the class; what it does not know is an
    AttributeError.
    """
    expected = outcomes(implementation("torch"), MISSING[missing], answer)
    assert outcomes(ours, MISSING[missing], answer) == expected


def test_a_stand_in_walks_what_it_stands_for(impl):
    m, inner, fired = stand_in(impl, INTERNAL_KEYS, "__getattr__")
    assert names(m.named_modules()) == ["", "c"] and list(m.children()) == [inner.c]
    assert names(m.named_parameters()) == ["w", "c.v"] and list(m.buffers()) == [inner.b, inner.np]
    assert m.train(False).training is False and inner.c.training is False
    assert m.apply(lambda x: setattr(x, "seen", True)) is m and inner.c.seen
    assert list(m.state_dict()) == ["w", "b", "c.v"] and fired == ["save"]
    sd = {k: v * 0 for k, v in m.state_dict().items()}
    assert m.load_state_dict(sd) == ([], []) and fired[1:] == ["save", "load", "loaded"]
    assert inner.c.v.detach().sum() == 0 == inner.b.sum()
    m._apply(lambda t: t + 1)
    assert inner.c.v.detach().sum() > 0 and inner.b.sum() > 0
    assert "(c): Module()" in repr(m) and m(3) == 3 and fired[-1] == "forward"
    tree = impl.nn.Sequential(m)
    assert (
        names(tree.named_parameters())
        == ["0.w", "0.c.v"]
        == [k for k in tree.state_dict() if not k.endswith("b")]
    )
    m.requires_grad_(False)
    assert not inner.w.requires_grad
    m.add_module("d", impl.nn.Module())
    assert "d" in inner._modules


def test_dir_asks_the_registries_for_their_keys(impl):
    class Own(dict):
        def keys(self):
            return ["own_key"]

        def __iter__(self):
            raise AssertionError("not asked")

    for key in REGISTRIES:
        m = impl.nn.Module()
        setattr(m, key, Own(x=None))
        assert "own_key" in dir(m) and "x" not in dir(m)


# -- training --------------------------------------------------------------------------------------


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
    """What pruning and sharding code does: move entries between registries and instance dicts by
    hand.
    """
    m = small_tree(impl)
    weight = m.left._parameters.pop("weight")
    m.left.__dict__["weight"] = weight
    assert m.left.weight is weight
    assert names(m.named_parameters()) == ["scale", "left.bias", "right.weight", "right.own"]
    del m.left.__dict__["weight"]
    m.left._parameters["weight"] = weight
    assert names(m.named_parameters()) == ["scale", "left.bias", "left.weight", "right.own"]


@pytest.mark.parametrize(
    "change",
    [
        lambda m, i: delattr(m, "b"),
        lambda m, i: m.register_buffer("b", tensor(i)),
        lambda m, i: setattr(m, "b", tensor(i)),
        lambda m, i: setattr(m, "b", param(i)),
        lambda m, i: setattr(m, "x", i.nn.Module()),
        lambda m, i: m.load_state_dict({}, strict=False),
        lambda m, i: m._load_from_state_dict({}, "", {}, False, [], [], []),
    ],
    ids=["delete", "register", "assign", "parameter", "module", "load", "load one"],
)
@pytest.mark.parametrize("holds", ["tensor", "None"])
def test_a_missing_set_of_non_persistent_names_is_missed(impl, change, holds):
    m = impl.nn.Module()
    m.register_buffer("b", tensor(impl) if holds == "tensor" else None)
    del m._non_persistent_buffers_set
    with raises(AttributeError, "has no attribute '_non_persistent_buffers_set'"):
        change(m, impl)


class Fetching(OrderedDict):
    """Gives something else than it holds, as where parameters are fetched when they are asked
    for.
    """

    asked: list

    def __getitem__(self, name):
        self.asked.append(name)
        return ("fetched", super().__getitem__(name))


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "after __dict__"])
@pytest.mark.parametrize("key", REGISTRIES)
def test_reading_an_attribute_asks_a_registry_with_its_own_getitem(impl, key, looked):
    m = impl.nn.Module()
    m.register_parameter("other", None)
    if looked:
        m.__dict__["plain"] = 1
    value = impl.nn.Module() if key == "_modules" else param(impl)
    registry = Fetching(x=value)
    registry.asked = []
    setattr(m, key, registry)
    for _ in range(3):
        assert m.x == ("fetched", value)
        assert getattr(m, "x", None) == ("fetched", value)
    assert registry.asked == ["x"] * 6
    assert hasattr(m, "x") and not hasattr(m, "y")
    assert m.__getattr__("x") == ("fetched", value)
    registry.asked.clear()
    # Loops take what it holds.
    assert [t for _, t in m._named_members(lambda part: getattr(part, key).items())] == [value]
    assert registry.asked == []


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_an_error_of_a_registrys_getitem_is_raised(impl, kind):
    class Gone(kind):
        def __getitem__(self, name):
            raise KeyError("gone")

    m = impl.nn.Module()
    m._parameters = Gone(x=param(impl))
    with raises(KeyError, "gone"):
        _ = m.x
    assert not hasattr(m, "y")


@pytest.mark.parametrize(
    "table", ["_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"]
)
def test_a_missing_hook_table_is_missed_beside_global_hooks(impl, table):
    class Plain(impl.nn.Module):
        def forward(self, x):
            return x

    m = Plain()
    delattr(m, table)
    with impl.module.register_module_forward_pre_hook(lambda *_: None):
        with raises(AttributeError, f"has no attribute '{table}'"):
            m(1)
