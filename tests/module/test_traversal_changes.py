# SPDX-License-Identifier: BSD-3-Clause
"""The eight walks of trees that change meanwhile, that were walked before, and that contain
themselves.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict

import pytest
from helpers.support import raises
from helpers.util import chain, names, param, small_tree, tensor

METHODS = (
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
)

# -- mutation while walking ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, add",
    [
        ("named_parameters", lambda m, i: m.register_parameter("new", param(i))),
        ("named_buffers", lambda m, i: m.register_buffer("new", tensor(i))),
        ("named_children", lambda m, i: m.add_module("new", i.nn.Module())),
    ],
)
def test_adding_to_the_registry_being_walked(impl, method, add):
    m = impl.nn.Module()
    for name in "abc":
        m.register_parameter(f"p{name}", param(impl))
        m.register_buffer(f"b{name}", tensor(impl))
        m.add_module(f"c{name}", impl.nn.Module())
    walk = getattr(m, method)()
    next(walk)
    add(m, impl)
    with raises(RuntimeError, "changed size during iteration"):
        next(walk)
    assert list(walk) == []


@pytest.mark.parametrize("method", ["named_parameters", "named_buffers", "named_children"])
def test_removing_from_the_registry_being_walked(impl, method):
    m = impl.nn.Module()
    for name in "abc":
        m.register_parameter(f"p{name}", param(impl))
        m.register_buffer(f"b{name}", tensor(impl))
        m.add_module(f"c{name}", impl.nn.Module())
    walk = getattr(m, method)()
    name, _ = next(walk)
    delattr(m, name)
    with raises(RuntimeError, "changed size during iteration"):
        next(walk)


def test_adding_below_a_module_that_is_being_walked(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    with raises(RuntimeError, "changed size during iteration"):
        for name, _ in m.named_modules():
            if name == "a":
                m.late = impl.nn.Module()


def test_an_ordered_dict_says_mutated(impl):
    m = impl.nn.Module()
    m._modules = OrderedDict((n, impl.nn.Module()) for n in "abc")
    walk = m.named_children()
    next(walk)
    m.d = impl.nn.Module()
    with raises(RuntimeError, "mutated during iteration"):
        next(walk)


def test_an_ordered_dict_changed_at_its_last_entry_just_ends(impl):
    m = impl.nn.Module()
    m._modules = OrderedDict((n, impl.nn.Module()) for n in "ab")
    seen = []
    for name, _ in m.named_children():
        seen.append(name)
        if name == "b":
            del m._modules["a"]
    assert seen == ["a", "b"]


def test_a_container_changed_by_deletion_while_walked(impl):
    items = impl.nn.ModuleList(impl.nn.Identity() for _ in range(4))
    del items[0]
    walk = items.named_children()
    next(walk)
    items.append(impl.nn.Identity())
    with raises(RuntimeError, "during iteration"):
        list(walk)


def test_replacing_a_value_of_the_registry_being_walked(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.p, m.q = param(impl), param(impl)
    new, q = impl.nn.Module(), param(impl)
    seen = []
    for name, module in m.named_modules():
        seen.append(module)
        if name == "a":
            m.b = new
    assert seen == [m, m.a, new]
    found = []
    for _, p in m.named_parameters():
        found.append(p)
        m.q = q
    assert [id(p) for p in found] == [id(m.p), id(q)]


def test_a_child_added_to_the_module_just_yielded_is_visited(impl):
    m = impl.nn.Module()
    seen = []
    for name, module in m.named_modules():
        seen.append(name)
        if len(seen) < 5:
            module.grown = impl.nn.Module()
    assert seen == ["", "grown", "grown.grown", "grown.grown.grown", "grown.grown.grown.grown"]


def test_children_of_the_module_just_yielded_may_be_removed(impl):
    m = small_tree(impl)
    m.left.deep = impl.nn.Module()
    seen = []
    for name, module in m.named_modules():
        seen.append(name)
        if name == "left":
            del module.deep
    assert seen == ["", "left", "right"]


def test_rebinding_the_registry_being_walked_keeps_the_old_walk(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    seen = []
    for name, _ in m.named_children():
        seen.append(name)
        m._modules = {"other": impl.nn.Module()}
    assert seen == ["a", "b"] and names(m.named_children()) == ["other"]


def test_parameters_added_while_walking_other_modules(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.a.w = param(impl)
    seen = []
    for name, _ in m.named_parameters():
        seen.append(name)
        if name == "a.w":
            m.b.late = param(impl)
            m.behind = param(impl)
    assert seen == ["p", "a.w", "b.late"]


def test_assigning_a_plain_attribute_while_walking(impl):
    m = small_tree(impl)
    for module in m.modules():
        module.visited = True
        module.training = False
        module.__dict__["also"] = 1
    assert all(x.visited and x.also == 1 for x in m.modules())


def test_the_walked_module_may_lose_its_last_name(impl):
    """The walk keeps what it needs alive."""
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    m.a.w = param(impl)
    m.a.v = param(impl)
    walk = m.named_parameters()
    del m
    assert names(walk) == ["a.w", "a.v"]
    walk = chain(impl, 5).named_modules(prefix="root")
    assert names(walk)[-1] == "root.c.c.c.c"


def test_two_changes_that_cancel_out(impl):
    """One removed, one added: the size is the same again, and the walk meets one entry more than
    there were.
    """
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    seen = []
    with raises(RuntimeError, "changed during iteration"):
        for name, _ in m.named_children():
            seen.append(name)
            if name == "a":
                del m.a
                m.c = impl.nn.Module()
    assert seen == ["a", "b"]


# -- repeated walks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        lambda m, i: m.left.register_parameter("new", param(i)),
        lambda m, i: delattr(m.left, "weight"),
        lambda m, i: m.left.__dict__["_parameters"].clear(),
        lambda m, i: m.left._parameters.__setitem__("direct", param(i)),
        lambda m, i: m.left._parameters.update(bias=None),
        lambda m, i: setattr(m.left, "bias", None),
        lambda m, i: setattr(m.left, "bias", m.scale),
        lambda m, i: setattr(m, "left", i.nn.Module()),
        lambda m, i: setattr(m, "right", m.left),
        lambda m, i: m._modules.__setitem__("z", m._modules.pop("left")),
        lambda m, i: setattr(m, "_modules", {"left": m.left}),
        lambda m, i: setattr(m.left, "_parameters", {}),
        lambda m, i: m.__dict__.update(_modules={"right": m.right}),
        lambda m, i: m._modules.__setitem__("left", None),
        lambda m, i: setattr(m.left, "w2", m.left.weight),
        lambda m, i: m.left._parameters.__setitem__("bias", m.left._parameters.pop("bias")),
    ],
)
def test_a_second_walk_sees_every_change(impl, edit):
    """Whatever is remembered of the first walk must not show."""
    m, fresh = small_tree(impl), small_tree(impl)
    for _ in range(3):
        list(m.named_parameters()), list(m.named_modules()), list(m.named_buffers())
        list(m.named_parameters("p", remove_duplicate=False))
    edit(m, impl)
    edit(fresh, impl)
    for walk in ("named_parameters", "named_modules", "named_buffers"):
        for flags in ({}, {"remove_duplicate": False}, {"prefix": "p"}):
            assert names(getattr(m, walk)(**flags)) == names(getattr(fresh, walk)(**flags))
    expected = [m.get_parameter(name) for name in names(m.named_parameters())]
    assert [id(p) for p in m.parameters()] == [id(p) for p in expected]


def test_a_replaced_parameter_is_yielded_by_a_repeated_walk(impl):
    m = small_tree(impl)
    list(m.named_parameters())
    list(m.named_parameters())
    new = param(impl)
    m.left.weight = new
    assert dict(m.named_parameters())["left.weight"] is new
    m.left._parameters["weight"] = newer = param(impl)
    assert dict(m.named_parameters())["left.weight"] is newer


# -- cycles ----------------------------------------------------------------------------------------


def test_cycles_are_walked(impl):
    m = small_tree(impl)
    m.left.parent = m
    m.me = m
    assert names(m.named_modules()) == ["", "left", "right"]
    assert names(m.left.named_modules()) == ["", "parent", "parent.right"]
    assert names(m.named_parameters()) == ["scale", "left.bias", "left.weight", "right.own"]
    assert names(m.named_children()) == ["left", "right", "me"]
    m.zero_grad()
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())


@pytest.mark.parametrize(
    "walk",
    [
        lambda m: list(m.named_modules(remove_duplicate=False)),
        lambda m: list(m.named_parameters(remove_duplicate=False)),
        lambda m: list(m.named_buffers(remove_duplicate=False)),
        lambda m: list(m.modules(remove_duplicate=False)),
        lambda m: m.train(),
        lambda m: m.eval(),
        lambda m: m.apply(lambda x: None),
        lambda m: m._apply(lambda t: t),
        lambda m: m.double(),
        lambda m: m.state_dict(),
        lambda m: m.load_state_dict({}, strict=False),
        repr,
    ],
)
@pytest.mark.parametrize("shape", ["self", "parent", "third"])
def test_cycles_that_cannot_be_walked(impl, walk, shape):
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    m.a.b = impl.nn.Module()
    if shape == "self":
        m.a.b.me = m.a.b
    elif shape == "parent":
        m.a.b.up = m.a
    else:
        m.a.b.root = m
    with pytest.raises(RecursionError) as info:
        walk(m)
    if not impl.is_torch:
        last = {"self": "me", "parent": "up", "third": "root"}[shape]
        text = str(info.value)
        assert f"a.b.{last}" in text or (f"'{last}'" in text and "'a.b'" in text)


def test_cycles_are_found_where_the_walk_starts_inside(ours):
    m = ours.nn.Module()
    m.a = ours.nn.Module()
    m.a.up = m
    with pytest.raises(RecursionError, match="up.a"):
        m.a.train()
    assert m.training  # nothing was done half


def test_a_shared_module_is_no_cycle(impl):
    m = small_tree(impl)
    m.right.shared = m.left
    assert m.train() is m
    assert len(list(m.named_modules(remove_duplicate=False))) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.state_dict()
