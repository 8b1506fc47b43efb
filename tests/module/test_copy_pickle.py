# SPDX-License-Identifier: BSD-3-Clause
"""``copy``, ``deepcopy`` and pickle at every protocol."""

from __future__ import annotations

import copy
import copyreg
import importlib
import pickle
import sys
from collections import OrderedDict, UserDict

import pytest
from helpers.implementations import needs_torch
from helpers.pickled_modules import Net, full, importable, plain_hook
from helpers.support import raises, values
from helpers.util import HOOK_TABLES, INTERNAL_KEYS, chain, names, one, param, tensor

import modtree

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def Slotted(Module):
    class Slotted(Module):
        __slots__ = ("slot",)

    return Slotted


def identity(x):
    return x


def outline(m):
    return (
        names(m.named_modules(remove_duplicate=False)),
        [(n, values(p), p.requires_grad) for n, p in m.named_parameters(remove_duplicate=False)],
        [(n, values(b)) for n, b in m.named_buffers(remove_duplicate=False)],
        names(m.named_parameters()),
        list(m.state_dict()),
        [x.training for x in m.modules()],
        [list(x.__dict__) for x in m.modules()],
    )


@pytest.fixture(params=["deepcopy", *(f"pickle {p}" for p in PROTOCOLS)])
def duplicate(request):
    if request.param == "deepcopy":
        return copy.deepcopy
    protocol = int(request.param[-1])
    return lambda m: pickle.loads(pickle.dumps(m, protocol))


# -- deepcopy and pickle -------------------------------------------------------------------------


def looked_at(m):
    for module in m.modules():
        _ = module.__dict__
    return m


def test_deepcopy_of_modules_that_were_looked_at_runs_no_python_code(impl):
    tree = looked_at(impl.nn.ModuleList(impl.nn.Module() for _ in range(9)))
    called = []
    sys.setprofile(lambda frame, event, arg: event == "call" and called.append(frame))
    try:
        copy.deepcopy(tree)
    finally:
        sys.setprofile(None)
    assert (len(called) < 9) != impl.is_torch


def test_a_table_that_two_modules_hold_is_copied_once(impl):
    tree = looked_at(impl.nn.ModuleList(impl.nn.Module() for _ in range(2)))
    tree[1].__dict__["_forward_hooks"] = tree[0].__dict__["_forward_hooks"]
    first, second = copy.deepcopy(tree)
    assert first._forward_hooks is second._forward_hooks
    assert first._forward_hooks is not tree[0]._forward_hooks


def test_the_memo_knows_a_table_that_somebody_holds(impl):
    m = looked_at(impl.nn.Module())
    table, memo = m._forward_pre_hooks, {}
    new = copy.deepcopy(m, memo)
    assert memo[id(table)] is new._forward_pre_hooks


@pytest.mark.parametrize("look", [looked_at, identity], ids=["looked", "fresh"])
def test_the_memo_may_hold_the_copy_of_an_empty_table(impl, look):
    m = look(impl.nn.Module())
    table = OrderedDict(a=1)
    assert copy.deepcopy(m, {id(m._forward_hooks): table})._forward_hooks is table


def test_what_copied_values_do_to_the_module_comes_too_late(impl):
    class Value:
        def __deepcopy__(self, memo):
            m.__dict__.pop("later", None)
            m.__dict__["_buffers"] = {"other": None}
            m.__dict__[3] = "odd"
            return self

    m = looked_at(impl.nn.Module())
    m.value = Value()
    m.later = [1]
    new = copy.deepcopy(m)
    assert (new.later, new._buffers, 3 in new.__dict__) == ([1], {}, False)


def test_a_method_in_the_dict_is_copied_with_it(impl):
    m = looked_at(impl.nn.Module())
    m.forward = identity
    m.__dict__["_compiled_call_impl"] = None
    new = copy.deepcopy(m)
    assert new(5) == 5
    assert "_compiled_call_impl" not in new.__dict__


