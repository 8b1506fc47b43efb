# SPDX-License-Identifier: BSD-3-Clause
"""Which walks look methods up on the module (or its children), and which read the registries
directly.
"""

from __future__ import annotations

import pytest
from helpers.support import raises
from helpers.util import names, param, small_tree, tensor


def attach(m, how, name, function):
    """Overrides ``name`` for ``m``: in a subclass, on its class, or on the instance alone."""
    if how == "instance":
        m.__dict__[name] = function.__get__(m)
    elif how == "attribute":
        setattr(m, name, function.__get__(m))
    else:
        m.__class__ = type("Override", (type(m),), {name: function})


HOWS = pytest.mark.parametrize("how", ["class", "instance", "attribute"])


def root(impl):
    m = small_tree(impl)
    m.own = param(impl)
    return m


# -- the chain of calls on the root ----------------------------------------------------------------

CHAIN = [
    ("parameters", "named_parameters", ((), {"recurse": True}), lambda m: m.parameters()),
    ("buffers", "named_buffers", ((), {"recurse": True}), lambda m: m.buffers()),
    ("modules", "named_modules", ((), {"remove_duplicate": True}), lambda m: m.modules()),
    ("children", "named_children", ((), {}), lambda m: m.children()),
    (
        "parameters flag",
        "named_parameters",
        ((), {"recurse": False}),
        lambda m: m.parameters(recurse=False),
    ),
    (
        "modules flag",
        "named_modules",
        ((), {"remove_duplicate": False}),
        lambda m: m.modules(remove_duplicate=False),
    ),
]


@HOWS
@pytest.mark.parametrize("name, call, walk", [c[1:] for c in CHAIN], ids=[c[0] for c in CHAIN])
def test_the_unnamed_walk_asks_the_named_one(impl, how, name, call, walk):
    m = root(impl)
    seen = []

    def override(self, *args, **kwargs):
        seen.append((args, kwargs))
        return iter([("name", "first"), ("other", "second")])

    attach(m, how, name, override)
    assert list(walk(m)) == ["first", "second"]
    assert seen == [call]


@HOWS
@pytest.mark.parametrize("walk", ["named_parameters", "named_buffers"])
def test_named_walks_ask_named_members(impl, how, walk):
    m = root(impl)
    m.register_buffer("buf", tensor(impl))
    seen = []

    def override(self, get_members_fn, *args, **kwargs):
        seen.append((args, kwargs))
        return iter(list(get_members_fn(self))[:1])

    attach(m, how, "_named_members", override)
    first = list((m._parameters if walk == "named_parameters" else m._buffers).items())[:1]
    assert list(getattr(m, walk)("p", recurse=False)) == first
    assert seen == [((), {"prefix": "p", "recurse": False, "remove_duplicate": True})]
    unnamed = getattr(m, walk.removeprefix("named_"))
    assert list(unnamed()) == [value for _, value in first]
    assert seen[1] == ((), {"prefix": "", "recurse": True, "remove_duplicate": True})


@HOWS
def test_named_members_asks_named_modules_with_keywords(impl, how):
    m = root(impl)
    seen = []
    left = m.left

    def override(self, *args, **kwargs):
        seen.append((args, kwargs))
        return iter([("here", left)])

    attach(m, how, "named_modules", override)
    assert names(m.named_parameters("p")) == ["here.bias", "here.weight"]
    assert names(m.named_buffers(remove_duplicate=False)) == ["here.mean", "here.scratch"]
    assert names(m._named_members(lambda x: [("x", 1)])) == ["here.x"]
    assert seen == [
        ((), {"prefix": "p", "remove_duplicate": True}),
        ((), {"prefix": "", "remove_duplicate": False}),
        ((), {"prefix": "", "remove_duplicate": True}),
    ]
    assert names(m.named_parameters(recurse=False)) == ["scale", "own"]
    assert len(seen) == 3


