# SPDX-License-Identifier: BSD-3-Clause
"""``__getstate__`` and ``__setstate__`` of modules."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest
from helpers.pickled_modules import Net, full, importable
from helpers.util import INTERNAL_KEYS, names, param


def test_getstate_is_a_shallow_copy_of_the_dict(impl):
    m = full(impl)
    state = m.__getstate__()
    assert type(state) is dict and state is not m.__dict__
    assert list(state) == list(m.__dict__)
    assert all(state[k] is m.__dict__[k] for k in state)
    state["x"] = 1
    assert not hasattr(m, "x")


def test_getstate_leaves_out_the_compiled_call(impl):
    m = impl.nn.Module()
    m._compiled_call_impl = print
    m.plain = 1
    state = m.__getstate__()
    assert "_compiled_call_impl" not in state and state["plain"] == 1
    assert m._compiled_call_impl is print
    assert copy.deepcopy(m)._compiled_call_impl is None


DEFAULTED = {
    "_forward_pre_hooks": OrderedDict,
    "_forward_pre_hooks_with_kwargs": OrderedDict,
    "_forward_hooks_with_kwargs": OrderedDict,
    "_forward_hooks_always_called": OrderedDict,
    "_state_dict_hooks": OrderedDict,
    "_state_dict_pre_hooks": OrderedDict,
    "_load_state_dict_pre_hooks": OrderedDict,
    "_load_state_dict_post_hooks": OrderedDict,
    "_non_persistent_buffers_set": set,
    "_is_full_backward_hook": type(None),
    "_backward_pre_hooks": OrderedDict,
}


@pytest.mark.parametrize("key", INTERNAL_KEYS)
def test_setstate_adds_the_defaults_of_newer_keys(impl, key):
    state = impl.nn.Module().__getstate__()
    del state[key]
    m = impl.nn.Module.__new__(impl.nn.Module)
    m.__setstate__(state)
    assert (key in m.__dict__) == (key in DEFAULTED)
    if key in DEFAULTED:
        assert type(getattr(m, key)) is DEFAULTED[key] and not getattr(m, key)


def test_setstate_adds_the_defaults_in_their_order(impl):
    m = impl.nn.Module.__new__(impl.nn.Module)
    m.__setstate__({"plain": 1})
    assert list(m.__dict__) == ["plain", *DEFAULTED]


def test_setstate_assigns_the_defaults_that_a_class_wants_to_see(impl):
    assigned = []

    class Watching(impl.nn.Module):
        def __setattr__(self, name, value):
            assigned.append(name)
            super().__setattr__(name, value)

    m = Watching()
    state = dict(m.__dict__)
    del state["_non_persistent_buffers_set"], state["_backward_pre_hooks"]
    assigned.clear()
    for new in (Watching.__new__(Watching), copy.copy(m)):
        new.__setstate__(dict(state))
    assert assigned == ["_non_persistent_buffers_set", "_backward_pre_hooks"]
    del m._non_persistent_buffers_set
    assigned.clear()
    copied = copy.deepcopy(m)
    assert assigned == ["_non_persistent_buffers_set"]
    assert copied._non_persistent_buffers_set == set()
    assigned.clear()
    assert pickle.loads(pickle.dumps(impl.nn.Linear(1, 1)))._backward_pre_hooks == {}


@pytest.mark.parametrize("key", DEFAULTED)
def test_setstate_keeps_missing_what_a_class_does_not_store(impl, key):
    class Deaf(impl.nn.Module):
        def __setattr__(self, name, value):
            pass

    m = impl.nn.Module()
    m.add_module("child", impl.nn.Module())
    m.__class__ = Deaf
    del m.__dict__[key]
    for copied in (copy.copy(m), copy.deepcopy(m)):
        assert key not in copied.__dict__ and list(copied._modules) == ["child"]
        with pytest.raises(AttributeError):
            getattr(copied, key)


def test_setstate_of_an_old_file(impl):
    """Only what the first versions stored: the tree works, hooks can be registered."""
    keys = ("training", "_parameters", "_buffers", "_modules", "_backward_hooks", "_forward_hooks")
    old = impl.nn.Module()
    old.p = param(impl)
    m = importable(impl, Net).__new__(importable(impl, Net))
    m.__setstate__(
        {k: getattr(old, k) for k in keys} | {"log": [], "_forward_pre_hooks": OrderedDict()}
    )
    assert names(m.named_parameters()) == ["p"] and m(1) == 1
    m.register_forward_pre_hook(m.hook, with_kwargs=False)
    m(1)
    assert m.log == ["forward", "hook", "forward"]
    assert list(m.state_dict()) == ["p"]


def test_setstate_updates_and_keeps_other_entries(impl):
    m = full(impl)
    m.__setstate__({"plain": 2, "training": True, "_parameters": {"new": param(impl)}})
    assert m.plain == 2 and m.training is True
    assert names(m.named_parameters(recurse=False)) == ["new"]
    assert m.body is not None


def test_setstate_shares_the_given_registries(impl):
    m = impl.nn.Module()
    registry = {}
    m.__setstate__({"_parameters": registry})
    m.p = param(impl)
    assert registry == {"p": m.p} and m._parameters is registry


@pytest.mark.parametrize("state", [None, 3, [1], "abc"])
def test_setstate_of_junk(impl, state):
    m = impl.nn.Module()
    with pytest.raises((TypeError, ValueError)):
        m.__setstate__(state)
    assert names(m.named_modules()) == [""]


def test_getstate_before_init(impl):
    m = impl.nn.Module.__new__(impl.nn.Module)
    m.x = 1
    assert m.__getstate__() == {"x": 1}
    assert copy.copy(m).__dict__["x"] == 1
