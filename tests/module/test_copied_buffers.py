# SPDX-License-Identifier: BSD-3-Clause
"""Deep copies of buffers, which native code makes where nobody has a say: what programs put in the
way counts at once, and memory that tensors share is shared by their copies.
"""

from __future__ import annotations

import copy

import pytest
from helpers.support import parameter_type, raises, storage_shared, values
from helpers.util import tensor

import modtree as mt
from modtree import nn
from modtree.overrides import TorchFunctionMode


def tree(impl, *buffers):
    root = impl.nn.Module()
    for i, buffer in enumerate(buffers):
        root.register_buffer(f"b{i}", buffer)
    return root


@pytest.mark.parametrize("copied_before", [False, True])
def test_a_patched_deepcopy_of_the_class_is_called(impl, monkeypatch, copied_before):
    m = tree(impl, tensor(impl, 1.0), tensor(impl, 2.0))
    if copied_before:
        copy.deepcopy(m)
    kind, seen = impl.lib.Tensor, []
    original = kind.__deepcopy__

    def patched(self, memo):
        seen.append(self)
        return original(self, memo)

    monkeypatch.setattr(kind, "__deepcopy__", patched)
    copy.deepcopy(m)
    assert [id(b) for b in seen] == [id(b) for b in m.buffers()]
    monkeypatch.undo()
    seen.clear()
    assert values(copy.deepcopy(m).b1) == values(m.b1) and not seen


@pytest.mark.parametrize("name", ["is_leaf", "requires_grad", "grad"])
def test_what_decides_about_the_copy_may_be_patched(impl, monkeypatch, name):
    m = tree(impl, tensor(impl, 1.0))
    copy.deepcopy(m)
    seen, original = [], getattr(impl.lib.Tensor, name)

    def read(self):
        seen.append(name)
        return original.__get__(self)

    setter = getattr(original, "__set__", None)
    monkeypatch.setattr(impl.lib.Tensor, name, property(read, setter), raising=False)
    new = copy.deepcopy(m)
    monkeypatch.undo()
    assert seen and values(new.b0) == values(m.b0)


@pytest.mark.parametrize("view_first", [False, True])
@pytest.mark.parametrize("part", ["view", "whole", "detached"])
def test_views_and_what_they_view_share_memory_in_the_copy(impl, view_first, part):
    whole = impl.lib.zeros(4)
    other = {"view": whole[1:3], "whole": whole.view(2, 2), "detached": whole.detach()}[part]
    m = tree(impl, *((other, whole) if view_first else (whole, other)))
    new = copy.deepcopy(m)
    assert storage_shared(new.b0, new.b1)
    assert not storage_shared(new.b0, m.b0)
    new.b0.fill_(3)
    assert float(new.b1.sum()) > 0 and float(m.b1.sum()) == 0


def test_a_view_of_a_buffer_that_is_no_attribute_of_the_tree(impl):
    whole = impl.lib.zeros(4)

    class Holder:
        def __init__(self, buffer):
            self.buffer = buffer

    m = tree(impl, whole)
    m.holder = Holder(whole[:2])
    new = copy.deepcopy(m)
    assert storage_shared(new.holder.buffer, new.b0)


def test_one_buffer_in_two_places_is_one_in_the_copy(impl):
    b = tensor(impl, 1.0)
    new = copy.deepcopy(tree(impl, b, b))
    assert new.b0 is new.b1 and new.b0 is not b


def test_a_memo_that_knows_a_buffer_is_used(impl):
    m, other = tree(impl, tensor(impl, 1.0)), tensor(impl, 5.0)
    assert copy.deepcopy(m, {id(m.b0): other}).b0 is other


def test_the_memo_has_each_copy_and_keeps_each_original(impl):
    m, memo = tree(impl, tensor(impl, 1.0)), {}
    new = copy.deepcopy(m, memo)
    assert memo[id(m.b0)] is new.b0
    assert any(x is m.b0 for x in memo[id(memo)])


def test_attributes_gradients_layouts_and_dtypes(impl):
    lib = impl.lib
    m = tree(impl, lib.zeros(3, 2).t(), tensor(impl, 1.0), lib.zeros(0, 3), lib.arange(3))
    m.b1.note = ["kept"]
    m.register_buffer("trained", lib.ones(2, requires_grad=True))
    m.trained.grad = lib.ones(2)
    new = copy.deepcopy(m)
    assert tuple(new.b0.stride()) == (1, 2) and tuple(new.b2.shape) == (0, 3)
    assert new.b1.note == ["kept"] and new.b1.note is not m.b1.note
    assert new.b3.dtype == m.b3.dtype and values(new.b3) == [0, 1, 2]
    assert new.trained.requires_grad and values(new.trained.grad) == [1, 1]
    assert new.trained.grad is not m.trained.grad
    assert all(type(b) is lib.Tensor and b.is_leaf for b in new.buffers())


def test_a_buffer_that_was_computed_is_refused(impl):
    m = tree(impl, impl.nn.Parameter(impl.lib.ones(2)) * 2)
    with raises(RuntimeError, "Only Tensors created explicitly by the user"):
        copy.deepcopy(m)


def test_a_subclass_is_copied_by_its_own_method(impl):
    class Sub(impl.lib.Tensor):
        def __deepcopy__(self, memo):
            return self

    m = tree(impl, tensor(impl, 1.0).as_subclass(Sub))
    assert type(m.b0) is Sub and copy.deepcopy(m).b0 is m.b0


def test_the_copy_counts_its_changes_by_itself(impl):
    m = tree(impl, impl.lib.zeros(2))
    new = copy.deepcopy(m)
    before = new.b0._version
    new.b0.add_(1)
    assert new.b0._version == before + 1
    assert m.b0._version == 0 and values(m.b0) == [0, 0]


def test_a_function_mode_sees_the_copy():
    class Sees(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    m = nn.Module()
    m.register_buffer("b", mt.ones(2))
    with Sees() as mode:
        new = copy.deepcopy(m)
    assert mode.calls > 0 and new.b.tolist() == [1, 1]


def test_parameters_and_buffers_over_one_memory(impl):
    whole = impl.lib.zeros(4)
    m = tree(impl, whole)
    m.weight = impl.nn.Parameter(whole)
    new = copy.deepcopy(m)
    assert type(new.weight) is parameter_type(impl)
    assert not storage_shared(new.weight, new.b0)  # a parameter is copied by itself