def test_named_members_reads_what_it_yields(impl):
    """A ``named_modules`` that yields foreign objects: their ``_parameters`` are asked for."""

    class Foreign:
        def __init__(self, p):
            self._parameters = {"f": p}

    m = root(impl)
    p = param(impl)
    m.__dict__["named_modules"] = lambda prefix, remove_duplicate: [("x", Foreign(p)), ("y", 3)]
    walk = m.named_parameters()
    assert next(walk) == ("x.f", p)
    with raises(AttributeError, "_parameters"):
        next(walk)


@HOWS
@pytest.mark.parametrize(
    "name", ["parameters", "named_parameters", "_named_members", "named_buffers"]
)
def test_overrides_of_a_child_do_not_matter_to_the_parent(impl, how, name):
    m = root(impl)

    def override(self, *args, **kwargs):
        raise AssertionError("not asked")

    plain = names(root(impl).named_parameters()), names(root(impl).named_buffers())
    attach(m.left, how, name, override)
    assert (names(m.named_parameters()), names(m.named_buffers())) == plain
    with raises(AssertionError, "not asked"):
        getattr(m.left, name)()


# -- named_modules of children ---------------------------------------------------------------------


@HOWS
@pytest.mark.parametrize("remove_duplicate", [True, False])
def test_named_modules_of_a_child_is_asked_with_three_positional_arguments(
    impl, how, remove_duplicate
):
    m = root(impl)
    seen = []

    def override(self, *args, **kwargs):
        seen.append((args, kwargs))
        yield args[1], self
        yield args[1] + "!extra", self

    attach(m.right, how, "named_modules", override)
    memo = set()
    found = names(m.named_modules(memo, "p", remove_duplicate))
    expected = ["p", "p.left", "p.right", "p.right!extra"]
    assert found == expected + ([] if remove_duplicate else ["p.again"])
    assert len(seen) == 1 and seen[0][1] == {}
    got_memo, prefix, flag = seen[0][0]
    assert got_memo is memo and prefix == "p.right" and flag is remove_duplicate


