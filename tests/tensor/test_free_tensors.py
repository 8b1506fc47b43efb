# SPDX-License-Identifier: BSD-3-Clause
"""Tensors are made in the memory of others that have died: nothing of these may come back."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest
from helpers.free_threading import counts_references

import modtree as mt
from modtree import nn


def full_of_state():
    """A tensor that has everything that a tensor can have."""
    t = mt.ones(3, requires_grad=True)
    t.note = "old"
    t.grad = mt.ones(3)
    t.register_hook(lambda grad: grad)
    t.register_post_accumulate_grad_hook(lambda tensor: None)
    view = (t * 2)[1:]
    view.retain_grad()
    view.other = t
    return t, view


def is_fresh(t):
    return (
        t.grad is None
        and t.grad_fn is None
        and not t.requires_grad
        and not t.retains_grad
        and not t.is_meta
        and t.is_leaf
        and not t.__dict__
        and t._base is None
        and t._version == 0
        and t.output_nr == 0
        and weakref.getweakrefcount(t) == 0
        and gc.is_tracked(t)
        and type(t) is mt.Tensor
    )


def test_nothing_of_the_old_tensor_is_left(rounds):
    for _ in range(rounds(5, 50)):
        held = [full_of_state() for _ in range(20)]
        held.append(mt.ones(2, device="meta"))
        held.append(mt.ones(2).add_(1))
        del held
        gc.collect()
        assert all(is_fresh(mt.zeros(2)) for _ in range(60))


def test_more_tensors_than_are_kept():
    for count in (10, 511, 512, 513, 3000):
        values = [mt.full((2,), float(n)) for n in range(count)]
        assert [v[0].item() for v in values] == list(range(count))
        ids = {id(v) for v in values}
        assert len(ids) == count
        del values
        again = [mt.full((2,), float(n)) for n in range(count)]
        assert [v[1].item() for v in again] == list(range(count))


def test_weak_references_do_not_come_back():
    t = mt.ones(2)
    called = []
    reference = weakref.ref(t, called.append)
    del t
    others = [mt.ones(2) for _ in range(600)]
    assert reference() is None and called == [reference]
    assert all(weakref.getweakrefcount(o) == 0 for o in others)


@counts_references
def test_the_class_is_counted():
    before = sys.getrefcount(mt.Tensor)
    held = [mt.ones(2) for _ in range(1000)]
    assert sys.getrefcount(mt.Tensor) >= before + 1000
    del held
    gc.collect()
    assert abs(sys.getrefcount(mt.Tensor) - before) < 10


def test_other_classes():
    class Own(mt.Tensor):
        pass

    class Slotted(mt.Tensor):
        __slots__ = ("extra",)

    for _ in range(3):
        held = [nn.Parameter(mt.ones(2)) for _ in range(50)]
        held += [mt.ones(2).as_subclass(cls) for cls in (Own, Slotted) for _ in range(50)]
        for slotted in held[100:]:
            slotted.extra = held
        del held, slotted
        gc.collect()
        assert all(is_fresh(mt.ones(2)) for _ in range(200))


def test_a_class_that_changes():
    """The memory of a tensor that left its class, or came to it."""
    for _ in range(3):
        values = [mt.ones(2) for _ in range(50)]
        for value in values:
            value.__class__ = nn.Parameter
        del values, value
        values = [nn.Parameter(mt.ones(2)) for _ in range(50)]
        for value in values:
            value.__class__ = mt.Tensor
        del values, value
        assert all(is_fresh(mt.ones(2)) for _ in range(200))


def test_finalizers(monkeypatch):
    """Each tensor is finalized once, also where another was before, and may come back to life."""
    finalized, revived = [], []

    def end(self):
        finalized.append(self.note)
        if self.note % 3 == 0:
            revived.append(self)

    monkeypatch.setattr(mt.Tensor, "__del__", end, raising=False)
    for number in range(900):
        t = mt.ones(2)
        t.note = number
    del t
    assert finalized == list(range(900))
    assert [t.note for t in revived] == list(range(0, 900, 3))
    assert all(t.tolist() == [1, 1] for t in revived)
    monkeypatch.undo()
    revived.clear()
    assert all(is_fresh(mt.ones(2)) for _ in range(600))


def test_cycles_are_collected():
    def cycle():
        a, b = mt.ones(2), mt.ones(2)
        a.other, b.other = b, a
        return weakref.ref(a)

    references = [cycle() for _ in range(400)]
    gc.collect()
    assert all(r() is None for r in references)
    assert all(is_fresh(mt.ones(2)) for _ in range(600))


def test_the_array_dies_with_its_tensor():
    array = np.ones(4, np.float32)
    before = sys.getrefcount(array)
    t = mt.from_numpy(array)
    assert sys.getrefcount(array) > before
    del t
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("count", [3, 700])
def test_code_at_the_end_of_memory(count):
    """The owner of the memory makes tensors while the tensor that had it dies."""
    made = []

    class Owner:
        def __init__(self):
            self.values = np.ones(4, np.float32)
            self.__array_interface__ = self.values.__array_interface__

        def __del__(self):
            made.extend(mt.zeros(2) for _ in range(3))

    values = [mt.from_numpy(np.asarray(Owner())) for _ in range(count)]
    del values
    gc.collect()
    assert len(made) == 3 * count and all(map(is_fresh, made))
