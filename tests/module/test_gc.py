# SPDX-License-Identifier: BSD-3-Clause
"""Cycles through every reference that a module (or an iterator over one) holds are found by the
collector.

Adding a reference to the state of a native type means four edits: the member, traverse, clear, and
a test here.
"""

from __future__ import annotations

import gc
import itertools
import sys
import sysconfig
import weakref
from collections import OrderedDict

import pytest
from helpers.util import HOOK_TABLES, REGISTRIES, names, param, small_tree, tensor

TABLES = tuple(k for k in HOOK_TABLES if k != "_is_full_backward_hook")


class Token:
    """Something that can be watched."""


def dies(make):
    """``make(token)`` builds a cycle that holds the token, and gives its root; both must be gone
    after a collection.
    """
    token = Token()
    obj = make(token)
    assert gc.is_tracked(obj)
    watch = [weakref.ref(token)]
    try:
        watch.append(weakref.ref(obj))
    except TypeError:
        pass  # iterators cannot be referenced weakly everywhere; the token tells
    del token, obj
    assert watch[0]() is not None, "no cycle: it died at once"
    gc.collect()
    assert [ref() for ref in watch] == [None] * len(watch)


LOOKED = pytest.mark.parametrize("looked", [False, True], ids=["fresh", "looked"])


def module(impl, looked=False):
    m = impl.nn.Module()
    if looked:
        assert m.__dict__
    return m


@LOOKED
def test_instance_dict(impl, looked):
    def make(token):
        m = module(impl, looked)
        m.me, m.token = [m], token
        return m

    dies(make)


@LOOKED
def test_child_registry(impl, looked):
    def make(token):
        m = module(impl, looked)
        m.child = module(impl, looked)
        m.child.up, m.child.token = m, token
        return m

    dies(make)


@LOOKED
@pytest.mark.parametrize("key", REGISTRIES)
def test_each_registry(impl, key, looked):
    def make(token):
        m = module(impl, looked)
        getattr(m, key)["cycle"] = [m, token]
        return m

    dies(make)


@LOOKED
def test_parameter_and_buffer_attributes(impl, looked):
    def make_parameter(token):
        m = module(impl, looked)
        m.p = param(impl)
        m.p.owner, m.p.token = m, token
        return m

    def make_buffer(token):
        m = module(impl, looked)
        m.register_buffer("b", tensor(impl))
        m.b.owner, m.b.token = m, token
        return m

    dies(make_parameter)
    dies(make_buffer)


@LOOKED
def test_non_persistent_set(impl, looked):
    class Key(str):
        pass

    def make(token):
        m = module(impl, looked)
        key = Key("k")
        key.owner, key.token = m, token
        m._non_persistent_buffers_set.add(key)
        return m

    dies(make)


@LOOKED
@pytest.mark.parametrize("key", REGISTRIES)
def test_keys_of_a_registry(impl, key, looked):
    class Key(str):
        pass

    def make(token):
        m = module(impl, looked)
        name = Key("k")
        name.owner, name.token = m, token
        getattr(m, key)[name] = None
        return m

    dies(make)


@LOOKED
@pytest.mark.parametrize("key", TABLES)
def test_each_hook_table(impl, key, looked):
    def make(token):
        m = module(impl, looked)
        getattr(m, key)["cycle"] = (m, token)
        return m

    dies(make)


@LOOKED
@pytest.mark.parametrize("key", ["training", "_is_full_backward_hook", "_compiled_call_impl"])
def test_each_other_value(impl, key, looked):
    def make(token):
        m = module(impl, looked)
        setattr(m, key, [m, token])
        return m

    dies(make)


@LOOKED
@pytest.mark.parametrize("key", [*REGISTRIES, *TABLES])
def test_a_rebound_table(impl, key, looked):
    def make(token):
        m = module(impl, looked)
        setattr(m, key, OrderedDict(cycle=[m, token]))
        return m

    dies(make)


HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
    "_register_state_dict_hook",
    "register_state_dict_pre_hook",
    "register_state_dict_post_hook",
    "_register_load_state_dict_pre_hook",
    "register_load_state_dict_pre_hook",
    "register_load_state_dict_post_hook",
)


@pytest.mark.parametrize("register", HOOKS)
def test_each_kind_of_hook(impl, register):
    """A hook that closes over its module; the handle is kept on the module too."""

    def make(token):
        m = module(impl)

        def hook(*args):
            return m, token

        m.handle = getattr(m, register)(hook)
        return m

    dies(make)


