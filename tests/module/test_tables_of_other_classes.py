# SPDX-License-Identifier: BSD-3-Clause
"""A registry or hook table of a class of its own is asked as torch's Python code asks it."""

from __future__ import annotations

import functools
from collections import OrderedDict

import pytest
from helpers import odd_tables
from helpers.implementations import implementation, needs_torch


@functools.cache
def outcomes_of_torch(slot):
    torch = implementation("torch")
    return odd_tables.outcomes(torch.nn, torch.lib, slot)


@needs_torch
@pytest.mark.parametrize("slot", odd_tables.TABLES)
def test_tables_that_override_one_method_of_dict(ours, slot):
    expected = outcomes_of_torch(slot)
    found = odd_tables.outcomes(ours.nn, ours.lib, slot)
    differing = [key for key in expected if found[key] != expected[key]]
    assert not differing, [(key, expected[key], found[key]) for key in differing[:3]]


def test_the_set_of_names_that_are_not_persistent_is_asked(impl):
    asked = []

    class Names(set):
        def add(self, name):
            asked.append(("add", name))
            super().add(name)

        def discard(self, name):
            asked.append(("discard", name))
            super().discard(name)

    m = impl.nn.Module()
    m._non_persistent_buffers_set = Names()
    m.register_buffer("a", impl.lib.ones(1), persistent=False)
    m.register_buffer("a", impl.lib.ones(1))
    assert asked == [("add", "a"), ("discard", "a")]
    assert list(m.state_dict()) == ["a"]


@pytest.mark.parametrize("base", [dict, OrderedDict])
def test_a_failed_assignment_puts_back_what_a_table_held(ours, base):
    """Past the methods of its class, which would not do it."""

    def refuse(self, *args):
        raise ZeroDivisionError

    class ReadOnly(base):
        __getitem__ = __setitem__ = clear = update = copy = items = refuse

    m = ours.nn.Module()
    tensors = {name: ours.lib.ones(1) for name in "abc"}
    held = ReadOnly()
    for name, tensor in tensors.items():
        base.__setitem__(held, name, tensor)
    m._buffers, m._parameters = held, ReadOnly()
    with pytest.raises(ZeroDivisionError):
        m.a = ours.nn.Parameter(ours.lib.ones(1))
    assert m._buffers is held
    assert list(base.items(held)) == list(tensors.items())