def test_a_table_of_another_kind_keeps_it(impl):
    m = looked_at(impl.nn.Module())
    m.__dict__["_forward_hooks"] = {}
    m.__dict__["_buffers"] = OrderedDict()
    new = copy.deepcopy(m)
    assert type(new.__dict__["_forward_hooks"]) is dict
    assert type(new.__dict__["_buffers"]) is OrderedDict


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "looked"])
def test_everything_comes_back(impl, duplicate, looked):
    m = full(impl)
    if looked:
        for x in m.modules():
            _ = x.__dict__
    made = type(m).made
    new = duplicate(m)
    assert type(new) is type(m) and new is not m
    assert type(m).made == made  # __init__ did not run
    assert outline(new) == outline(m)
    assert new.plain == m.plain and new.plain is not m.plain


def test_sharing_inside_the_tree_is_kept(impl, duplicate):
    m = full(impl)
    new = duplicate(m)
    assert new.tied is new.body.scale and new.tied is not m.tied
    assert new.again is new.body.left is new.body.again
    assert new.listed[0] is new.body.scale and new.listed[1] is new.body.left
    assert new.body.right.weight is new.body.left.weight


def test_a_copy_shares_nothing(impl, duplicate):
    m = full(impl)
    new = duplicate(m)
    before = outline(m)
    new.extra, new.body.left.more = param(impl), impl.nn.Module()
    del new.body.right
    with impl.lib.no_grad():
        new.tied.copy_(impl.lib.tensor([99.0]))
    new._non_persistent_buffers_set.add("x")
    new.train()
    assert outline(m) == before


def test_parameters_stay_parameters(impl, duplicate):
    m = impl.nn.Module()
    m.p = param(impl)
    m.frozen = impl.nn.Parameter(tensor(impl), requires_grad=False)
    new = duplicate(m)
    assert isinstance(new.p, impl.nn.Parameter) and new.p.requires_grad
    assert isinstance(new.frozen, impl.nn.Parameter) and not new.frozen.requires_grad
    assert list(new._parameters) == ["p", "frozen"]


def test_cycles(impl, duplicate):
    m = importable(impl, Net)()
    m.child = importable(impl, Net)()
    m.child.up = m
    m.me = m
    m.plain = [m]
    new = duplicate(m)
    assert new.child.up is new and new.me is new and new.plain == [new]
    assert names(new.named_modules()) == ["", "child"]


def test_bound_hooks_follow_the_copy(impl, duplicate):
    m = importable(impl, Net)()
    handle = m.register_forward_pre_hook(m.hook)
    m.handle = handle
    new = duplicate(m)
    new(1)
    assert new.log == ["hook", "forward"] and m.log == []
    assert list(new._forward_pre_hooks) == list(m._forward_pre_hooks)  # ids are kept
    new.handle.remove()
    assert not new._forward_pre_hooks and m._forward_pre_hooks


def test_plain_functions_as_hooks_are_shared(impl, duplicate):
    m = importable(impl, Net)()
    m.register_forward_hook(plain_hook)
    new = duplicate(m)
    assert list(new._forward_hooks.values()) == [plain_hook]
    new(1)
    assert new.seen and not hasattr(m, "seen")


def test_a_lambda_hook_deep_copies_but_does_not_pickle(impl):
    m = importable(impl, Net)()
    hook = lambda module, args: None  # noqa: E731
    m.register_forward_pre_hook(hook)
    assert list(copy.deepcopy(m)._forward_pre_hooks.values()) == [hook]
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(m)


def test_types_of_the_registries_are_kept(impl, duplicate):
    m = impl.nn.Module()
    m._modules = OrderedDict(a=impl.nn.Module())
    new = duplicate(m)
    assert type(new._modules) is OrderedDict and type(new._parameters) is type(m._parameters)
    for key in INTERNAL_KEYS:
        assert type(new.__dict__[key]) is type(m.__dict__[key])
    if "_forward_hooks" in new.__dict__:
        new.register_forward_hook(plain_hook)
        new.register_state_dict_pre_hook(plain_hook)