@pytest.mark.parametrize("register", [h for h in HOOKS if h != "register_state_dict_post_hook"])
def test_a_bound_method_as_hook(impl, register):
    class M(impl.nn.Module):
        def hook(self, *args):
            pass

    def make(token):
        m = M()
        m.token = token
        getattr(m, register)(m.hook)
        return m

    dies(make)


def test_a_module_pre_hook_with_its_module(impl):
    def make(token):
        m = module(impl)
        m.token = token
        m._register_load_state_dict_pre_hook(lambda *a: m, with_module=True)
        return m

    dies(make)


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info < (3, 14),
    reason="classes live for ever in free-threaded 3.13 once a thread has run",
)
def test_a_class_that_its_instance_holds(impl):
    def make(token):
        cls = type("Own", (impl.nn.Module,), {"token": token})
        m = cls()
        cls.instance = m
        list(m.named_modules())
        list(m.parameters())
        cls.named_modules = lambda self, *a, **k: iter(())
        list(m.modules())
        return m

    dies(make)


def test_an_instance_override_of_a_method(impl):
    def make(token):
        m = module(impl)
        m.token = token
        m.forward = lambda x: m
        m.train = m.eval = m.named_modules = m.forward
        return m

    dies(make)


WALKS = {
    "parameters": lambda m: m.parameters(),
    "named_parameters": lambda m: m.named_parameters(),
    "buffers": lambda m: m.buffers(),
    "named_buffers": lambda m: m.named_buffers(prefix="p"),
    "children": lambda m: m.children(),
    "named_children": lambda m: m.named_children(),
    "modules": lambda m: m.modules(),
    "named_modules": lambda m: m.named_modules(),
    "all modules": lambda m: m.named_modules(remove_duplicate=False),
    "all parameters": lambda m: m.named_parameters(remove_duplicate=False),
    "members": lambda m: m._named_members(lambda x: x._parameters.items()),
}


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_an_unfinished_walk_kept_by_its_module(impl, walk, steps):
    def make(token):
        m = small_tree(impl)
        m.left.token = token
        m.left.walk = walk(m)
        list(itertools.islice(m.left.walk, steps))
        return m

    dies(make)


class Text(str):
    """A name with attributes."""


PREFIXED = {
    "named_parameters": lambda m, p: m.named_parameters(prefix=p),
    "own parameters": lambda m, p: m.named_parameters(prefix=p, recurse=False),
    "named_buffers": lambda m, p: m.named_buffers(prefix=p),
    "named_modules": lambda m, p: m.named_modules(prefix=p),
    "all modules": lambda m, p: m.named_modules(prefix=p, remove_duplicate=False),
    "members": lambda m, p: m._named_members(lambda x: x._parameters.items(), prefix=p),
}


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("walk", PREFIXED.values(), ids=PREFIXED)
def test_a_walk_kept_by_its_prefix(impl, walk, steps):
    def make(token):
        prefix = Text("p")
        prefix.token, prefix.walk = token, walk(small_tree(impl), prefix)
        list(itertools.islice(prefix.walk, steps))
        return prefix.walk

    dies(make)


@pytest.mark.parametrize("kind", ["modules", "named_modules", "all modules"])
def test_a_walk_kept_by_a_key_that_the_tree_has_no_more(ours, kind):
    def make(token):
        m, key = module(ours), Text("key")
        m.add_module(key, module(ours))
        key.token, key.walk = token, WALKS[kind](m)
        list(itertools.islice(key.walk, 2))
        m._modules.clear()
        return key.walk

    dies(make)


@pytest.mark.parametrize("walk", PREFIXED.values(), ids=PREFIXED)
def test_a_walk_kept_by_a_name_that_it_made(impl, walk):
    class Adds(Text):
        def __radd__(self, other):
            made = Adds(str(other) + str.__str__(self))
            made.__dict__ = self.__dict__
            return made

    def make(token):
        m, child, key = module(impl), module(impl), Adds("key")
        m.register_parameter("w", param(impl))
        m.register_buffer("b", tensor(impl))
        for name in "cde":
            child.add_module(name, module(impl))
            child.register_parameter(f"w{name}", param(impl))
            child.register_buffer(f"b{name}", tensor(impl))
        m.add_module(key, child)
        m.register_parameter("v", param(impl))
        key.token, key.walk = token, walk(m, "")
        list(itertools.islice(key.walk, 2))
        return key.walk

    dies(make)


