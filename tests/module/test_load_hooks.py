# SPDX-License-Identifier: BSD-3-Clause
"""Hooks around ``load_state_dict``."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import leaf, raises, values


def pair(impl):
    m = leaf(impl, "a")
    m.child = leaf(impl, "w")
    return m


def checkpoint(impl, *keys):
    return {k: impl.lib.tensor([7.0, 8.0]) for k in keys or ("a", "child.w")}


def module_level_hook(module, *args):
    module.__dict__.setdefault("hooked", []).append(args[1])


# -- pre-hooks -------------------------------------------------------------------------------------


def test_pre_hook_gets_the_seven_arguments(impl):
    m = pair(impl)
    seen = []
    m.child._register_load_state_dict_pre_hook(lambda *a: seen.append(a))
    sd = checkpoint(impl)
    m.load_state_dict(sd, strict=False)
    ((state_dict, prefix, local_metadata, strict, missing, unexpected, errors),) = seen
    assert type(state_dict) is dict and list(state_dict) == ["child.w"]
    assert prefix == "child." and local_metadata == {} and strict is True
    assert missing == unexpected == errors == []
    assert type(missing) is type(unexpected) is type(errors) is list


def test_pre_hook_of_the_root_gets_a_copy_of_the_checkpoint(impl):
    m = pair(impl)
    sd = m.state_dict()
    seen = []
    m._register_load_state_dict_pre_hook(lambda *a: seen.append((a[0], a[2])))
    m.load_state_dict(sd)
    state_dict, local_metadata = seen[0]
    assert state_dict is not sd and dict(state_dict).keys() == sd.keys()
    assert state_dict._metadata == sd._metadata
    assert local_metadata == {"version": 1}


def test_public_and_with_module_hooks_get_the_module_first(impl):
    m = pair(impl)
    seen = []
    m.child.register_load_state_dict_pre_hook(lambda *a: seen.append((a[0], a[2], len(a))))
    m.child._register_load_state_dict_pre_hook(
        lambda *a: seen.append((a[0], a[2], len(a))), with_module=True
    )
    m.child._register_load_state_dict_pre_hook(lambda *a: seen.append((a[1], len(a))), False)
    m.load_state_dict(checkpoint(impl))
    assert seen == [(m.child, "child.", 8), (m.child, "child.", 8), ("child.", 7)]


def test_pre_hook_result_is_ignored(impl):
    m = leaf(impl, "a")
    m._register_load_state_dict_pre_hook(lambda *a: {"a": 1})
    m.load_state_dict(checkpoint(impl, "a"))
    assert values(m.a) == [7.0, 8.0]


def test_pre_hook_may_rename_keys(impl):
    m = pair(impl)

    def rename(state_dict, prefix, *args):
        state_dict[prefix + "w"] = state_dict.pop(prefix + "old")

    m.child._register_load_state_dict_pre_hook(rename)
    m.load_state_dict(checkpoint(impl, "a", "child.old"))
    assert values(m.child.w) == [7.0, 8.0]


def test_pre_hook_of_the_root_may_rename_keys_of_children(impl):
    m = pair(impl)

    def rename(state_dict, prefix, *args):
        state_dict["child.w"] = state_dict.pop("outer.w")

    m._register_load_state_dict_pre_hook(rename)
    m.load_state_dict(checkpoint(impl, "a", "outer.w"))
    assert values(m.child.w) == [7.0, 8.0]


def test_pre_hook_of_a_child_cannot_change_its_siblings(impl):
    m = impl.nn.Module()
    m.one, m.two = leaf(impl, "w"), leaf(impl, "w")

    def meddle(state_dict, prefix, *args):
        assert list(state_dict) == ["one.w"]
        state_dict["two.w"] = None
        state_dict["one.w2"] = 1

    m.one._register_load_state_dict_pre_hook(meddle)
    result = m.load_state_dict(checkpoint(impl, "one.w", "two.w"), strict=False)
    assert values(m.two.w) == [7.0, 8.0]
    assert result == ([], ["one.w2"])


def test_pre_hook_may_remove_keys(impl):
    m = pair(impl)
    m._register_load_state_dict_pre_hook(lambda sd, *a: sd.pop("child.w"))
    with raises(RuntimeError, 'Missing key(s) in state_dict: "child.w". '):
        m.load_state_dict(checkpoint(impl))


def test_pre_hooks_may_append_to_the_lists(impl):
    m = pair(impl)

    def adds(state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        missing.append("my missing")
        unexpected.append("my unexpected")
        errors.append("my error")

    m._register_load_state_dict_pre_hook(adds)
    with pytest.raises(RuntimeError) as info:
        m.load_state_dict({})
    assert str(info.value) == (
        "Error(s) in loading state_dict for Module:\n"
        '\tMissing key(s) in state_dict: "my missing", "a", "child.w". \n'
        '\tUnexpected key(s) in state_dict: "my unexpected". \n'
        "\tmy error"
    )
    with raises(RuntimeError, "\tmy error"):
        m.load_state_dict({}, strict=False)


def test_pre_hook_may_change_the_module(impl):
    m = leaf(impl, "a")

    def grow(module, state_dict, prefix, *args):
        module.b = impl.nn.Parameter(impl.lib.zeros(2))
        module.child = leaf(impl, "w")

    m.register_load_state_dict_pre_hook(grow)
    m.load_state_dict(checkpoint(impl, "a", "b", "child.w"))
    assert values(m.b) == values(m.child.w) == [7.0, 8.0]


def test_pre_hook_order(impl):
    m = pair(impl)
    order = []
    for name, module in (("child", m.child), ("root", m)):
        for i in range(2):
            module._register_load_state_dict_pre_hook(lambda *a, n=name, i=i: order.append((n, i)))
    m.load_state_dict(checkpoint(impl))
    assert order == [("root", 0), ("root", 1), ("child", 0), ("child", 1)]


def test_exception_in_a_pre_hook_propagates(impl):
    m = pair(impl)

    def fail(*args):
        raise LookupError("hook")

    m.child._register_load_state_dict_pre_hook(fail)
    with raises(LookupError, "hook"):
        m.load_state_dict(checkpoint(impl))


def test_hooks_are_stored_wrapped(impl):
    m = leaf(impl, "a")

    def hook(*args):
        """Its text."""

    hook.note = 1
    handle = m._register_load_state_dict_pre_hook(hook)
    stored = m._load_state_dict_pre_hooks[handle.id]
    assert stored is not hook
    assert stored.__wrapped__ is hook
    assert stored.__name__ == "hook" and stored.__doc__ == "Its text."
    assert stored.note == 1


def test_stored_hook_can_be_called(impl):
    m = leaf(impl, "a")
    seen = []
    private = m._register_load_state_dict_pre_hook(lambda *a: seen.append(a))
    public = m.register_load_state_dict_pre_hook(lambda *a: seen.append(a))
    m._load_state_dict_pre_hooks[private.id](1, 2)
    m._load_state_dict_pre_hooks[public.id](1, 2)
    assert seen == [(1, 2), (m, 1, 2)]


def test_stored_hook_holds_its_module_weakly(impl):
    m = leaf(impl, "a")
    handle = m.register_load_state_dict_pre_hook(module_level_hook)
    stored = m._load_state_dict_pre_hooks[handle.id]
    ref = weakref.ref(m)
    del m
    gc.collect()
    assert ref() is None
    with raises(RuntimeError, "hook of a dead Module"):
        stored(1, 2)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_stored_hook_is_bound_to_the_copy(impl, how):
    m = leaf(impl, "a")
    m.register_load_state_dict_pre_hook(module_level_hook)
    twin = copy.deepcopy(m) if how == "deepcopy" else pickle.loads(pickle.dumps(m))
    twin.load_state_dict(twin.state_dict())
    assert twin.hooked == [""]
    assert not hasattr(m, "hooked")


def test_bound_method_of_the_module_as_a_hook(impl):
    class Own(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []
            self._register_load_state_dict_pre_hook(self.note)

        def note(self, state_dict, prefix, *args):
            self.seen.append(prefix)

    m = Own()
    twin = copy.deepcopy(m)
    twin.load_state_dict({})
    assert m.seen == [] and twin.seen == [""]


def test_hooks_put_directly_into_the_table(impl):
    m = leaf(impl, "a")
    seen = []
    m._load_state_dict_pre_hooks["x"] = lambda *a: seen.append(len(a))
    m._load_state_dict_post_hooks["x"] = lambda *a: seen.append(len(a))
    m.load_state_dict(checkpoint(impl, "a"))
    assert seen == [7, 2]


# -- post hooks ------------------------------------------------------------------------------------


def test_post_hooks_run_children_first(impl):
    m = pair(impl)
    seen = []
    m.register_load_state_dict_post_hook(lambda *a: seen.append(a))
    m.child.register_load_state_dict_post_hook(lambda *a: seen.append(a))
    result = m.load_state_dict(checkpoint(impl))
    assert [s[0] for s in seen] == [m.child, m]
    assert all(len(s) == 2 for s in seen)
    assert type(seen[0][1]) is type(result)
    assert seen[0][1].missing_keys is seen[1][1].missing_keys is result.missing_keys


def test_post_hook_runs_after_the_values_are_loaded(impl):
    m = pair(impl)
    seen = []
    m.child.register_load_state_dict_post_hook(lambda c, keys: seen.append(values(c.w)))
    m.load_state_dict(checkpoint(impl))
    assert seen == [[7.0, 8.0]]


def test_post_hook_may_clear_the_lists(impl):
    m = pair(impl)

    def forgive(module, keys):
        keys.missing_keys.clear()
        keys.unexpected_keys.clear()

    m.register_load_state_dict_post_hook(forgive)
    assert m.load_state_dict(checkpoint(impl, "a", "zzz")) == ([], [])
    assert values(m.a) == [7.0, 8.0]


def test_post_hook_sees_the_lists_so_far(impl):
    m = impl.nn.Module()
    m.one, m.two = leaf(impl, "w"), leaf(impl, "w")
    seen = []
    m.one.register_load_state_dict_post_hook(lambda c, keys: seen.append(list(keys.missing_keys)))
    m.load_state_dict({}, strict=False)
    assert seen == [["one.w"]]


def test_post_hook_may_add_keys(impl):
    m = leaf(impl, "a")
    m.register_load_state_dict_post_hook(lambda c, keys: keys.missing_keys.append("mine"))
    with raises(RuntimeError, 'Missing key(s) in state_dict: "mine". '):
        m.load_state_dict(checkpoint(impl, "a"))


def test_post_hook_must_return_none(impl):
    m = leaf(impl, "a")
    m.register_load_state_dict_post_hook(lambda c, keys: keys)
    with raises(AssertionError, "should be done inplace"):
        m.load_state_dict(checkpoint(impl, "a"))


def test_exception_in_a_post_hook_propagates(impl):
    m = pair(impl)

    def fail(*args):
        raise LookupError("hook")

    m.child.register_load_state_dict_post_hook(fail)
    with raises(LookupError, "hook"):
        m.load_state_dict(checkpoint(impl))


def test_removed_hooks_do_not_run(impl):
    m = leaf(impl, "a")
    fired = []
    m.register_load_state_dict_post_hook(lambda *a: fired.append(1)).remove()
    m._register_load_state_dict_pre_hook(lambda *a: fired.append(1)).remove()
    m.register_load_state_dict_pre_hook(lambda *a: fired.append(1)).remove()
    m.load_state_dict(checkpoint(impl, "a"))
    assert fired == []


def test_hooks_may_add_modules_beside_what_is_loaded(ours):
    """torch walks the registry while the hook changes it, and stops half-way with a
    RuntimeError.
    """
    m = pair(ours)
    m.child.register_load_state_dict_post_hook(lambda *_: m.add_module("new", leaf(ours, "w")))
    assert tuple(m.load_state_dict(checkpoint(ours))) == ([], [])
    assert values(m.a) == values(m.child.w) == [7.0, 8.0]
    assert values(m.new.w) == [1.0, 2.0]


def test_hook_may_add_a_parameter_to_a_module_with_two_names(impl):
    """It is missing under the second name alone."""
    child = leaf(impl, "w")
    m = impl.nn.ModuleList([child, child])
    new = leaf(impl, "new").new
    child.register_load_state_dict_post_hook(lambda *_: setattr(child, "new", new))
    sd = checkpoint(impl, "0.w", "1.w")
    assert tuple(m.load_state_dict(sd, strict=False)) == (["1.new"], [])
    assert child.new is new and values(new) == [1.0, 2.0]


# -- hooks that change what is loaded after them ---------------------------------------------------


def in_a_row(impl):
    """Three modules, the last one with a child."""
    m = impl.nn.Module()
    m.first, m.second, m.last = (leaf(impl, "w") for _ in range(3))
    m.last.child = leaf(impl, "w")
    return m


ROW = ("first.w", "second.w", "last.w", "last.child.w")


def zeros(impl, *shape):
    return impl.nn.Parameter(impl.lib.zeros(*shape))


def replace_parameter(impl, last):
    last.w = zeros(impl, 2)


def resize_parameter(impl, last):
    last.w = zeros(impl, 3)


def add_parameter(impl, last):
    last.more = zeros(impl, 2)


def rename_parameter(impl, last):
    last.renamed = last._parameters.pop("w")


def delete_parameter(impl, last):
    del last.w


def replace_child(impl, last):
    last.child = leaf(impl, "w")


def empty_child(impl, last):
    last.child = None


def add_child(impl, last):
    last.late = leaf(impl, "w")


def convert(impl, last):
    last.register_buffer("b", impl.lib.zeros(2))
    last.double()


def hide_buffer(impl, last):
    last.register_buffer("b", impl.lib.zeros(2), persistent=False)


def hook_before(impl, last):
    last.register_load_state_dict_pre_hook(
        lambda module, sd, prefix, *args: sd.update({prefix + "w": impl.lib.zeros(2)})
    )


def hook_after(impl, last):
    last.register_load_state_dict_post_hook(
        lambda module, keys: keys.missing_keys.append("of the hook")
    )


def override(impl, last):
    class Passed(impl.nn.Module):
        def _load_from_state_dict(self, *args):
            pass

    last.__class__ = Passed


CHANGES = (replace_parameter, resize_parameter, add_parameter, rename_parameter, delete_parameter)
CHANGES += (replace_child, empty_child, add_child, convert, hide_buffer)
CHANGES += (hook_before, hook_after, override)


def run_first(impl, how, m, change):
    """Has the change made while the first module is loaded."""
    if how == "pre-hook":
        m.first.register_load_state_dict_pre_hook(lambda *_: change(impl, m.last))
    elif how == "post-hook":
        m.first.register_load_state_dict_post_hook(lambda *_: change(impl, m.last))
    else:

        class Loads(impl.nn.Module):
            def _load_from_state_dict(self, *args):
                super()._load_from_state_dict(*args)
                change(impl, m.last)

        m.first.__class__ = Loads


def outcome(impl, how, change, sd, assign):
    """What a load reports, and the values after one that does not raise."""
    m = in_a_row(impl)
    run_first(impl, how, m, change)
    try:
        found = m.load_state_dict(sd, strict=False, assign=assign)
    except RuntimeError as error:
        return str(error).partition("\n\n")[0].replace("modtree.", "torch.")
    tensors = [*m.named_parameters(), *m.named_buffers()]
    return tuple(found), [(name, values(t)) for name, t in tensors]


@needs_torch
@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
@pytest.mark.parametrize("how", ["pre-hook", "post-hook", "override"])
@pytest.mark.parametrize("change", CHANGES, ids=[c.__name__ for c in CHANGES])
def test_what_follows_a_hook_is_loaded_as_it_is_then(ours, change, how, assign):
    """A plan that was made before would write to tensors that are gone."""
    torch = implementation("torch")
    keys = (*ROW, "last.b", "last.late.w", "last.renamed")
    for left_out in range(len(keys) + 1):
        asked = [key for i, key in enumerate(keys) if i != left_out]
        assert outcome(ours, how, change, checkpoint(ours, *asked), assign) == outcome(
            torch, how, change, checkpoint(torch, *asked), assign
        )


def test_a_hook_may_make_fit_what_did_not(impl):
    m = in_a_row(impl)
    m.first.register_load_state_dict_post_hook(lambda *_: resize_parameter(impl, m.last))
    sd = checkpoint(impl, *ROW) | {"last.w": impl.lib.ones(3)}
    m.load_state_dict(sd)
    assert values(m.last.w) == [1.0, 1.0, 1.0]
    assert values(m.second.w) == values(m.last.child.w) == [7.0, 8.0]


def test_a_child_that_a_hook_takes_away_is_not_missing(impl):
    m = in_a_row(impl)
    m.first.register_load_state_dict_post_hook(lambda *_: setattr(m, "last", None))
    m.load_state_dict(checkpoint(impl, "first.w", "second.w"))
    assert values(m.second.w) == [7.0, 8.0]


def test_many_hooks_in_a_deep_tree(impl):
    """Each gives the next module a new parameter."""
    root = m = leaf(impl, "w")
    chain = [root]
    for _ in range(50):
        m.side, m.below = leaf(impl, "w"), leaf(impl, "w")
        m = m.below
        chain.append(m)

    def renew(module):
        module.w = zeros(impl, 2)

    for upper, lower in zip(chain, chain[1:], strict=False):
        upper.side.register_load_state_dict_post_hook(lambda *_, lower=lower: renew(lower))
    root.load_state_dict({key: impl.lib.tensor([7.0, 8.0]) for key in root.state_dict()})
    assert all(values(p) == [7.0, 8.0] for p in root.parameters())


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copy_of_a_stored_hook_keeps_the_names_of_its_function(ours, how):
    m = leaf(ours, "a")
    m.register_load_state_dict_pre_hook(module_level_hook)
    twin = copy.deepcopy(m) if how == "deepcopy" else pickle.loads(pickle.dumps(m))
    (stored,) = twin._load_state_dict_pre_hooks.values()
    assert stored.__name__ == "module_level_hook" and stored.hook is module_level_hook