def test_values_of_slots_are_lost(impl, duplicate):
    m = importable(impl, Slotted)()
    m.slot, m.kept = 1, 2
    new = duplicate(m)
    assert new.kept == 2 and not hasattr(new, "slot")


def test_order_of_plain_attributes(impl, duplicate):
    m = impl.nn.Module()
    for name in "zxy":
        setattr(m, name, name)
    assert list(duplicate(m).__dict__)[-3:] == ["z", "x", "y"]


def test_odd_names_survive(impl, duplicate):
    m = impl.nn.Module()
    for name in ("ünï", "0", "a b"):
        m.register_parameter(name, param(impl))
    assert list(duplicate(m)._parameters) == ["ünï", "0", "a b"]


def test_deepcopy_passes_the_memo(impl):
    m = full(impl)
    both = copy.deepcopy([m, m.body.left, m.tied])
    assert both[1] is both[0].body.left and both[2] is both[0].tied
    memo = {}
    new = copy.deepcopy(m, memo)
    assert copy.deepcopy(m, memo) is new


def test_a_user_deepcopy_of_a_child_is_used(impl):
    class Singleton(impl.nn.Module):
        def __deepcopy__(self, memo):
            return self

    m = impl.nn.Module()
    m.child = Singleton()
    assert copy.deepcopy(m).child is m.child


def test_there_is_no_deepcopy_method_to_inherit(impl):
    # Ours has a native one all the same, which only copy.deepcopy gets to see.
    assert not hasattr(impl.nn.Module(), "__deepcopy__")
    assert not hasattr(impl.nn.Module(), "__copy__")
    with raises(AttributeError, "object has no attribute '__deepcopy__'"):
        impl.nn.Module().__deepcopy__({})


class Memo(dict):
    """Notes what is put into it."""

    def __init__(self):
        self.kept = []

    def __setitem__(self, key, value):
        self.kept.append(value)
        super().__setitem__(key, value)


@pytest.mark.parametrize("kind", [UserDict, Memo])
@pytest.mark.parametrize("where", ["root", "child"])
def test_deepcopy_takes_any_mapping_as_memo(impl, kind, where):
    m = full(impl)
    memo = kind()
    new = copy.deepcopy(m if where == "root" else impl.nn.Sequential(m), memo)
    copied = new if where == "root" else new[0]
    assert outline(copied) == outline(m)
    assert memo[id(m)] is copied and memo[id(m.body)] is copied.body
    assert kind is UserDict or any(value is copied.body for value in memo.kept)


def sort_of(impl):
    m = impl.nn.Module()
    m.function, m.number, m.kind, m.p = identity, 10**30, Memo, param(impl)
    return m


#: CPython 3.14 does not ask the memo for functions, numbers and classes.
ATOMS_HAVE_A_MEMO = sys.version_info < (3, 14)


@pytest.mark.parametrize("where", ["root", "child"])
@pytest.mark.parametrize("name", ["function", "number", "kind", "p"])
def test_what_the_memo_holds_already_is_taken(impl, where, name):
    m = sort_of(impl)
    other = "another" if name != "p" else param(impl, 5.0)
    root = m if where == "root" else impl.nn.Sequential(m)
    new = copy.deepcopy(root, {id(getattr(m, name)): other})
    expected = other if name == "p" or ATOMS_HAVE_A_MEMO else getattr(m, name)
    assert getattr(new if where == "root" else new[0], name) is expected


def test_the_memo_may_hold_the_registry_and_the_class(impl):
    m = sort_of(impl)
    assert copy.deepcopy(m, {id(m._parameters): {}}).__dict__["_parameters"] == {}
    other = importable(impl, Net)
    expected = other if ATOMS_HAVE_A_MEMO else type(m)
    assert type(copy.deepcopy(m, {id(type(m)): other})) is expected