@pytest.mark.parametrize("place", ["child", "parameter", "prefix"])
def test_a_state_dict_kept_by_a_name(impl, place):
    def make(token):
        m, name = module(impl), Text("name")
        m.add_module(name if place == "child" else "child", module(impl))
        m.register_parameter(name if place == "parameter" else "w", param(impl))
        state = m.state_dict(prefix=name if place == "prefix" else "")
        name.token, name.state = token, state
        state.kept = m.kept = name
        return m

    dies(make)


def test_a_memo_kept_by_its_module(impl):
    def make(token):
        m = small_tree(impl)
        m.token, m.memo = token, set()
        m.walk = m.named_modules(m.memo)
        next(m.walk)
        return m

    dies(make)


def test_an_override_that_holds_its_walk(impl):
    def make(token):
        m = small_tree(impl)
        m.token = token

        def override(memo, prefix, remove_duplicate):
            yield prefix, m
            yield prefix, token

        m.left.named_modules = override
        m.walk = m.named_modules()
        next(m.walk), next(m.walk)
        return m

    dies(make)


def test_a_members_function_that_holds_its_walk(impl):
    def make(token):
        m = small_tree(impl)

        def members(x):
            yield "x", [m, token]

        m.walk = m._named_members(lambda x: ((k, m) for k in "ab"))
        next(m.walk)
        m.members, m.other = members, m._named_members(members)
        return m

    dies(make)


def test_a_finished_walk_holds_nothing(impl):
    m = small_tree(impl)
    ref = weakref.ref(m)
    walks = [f(m) for f in WALKS.values()]
    for walk in walks:
        list(walk)
    closed = m.named_modules()
    next(closed)
    closed.close()
    del m
    gc.collect()
    assert ref() is None


def test_names_remembered_of_a_walk_hold_no_module(impl):
    """Whatever is kept to make the next walk quick must not keep the tree alive."""
    m = small_tree(impl)
    refs = [weakref.ref(x) for x in m.modules()]
    for _ in range(4):
        for walk in WALKS.values():
            list(walk(m))
    del m
    gc.collect()
    assert [r() for r in refs] == [None] * len(refs)


def test_names_remembered_of_a_walk_hold_no_parameter(impl):
    m = small_tree(impl)
    for _ in range(3):
        list(m.named_parameters())
    p = m.scale
    p.token = Token()
    ref = weakref.ref(p.token)
    del p, m.scale
    gc.collect()
    assert ref() is None
    assert "scale" not in names(m.named_parameters())


def test_a_state_dict_that_holds_its_module(impl):
    def make(token):
        m = small_tree(impl)
        m.token = token
        m.state = m.state_dict()
        m.state["owner"] = m
        m.state._metadata["owner"] = m
        return m

    dies(make)


def test_a_bare_instance(impl):
    def make(token):
        m = impl.nn.Module.__new__(impl.nn.Module)
        m.me, m.token = [m], token
        return m

    def make_with_dict(token):
        m = impl.nn.Module.__new__(impl.nn.Module)
        m.__dict__["me"] = (m, token)
        return m

    class Bare(impl.nn.Module):
        def __init__(self):
            pass

    def make_forgotten(token):
        m = Bare()
        m.tokens = [m, token]
        return m

    dies(make)
    dies(make_with_dict)
    dies(make_forgotten)


def test_an_assigned_dict(impl):
    def make(token):
        m = module(impl)
        m.__dict__ = {**m.__dict__, "me": m, "token": token}
        return m

    dies(make)


def test_weak_references_are_cleared_and_called(impl):
    m = module(impl)
    seen = []
    ref = weakref.ref(m, seen.append)
    m.child = impl.nn.Module()
    m.child.up = m
    del m
    gc.collect()
    assert seen == [ref] and ref() is None


def test_plain_death_needs_no_collector(impl):
    """Without a cycle a tree dies by reference counts alone."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        m = small_tree(impl)
        list(m.named_parameters()), m.state_dict(), repr(m)
        refs = [weakref.ref(x) for x in m.modules()]
        del m
        assert [r() for r in refs] == [None] * len(refs)
    finally:
        if was_enabled:
            gc.enable()