@HOWS
def test_named_modules_of_a_grandchild(impl, how):
    m = root(impl)
    m.left.deep = impl.nn.Module()
    m.left.deep.w = param(impl)
    m.left.deep.hidden = impl.nn.Module()
    m.left.deep.hidden.w = param(impl)

    def override(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix, self

    attach(m.left.deep, how, "named_modules", override)
    assert names(m.named_modules()) == ["", "left", "left.deep", "right"]
    assert "left.deep.w" in names(m.named_parameters())
    assert "left.deep.hidden.w" not in names(m.named_parameters())


def test_an_old_two_argument_named_modules_breaks_the_parent(impl):
    class Old(impl.nn.Module):
        def named_modules(self, memo=None, prefix=""):
            return super().named_modules(memo, prefix)

    m = impl.nn.Module()
    m.old = Old()
    assert names(m.old.named_modules()) == [""]
    for walk in (m.named_modules, m.named_parameters, m.modules):
        with pytest.raises(TypeError):
            list(walk())


def test_an_override_may_use_super(impl):
    class Skipping(impl.nn.Module):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            for name, module in super().named_modules(memo, prefix, remove_duplicate):
                if not name.endswith("skip"):
                    yield name, module

    m = impl.nn.Module()
    m.a = Skipping()
    m.a.skip, m.a.keep = impl.nn.Module(), impl.nn.Module()
    m.skip = impl.nn.Module()
    m.a.keep.b = Skipping()
    assert names(m.named_modules()) == ["", "a", "a.keep", "a.keep.b", "skip"]


def test_the_memo_is_shared_with_overriding_children(impl):
    class Own(impl.nn.Module):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield from super().named_modules(memo, prefix, remove_duplicate)

    m = impl.nn.Module()
    shared = impl.nn.Module()
    m.a, m.b = Own(), impl.nn.Module()
    m.a.s = m.b.s = shared
    assert names(m.named_modules()) == ["", "a", "a.s", "b"]
    m.a.up = m
    assert names(m.named_modules()) == ["", "a", "a.s", "b"]


def test_an_override_that_returns_something_else(impl):
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    m.a.named_modules = lambda memo, prefix, remove_duplicate: [("listed", 1), "any item"]
    assert list(m.named_modules()) == [("", m), ("listed", 1), "any item"]
    m.a.named_modules = lambda memo, prefix, remove_duplicate: 3
    with pytest.raises(TypeError):
        list(m.named_modules())
    m.a.named_modules = 5
    with pytest.raises(TypeError):
        list(m.named_modules())


def test_an_override_that_raises(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()

    def override(memo, prefix, remove_duplicate):
        yield prefix, "first"
        raise LookupError("override")

    m.a.named_modules = override
    walk = m.named_modules()
    assert [next(walk), next(walk)] == [("", m), ("a", "first")]
    with raises(LookupError, "override"):
        next(walk)
    assert list(walk) == []


def test_closing_the_walk_closes_the_override(impl):
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    closed = []

    def override(memo, prefix, remove_duplicate):
        try:
            yield prefix, m.a
            yield prefix, m.a
        finally:
            closed.append(True)

    m.a.named_modules = override
    walk = m.named_modules()
    next(walk), next(walk)
    walk.close()
    assert closed == [True]


def test_an_override_set_during_the_walk_counts_for_modules_not_reached(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.b.c = impl.nn.Module()
    found = []
    for name, _ in m.named_modules():
        found.append(name)
        if name == "a":
            m.b.named_modules = lambda memo, prefix, remove_duplicate: [(prefix + "*", m.b)]
    assert found == ["", "a", "b*"]


def test_a_module_entry_named_like_a_walk_is_found_by_lookup_rules(impl):
    """A child registered as ``named_modules`` is shadowed by the method of the class."""
    m = impl.nn.Module()
    m.a = impl.nn.Module()
    m.a._modules["named_modules"] = impl.nn.Module()
    assert names(m.named_modules()) == ["", "a", "a.named_modules"]


def test_a_child_with_its_own_getattribute(impl):
    class Redirect(impl.nn.Module):
        def __getattribute__(self, name):
            if name == "named_modules":
                return lambda memo, prefix, remove_duplicate: [(prefix + "!", self)]
            return super().__getattribute__(name)

    m = impl.nn.Module()
    m.a = Redirect()
    assert names(m.named_modules()) == ["", "a!"]


# -- walks without an end ------------------------------------------------------------------------


def test_a_cycle_through_an_override_is_a_recursion_error(impl):
    class Passes(impl.nn.Module):
        def named_modules(self, *args, **kwargs):
            return super().named_modules(*args, **kwargs)

    m, child = impl.nn.Module(), Passes()
    m.child, child.up = child, m
    for walk in (m.named_modules, m.named_parameters, m.modules):
        with pytest.raises(RecursionError):
            for _ in zip(range(100_000), walk(remove_duplicate=False), strict=False):
                pass
    assert [n for n, _ in m.named_modules()] == ["", "child"]


@pytest.mark.parametrize("named", ["named_parameters", "named_buffers", "named_children"])
def test_a_named_walk_that_asks_the_unnamed_one(impl, named):
    unnamed = named.removeprefix("named_")
    override = {named: lambda self, *args, **kwargs: getattr(self, unnamed)()}
    m = type("Loop", (impl.nn.Module,), override)()
    for walk in (unnamed, named):
        with pytest.raises(RecursionError):
            list(getattr(m, walk)())


def test_members_that_are_the_walk_itself(impl):
    m = impl.nn.Module()

    def members(module):
        return module._named_members(members)

    with pytest.raises(RecursionError):
        list(m._named_members(members))


def test_a_registry_whose_items_are_the_walk_itself(impl):
    class Registry(dict):
        def items(self):
            return m.named_children()

    m = impl.nn.Module()
    m._modules = Registry(a=impl.nn.Module())
    with pytest.raises(RecursionError):
        list(m.named_children())


# -- who uses children, parameters, or the registries --------------------------------------------


@HOWS
def test_whole_tree_operations_use_children(impl, how):
    m = root(impl)

    def override(self):
        return iter([self.right])

    attach(m, how, "children", override)
    m.eval()
    assert m.left.training and not m.right.training and not m.training
    seen = []
    m.apply(seen.append)
    assert seen == [m.right, m]
    converted = []
    m._apply(lambda t: converted.append(t) or t)
    assert not any(t is m.left.weight or t is m.left.mean for t in converted[2:-3])
    assert list(m.children()) == [m.right]


@HOWS
def test_whole_tree_operations_reach_named_children_through_children(impl, how):
    m = root(impl)
    attach(m, how, "named_children", lambda self: iter([("x", self.right)]))
    m.eval()
    assert m.left.training and not m.right.training
    assert list(m.children()) == [m.right]


@HOWS
@pytest.mark.parametrize("name", ["children", "named_children", "modules", "named_modules"])
def test_state_dict_load_and_repr_read_the_registries(impl, how, name):
    m, plain = root(impl), root(impl)
    attach(m, how, name, lambda self, *args, **kwargs: iter(()))
    state = m.state_dict()
    assert list(state) == list(plain.state_dict())
    m.load_state_dict(state)
    assert repr(m).count("\n") == repr(plain).count("\n")


@HOWS
def test_requires_grad_and_zero_grad_use_parameters(impl, how):
    m = root(impl)
    attach(m, how, "parameters", lambda self, recurse=True: iter([self.own]))
    m.requires_grad_(False)
    assert not m.own.requires_grad and m.scale.requires_grad and m.left.weight.requires_grad
    m.zero_grad()


def test_requires_grad_reaches_named_parameters_of_the_root(impl):
    m = root(impl)
    m.named_parameters = lambda recurse=True: iter([("own", m.own)])
    m.requires_grad_(False)
    assert not m.own.requires_grad and m.scale.requires_grad


def test_walk_overrides_on_module_itself(impl, monkeypatch):
    """A patch of the base class counts for every node."""
    m = root(impl)
    seen = []
    original = impl.nn.Module.named_modules

    def patched(self, memo=None, prefix="", remove_duplicate=True):
        seen.append(prefix)
        return original(self, memo, prefix, remove_duplicate)

    monkeypatch.setattr(impl.nn.Module, "named_modules", patched)
    assert names(m.named_modules()) == ["", "left", "right"]
    assert seen == ["", "left", "right", "again"]


def test_hash_that_is_patched_on_the_tensor_class_is_asked(impl, monkeypatch):
    if impl.name == "modtree-jax":
        pytest.skip("arrays are told apart by their addresses")
    m = small_tree(impl)
    count = len(list(m.parameters()))
    asked = []

    def noted(tensor):
        asked.append(tensor)
        return id(tensor)

    monkeypatch.setattr(impl.lib.Tensor, "__hash__", noted)
    found = list(m.parameters())
    assert len(found) == count and all(any(p is q for q in asked) for p in found)


def test_a_prefix_that_raises_once_before_an_override(impl):
    class Prefix(str):
        left = 1

        def __add__(self, other):
            Prefix.left -= 1
            if Prefix.left == 0:
                raise KeyError("added")
            return str.__add__(self, other)

    class Walked(impl.nn.Module):
        def named_modules(self, *args, **kwargs):
            return super().named_modules(*args, **kwargs)

    root = impl.nn.Module()
    root.child = Walked()
    with pytest.raises(KeyError, match="added"):
        list(root.named_modules(prefix=Prefix("net")))