@pytest.mark.skipif(not ATOMS_HAVE_A_MEMO, reason="copies of atoms ask no table")
@pytest.mark.parametrize("kind", [int, type(identity), type])
def test_a_table_of_the_module_copy_may_copy_atoms(impl, kind, monkeypatch):
    m = sort_of(impl)
    monkeypatch.setitem(copy._deepcopy_dispatch, kind, lambda value, memo: ("copied", value))
    if kind is type:  # so is the class, which makes the copy
        with raises(TypeError, "tuple"):
            copy.deepcopy(impl.nn.Sequential(m))
        return
    new = copy.deepcopy(impl.nn.Sequential(m))[0]
    changed = [
        name for name in ("function", "number", "kind") if getattr(new, name) != vars(m)[name]
    ]
    assert changed == [{int: "number"}.get(kind, "function")]


def test_keys_are_copied(impl):
    class Key(str):
        def __deepcopy__(self, memo):
            return Key(f"{self}_copied")

    m = impl.nn.Module()
    m.register_buffer("b", tensor(impl))
    m._buffers[Key("c")] = tensor(impl)
    m.__dict__[Key("plain")] = 1
    new = copy.deepcopy(impl.nn.Sequential(m))[0]
    assert list(new._buffers) == ["b", "c_copied"] and new.plain_copied == 1


def test_a_deepcopy_that_was_put_in_the_place_of_the_original_is_not_for_parts(impl, monkeypatch):
    original = copy.deepcopy
    monkeypatch.setattr(copy, "deepcopy", lambda *args: "another")
    m = impl.nn.Module()
    m.plain = [1]
    m.child = importable(impl, Counting)()
    new = original(m)
    assert new.plain == [1] and new.child.loads == 1


def test_a_module_that_is_looked_at_before_its_deepcopy_is_called(impl):
    """As another thread or a finalizer may do once the method was found."""
    m = impl.nn.Sequential(sort_of(impl))
    looked = []

    def trace(frame, event, argument):
        if frame.f_code is copy.deepcopy.__code__ and frame.f_locals.get("copier") is not None:
            looked.append(vars(m))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        new = copy.deepcopy(m)
    finally:
        sys.settrace(before)
    assert outline(new) == outline(m) and new[0].p is not m[0].p
    assert looked or impl.is_torch


def test_user_state_methods(impl, duplicate):
    cls = importable(impl, Counting)
    m = cls()
    m.p, m.cache = param(impl), "dropped"
    new = duplicate(m)
    assert new.cache is None and new.loads == 1
    assert one(new.p) == 1.0 and list(new._parameters) == ["p"]


def Counting(Module):
    class Counting(Module):
        def __getstate__(self):
            state = super().__getstate__()
            state["cache"] = None
            return state

        def __setstate__(self, state):
            super().__setstate__(state)
            self.loads = self.__dict__.get("loads", 0) + 1

    return Counting


def WithReduce(Module):
    class WithReduce(Module):
        def __reduce__(self):
            return rebuilt, (type(self), self.key)

    return WithReduce


def rebuilt(cls, key):
    new = cls()
    new.key = key
    new.rebuilt = True
    return new


def test_a_user_reduce(impl, duplicate):
    m = importable(impl, WithReduce)()
    m.key = 7
    new = duplicate(m)
    assert new.key == 7 and new.rebuilt


def test_gradients_are_dropped(impl, duplicate):
    m = impl.nn.Module()
    m.p = param(impl)
    m.p.grad = tensor(impl)
    assert duplicate(m).p.grad is None
    assert m.p.grad is not None


def test_reduction_is_the_standard_one(impl):
    m = full(impl)
    function, args, state = m.__reduce_ex__(2)[:3]
    assert function is copyreg.__newobj__ and args == (type(m),)
    assert m.__getstate__().keys() == m.__dict__.keys()
    assert type(m).__new__(type(m)).__dict__ == {}
    assert m.__reduce_ex__(2)[2].keys() == state.keys()  # looked at by now
    assert impl.is_torch or state.keys() < m.__dict__.keys()


