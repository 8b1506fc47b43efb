# SPDX-License-Identifier: BSD-3-Clause
"""``RemovableHandle``: removal, ids, pickling and copying."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import OrderedDict

import pytest
from helpers.support import raises

REGISTRATIONS = [
    ("register_forward_pre_hook", "_forward_pre_hooks"),
    ("register_forward_hook", "_forward_hooks"),
    ("register_full_backward_pre_hook", "_backward_pre_hooks"),
    ("register_full_backward_hook", "_backward_hooks"),
    ("register_backward_hook", "_backward_hooks"),
    ("register_state_dict_pre_hook", "_state_dict_pre_hooks"),
    ("register_state_dict_post_hook", "_state_dict_hooks"),
    ("_register_state_dict_hook", "_state_dict_hooks"),
    ("register_load_state_dict_pre_hook", "_load_state_dict_pre_hooks"),
    ("_register_load_state_dict_pre_hook", "_load_state_dict_pre_hooks"),
    ("register_load_state_dict_post_hook", "_load_state_dict_post_hooks"),
]
IDS = [name for name, _ in REGISTRATIONS]


def hook(*args):
    """A hook that can be pickled."""
    return None


@pytest.fixture
def handle_type(impl):
    return impl.hooks.RemovableHandle


@pytest.mark.parametrize(("register", "table"), REGISTRATIONS, ids=IDS)
def test_registration_returns_a_handle(impl, handle_type, register, table):
    def own(*args):
        return None

    m = impl.nn.Identity()
    handle = getattr(m, register)(own)
    assert type(handle) is handle_type
    assert list(getattr(m, table)) == [handle.id]
    handle.remove()
    assert len(getattr(m, table)) == 0
    handle.remove()


@pytest.mark.parametrize(("register", "table"), REGISTRATIONS, ids=IDS)
def test_handle_as_a_context(impl, register, table):
    def own(*args):
        return None

    m = impl.nn.Identity()
    with getattr(m, register)(own) as handle:
        assert handle.id in getattr(m, table)
    assert len(getattr(m, table)) == 0
    with raises(ValueError, "inside"), getattr(m, register)(own):
        raise ValueError("inside")
    assert len(getattr(m, table)) == 0


@pytest.mark.parametrize(("register", "table"), REGISTRATIONS, ids=IDS)
def test_handle_keeps_nothing_alive(impl, register, table):
    def own(*args):
        return None

    m = impl.nn.Identity()
    handle = getattr(m, register)(own)
    del m
    gc.collect()
    assert handle.hooks_dict_ref() is None
    handle.remove()


def test_enter_returns_the_handle(impl):
    m = impl.nn.Identity()
    handle = m.register_forward_hook(hook)
    assert handle.__enter__() is handle
    handle.__exit__(None, None, None)
    assert len(m._forward_hooks) == 0


def test_ids_come_from_one_counter(impl, handle_type):
    a, b = impl.nn.Identity(), impl.nn.Identity()
    before = handle_type.next_id
    ids = [
        a.register_forward_hook(hook).id,
        b.register_forward_pre_hook(hook).id,
        a.register_load_state_dict_post_hook(hook).id,
        handle_type(OrderedDict()).id,
    ]
    assert ids == [before, before + 1, before + 2, before + 3]
    assert handle_type.next_id == before + 4


def test_ids_are_not_used_again(impl):
    m = impl.nn.Identity()
    first = m.register_forward_hook(hook)
    first.remove()
    assert m.register_forward_hook(hook).id > first.id


def test_counter_can_be_set(impl, handle_type):
    old = handle_type.next_id
    handle_type.next_id = old + 100
    assert impl.nn.Identity().register_forward_hook(hook).id == old + 100
    assert handle_type.next_id == old + 101


def test_handle_of_any_weakly_referenced_table(handle_type):
    table, one, two = OrderedDict(), OrderedDict(), OrderedDict()
    handle = handle_type(table, extra_dict=[one, two])
    for d in (table, one, two):
        d[handle.id] = d["other"] = 1
    handle.remove()
    assert list(table) == list(one) == list(two) == ["other"]


def test_handle_with_one_extra_table(handle_type):
    table, extra = OrderedDict(), OrderedDict()
    handle = handle_type(table, extra_dict=extra)
    extra[handle.id] = 1
    assert handle.hooks_dict_ref() is table
    assert [r() for r in handle.extra_dict_ref] == [extra]
    handle.remove()
    assert not extra


def test_extra_tables_may_be_dead(handle_type):
    table, extra = OrderedDict(), OrderedDict()
    handle = handle_type(table, extra_dict=extra)
    table[handle.id] = 1
    del extra
    handle.remove()
    assert not table


def test_extra_tables_are_cleaned_when_the_table_is_gone(handle_type):
    table, extra = OrderedDict(), OrderedDict()
    handle = handle_type(table, extra_dict=extra)
    extra[handle.id] = 1
    del table
    handle.remove()
    assert not extra


def test_plain_dict_cannot_be_held(handle_type):
    with raises(TypeError, "cannot create weak reference to 'dict'"):
        handle_type({})


def test_module_with_a_plain_dict_as_its_table(impl):
    m = impl.nn.Identity()
    m._forward_hooks = {}
    with raises(TypeError, "cannot create weak reference to 'dict'"):
        m.register_forward_hook(hook)


def test_extra_is_keyword_only(handle_type):
    with raises(TypeError, "positional argument"):
        handle_type(OrderedDict(), OrderedDict())


# -- state ---------------------------------------------------------------------------------------


def test_state(handle_type):
    table, extra = OrderedDict(), OrderedDict()
    handle = handle_type(table, extra_dict=extra)
    state = handle.__getstate__()
    assert state == (table, handle.id, (extra,))
    assert state[0] is table and state[2][0] is extra
    alone = handle_type(OrderedDict())
    assert alone.__getstate__() == (None, alone.id, ())


def test_set_state(handle_type):
    table, extra = OrderedDict(), OrderedDict()
    handle = handle_type(table)
    big = handle_type.next_id + 50
    handle.__setstate__((table, big, (extra,)))
    assert handle.id == big
    assert handle_type.next_id == big + 1
    assert handle.hooks_dict_ref() is table
    assert handle.extra_dict_ref[0]() is extra
    handle.__setstate__((None, 0, ()))
    assert handle.hooks_dict_ref() is None
    assert handle_type.next_id == big + 1
    handle.remove()


def test_set_state_of_old_pickles(handle_type):
    table = OrderedDict({3: "hook"})
    handle = handle_type.__new__(handle_type)
    handle.__setstate__((table, 3))
    assert handle.id == 3
    assert handle.extra_dict_ref == ()
    handle.remove()
    assert not table


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_alone_is_dead(impl, protocol):
    m = impl.nn.Identity()
    handle = m.register_forward_hook(hook)
    again = pickle.loads(pickle.dumps(handle, protocol))
    assert type(again) is type(handle) and again.id == handle.id
    again.remove()
    assert len(m._forward_hooks) == 1


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copied_with_its_module_it_works_on_the_copy(impl, how):
    m = impl.nn.Identity()
    m.handle = m.register_forward_hook(hook, with_kwargs=True, always_call=True)
    twin = copy.deepcopy(m) if how == "deepcopy" else pickle.loads(pickle.dumps(m))
    assert twin.handle.id == m.handle.id
    assert list(twin._forward_hooks) == [m.handle.id]
    twin.handle.remove()
    for table in ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"):
        assert len(getattr(twin, table)) == 0
        assert len(getattr(m, table)) == 1


def test_unpickled_ids_are_not_given_again(impl, handle_type):
    m = impl.nn.Identity()
    handle = m.register_forward_hook(hook)
    data = pickle.dumps((m, handle))
    old = handle_type.next_id
    handle_type.next_id = handle.id
    pickle.loads(data)
    assert handle_type.next_id == handle.id + 1
    handle_type.next_id = max(old, handle_type.next_id)


def test_shallow_copy_of_a_handle(impl):
    m = impl.nn.Identity()
    handle = m.register_forward_hook(hook)
    copy.copy(handle).remove()
    assert len(m._forward_hooks) == 0


def test_deepcopy_keeps_hooks_and_rebinds_methods(impl):
    class Own(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.register_forward_hook(self.note)

        def note(self, module, args, out):
            self.seen.append(module)

        def forward(self, x):
            return x

    m = Own()
    twin = copy.deepcopy(m)
    assert list(twin._forward_hooks) == list(m._forward_hooks)
    twin(1)
    assert m.seen == [] and twin.seen == [twin]