def test_empty_tables_are_not_pickled(ours):
    m = full(ours)
    state = m.__reduce_ex__(2)[2]
    assert "_state_dict_hooks" not in state and state["_forward_hooks"] == OrderedDict()
    assert state["_parameters"] is m._parameters and state["plain"] == m.plain
    for looked in (False, True):
        again = type(m).__new__(type(m))
        if looked:
            assert again.__dict__ == {}
        again.__setstate__(state)
        assert again.__dict__.keys() == m.__dict__.keys()
        assert type(again._forward_hooks) is type(m._forward_hooks) and not again._forward_hooks


@needs_torch
def test_states_go_from_one_library_to_the_other():
    """One class that exists under both: what one pickles, the other's __setstate__ takes."""
    torch = importlib.import_module("torch")
    kinds = (modtree.nn.Module, torch.nn.Module)
    for source, target in (kinds, kinds[::-1]):
        m = source()
        m.w, m.plain = torch.nn.Parameter(torch.ones(2)), 1
        m.forward = identity
        for state in (source().__reduce_ex__(2)[2], m.__reduce_ex__(2)[2], m.__getstate__()):
            new = target.__new__(target)
            target.__setstate__(new, pickle.loads(pickle.dumps(state)))
            for key in INTERNAL_KEYS:
                assert type(new.__dict__[key]) is type(m.__dict__[key]), key
            assert names(new.named_parameters()) == (["w"] if "plain" in state else [])
            assert names(new.named_modules()) == [""] and repr(new) == "Module()"
            new.forward = identity
            seen = []
            new.register_forward_hook(lambda *a, seen=seen: seen.append("forward"))
            new.register_full_backward_hook(lambda *a, seen=seen: seen.append("backward"))
            new(torch.ones(2, requires_grad=True)).sum().backward()
            assert seen == ["forward", "backward"]
            new.child, new.b = target(), torch.nn.Buffer(torch.zeros(1))
            assert names(new.named_children()) == ["child"] and names(new.named_buffers()) == ["b"]


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "looked"])
def test_states_that_spell_empty_tables_none_load(ours, looked):
    """As they were written once."""
    state = importable(ours, Net)().__reduce_ex__(2)[2]
    for key in ("_parameters", "_buffers", "_modules", "_backward_hooks", "_forward_hooks"):
        state[key] = None
    cls = importable(ours, Net)
    m = cls.__new__(cls)
    if looked:
        assert m.__dict__ == {}
    m.__setstate__(state)
    for key in INTERNAL_KEYS:
        assert type(m.__dict__[key]) is type(ours.nn.Module().__dict__[key])
    m.w = param(ours)
    m.register_forward_hook(plain_hook)
    assert m(1) == 1 and m.seen and names(m.named_parameters()) == ["w"]


def test_empty_containers_of_two_modules_stay_apart(impl, duplicate):
    a, b = duplicate([importable(impl, Net)(), importable(impl, Net)()])
    a.w, a.child = param(impl), impl.nn.Module()
    a.register_forward_hook(plain_hook)
    assert not b._parameters and not b._modules and not b._forward_hooks


def test_an_empty_registry_that_two_modules_share_stays_shared(impl, duplicate):
    m = importable(impl, Net)()
    a, b = duplicate([m, copy.copy(m)])
    assert a is not b
    a.w, a.child = param(impl), impl.nn.Module()
    a.register_forward_hook(plain_hook)
    assert b.w is a.w and b.child is a.child and b._forward_hooks is a._forward_hooks


def test_a_registry_that_two_modules_of_a_cycle_share_stays_shared(impl, duplicate):
    nn = impl.nn
    root, a, b, c = (nn.Module() for _ in range(4))
    root.a, a.b, b.c = a, b, c
    c._modules = a._modules
    copied = duplicate(root)
    assert copied.a.b.c._modules is copied.a._modules
    assert list(copied.a.b.c._modules) == ["b"]


@pytest.mark.parametrize("depth", [0, 3, 150])
def test_code_of_modules_runs_depth_first(impl, depth):
    ran = []

    class Loud(impl.nn.Module):
        def __deepcopy__(self, memo):
            ran.append(self.tag)
            return self

    def inside(module, levels):
        for _ in range(levels):
            module = impl.nn.Sequential(module)
        return module

    tree = impl.nn.Sequential(inside(Loud(), depth), Loud(), inside(Loud(), 2))
    for number, module in enumerate(m for m in tree.modules() if isinstance(m, Loud)):
        module.tag = number
    copy.deepcopy(tree)
    # Those more than a hundred levels down come last on the native tree.
    assert ran == ([1, 2, 0] if depth == 150 and impl.name != "torch" else [0, 1, 2])


# -- copy.copy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "looked"])
def test_a_shallow_copy_shares_the_registries(impl, looked):
    m = full(impl)
    if looked:
        _ = m.__dict__
    new = copy.copy(m)
    assert type(new) is type(m) and new is not m and new.__dict__ is not m.__dict__
    for key in INTERNAL_KEYS:
        assert new.__dict__[key] is m.__dict__[key]
    new.extra, new.plain_new = param(impl), 1
    assert m.extra is new.extra and not hasattr(m, "plain_new")
    m.another = impl.nn.Module()
    assert new.another is m.another
    new.training = "own"
    assert m.training is False


def test_a_shallow_copy_of_a_module_that_lacks_an_entry_shares_the_others(impl):
    m = impl.nn.Module()
    del m._non_persistent_buffers_set
    twin = copy.copy(m)
    assert twin._parameters is m._parameters and twin._modules is m._modules
    assert twin._forward_hooks is m._forward_hooks
    assert twin._non_persistent_buffers_set == set()


def test_a_shallow_copy_with_rebound_registries_is_apart(impl):
    m = full(impl)
    new = copy.copy(m)
    new._parameters = dict(new._parameters)
    new.fresh = param(impl)
    assert not hasattr(m, "fresh")


def test_hooks_of_a_shallow_copy_are_shared(impl):
    m = importable(impl, Net)()
    new = copy.copy(m)
    new.register_forward_pre_hook(m.hook)
    m(1)
    assert m.log == ["hook", "forward"]


# -- depth ---------------------------------------------------------------------------------------


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("looked", [False, True], ids=["fresh", "looked"])
def test_a_chain_beyond_the_recursion_limit_copies_or_says_why_not(impl, duplicate, looked):
    m = inner = chain(impl, 3000)
    while looked and inner._modules:
        assert inner.__dict__ is not None
        inner = inner.c
    try:
        new = duplicate(m)
    except RecursionError:
        return
    depth = 1
    while new._modules:
        new, depth = new.c, depth + 1
    assert depth == 3000


def test_tables_survive(impl, duplicate):
    m = importable(impl, Net)()
    for register in (
        m.register_forward_hook,
        m.register_full_backward_hook,
        m.register_full_backward_pre_hook,
        m._register_state_dict_hook,
        m.register_state_dict_pre_hook,
        m.register_load_state_dict_post_hook,
    ):
        register(plain_hook)
    m.register_forward_hook(plain_hook, with_kwargs=True, always_call=True)
    new = duplicate(m)
    for key in HOOK_TABLES:
        assert getattr(new, key) == getattr(m, key), key
        if getattr(m, key):
            assert getattr(new, key) is not getattr(m, key) or key == "_is_full_backward_hook"


def test_a_failing_reduction_is_reported(impl):
    class Unpicklable:
        def __reduce_ex__(self, protocol):
            raise LookupError("no copy")

    m = impl.nn.Module()
    m.child = impl.nn.Module()
    m.child.bad = Unpicklable()
    with raises(LookupError, "no copy"):
        copy.deepcopy(m)
    with raises(LookupError, "no copy"):
        pickle.dumps(m)


def test_a_table_that_is_filled_while_another_value_is_copied(impl):
    class Fills:
        def __deepcopy__(self, memo):
            self.module._forward_hooks[7] = print
            return self

    m = impl.nn.Module()
    vars(m)  # all attributes are in the dict from here on
    filling = Fills()
    filling.module = m
    state = dict(vars(m))
    vars(m).clear()
    vars(m).update({"filling": filling, **state})
    del state
    assert list(copy.deepcopy(m)._forward_hooks) == [7]
