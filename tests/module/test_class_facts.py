# SPDX-License-Identifier: BSD-3-Clause
"""What native walks remember of classes: no override is missed, however many classes are looked at
on the way.
"""

from __future__ import annotations

import copy
import random

import pytest
from helpers.support import raises
from helpers.util import names, param, tensor

SLOTS = 1024  # of csrc/core/python/type_cache.h
WORN_OUT = 1200  # changes of one class after which CPython 3.13 gives it no version tag any more


def slot_of(cls):
    return (id(cls) >> 4 ^ id(cls) >> 14) % SLOTS


def neighbours(impl, cls, count, members=None):
    """Module classes whose facts are remembered in the same place as those of ``cls``."""
    kept, found = [], []
    draw = random.Random(0)
    while len(found) < count:
        assert len(kept) < 100 * SLOTS, "no class fell into the wanted place"
        other = type("Neighbour", (impl.nn.Module,), dict(members or {}))
        # Alive: the next class needs an address of its own. At equal distances, as a heap in order
        # gives them, some places would never come.
        kept.append((other, bytearray(draw.randrange(512, 4096))))
        if slot_of(other) == slot_of(cls):
            found.append(other)
    return found


def neighbour(impl, cls):
    return neighbours(impl, cls, 1)[0]


def worn_out(impl, cls):
    """A module class, and ``cls`` made like it, that were changed until CPython stopped to count
    their versions.
    """
    other = type("Neighbour", (impl.nn.Module,), {})
    for changed in (other, cls):
        for number in range(WORN_OUT):
            changed.number = number
            assert changed.number == number
    return other


@pytest.fixture(params=[neighbour, worn_out], ids=["same place", "no version"])
def tree_with(request, impl):
    """``tree_with(cls)``: a tree with an instance of ``cls`` behind one of a plain class that
    shares its place, and that instance.
    """

    def make(cls):
        root = impl.nn.Module()
        root.first = request.param(impl, cls)()
        root.second = second = cls()
        return root, second

    return make


def test_train_and_eval_call_an_overridden_train(impl, tree_with):
    class Frozen(impl.nn.Module):
        def train(self, mode=True):
            return super().train(False)

    root, frozen = tree_with(Frozen)
    root.train()
    assert root.training and root.first.training and not frozen.training
    root.eval()
    root.train()
    assert not frozen.training


def test_train_uses_an_overridden_setattr(impl, tree_with):
    class Writes(impl.nn.Module):
        def __setattr__(self, name, value):
            if name == "training":
                written.append(value)
            super().__setattr__(name, value)

    written = []
    root, _ = tree_with(Writes)
    written.clear()
    root.eval()
    assert written == [False]


def test_train_walks_overridden_children(impl, tree_with):
    class Hides(impl.nn.Module):
        def children(self):
            return iter(())

    root, hides = tree_with(Hides)
    hides.inner = impl.nn.Module()
    root.eval()
    assert not hides.training and hides.inner.training


def test_apply_calls_an_overridden_apply(impl, tree_with):
    class Own(impl.nn.Module):
        def apply(self, fn):
            calls.append(fn)
            return self

    calls, visited = [], []
    root, own = tree_with(Own)
    root.apply(visited.append)
    assert calls == [visited.append] and visited == [root.first, root]


def test_conversions_call_an_overridden_apply(impl, tree_with):
    class Quantized(impl.nn.Module):
        def _apply(self, fn, recurse=True):
            return self

    root, quantized = tree_with(Quantized)
    root.first.p, quantized.p = param(impl), param(impl)
    root.double()
    assert root.first.p.dtype is impl.lib.float64 and quantized.p.dtype is impl.lib.float32


def test_walks_use_an_overridden_named_modules(impl, tree_with):
    class Flat(impl.nn.Module):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield prefix, self

    root, flat = tree_with(Flat)
    flat.inner = impl.nn.Module()
    flat.inner.p = param(impl)
    for remove_duplicate in (True, False):
        walk = root.named_modules(remove_duplicate=remove_duplicate)
        assert names(walk) == ["", "first", "second"]
    assert names(root.named_parameters()) == []


def test_state_dict_calls_overridden_methods(impl, tree_with):
    class Saves(impl.nn.Module):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "own"] = "saved"

        def _load_from_state_dict(self, state_dict, prefix, *args):
            loaded.append(state_dict[prefix + "own"])

        def get_extra_state(self):
            raise AssertionError("only _save_to_state_dict asks for it")

    loaded = []
    root, saves = tree_with(Saves)
    saves.p = param(impl)
    state = root.state_dict()
    assert state == {"second.own": "saved"}
    root.load_state_dict(state, strict=False)
    assert loaded == ["saved"]


def test_state_dict_calls_an_overridden_state_dict(impl, tree_with):
    class Own(impl.nn.Module):
        def state_dict(self, *args, destination, prefix, keep_vars):
            destination[prefix + "all"] = tensor(impl)
            return destination

    root, _ = tree_with(Own)
    assert list(root.state_dict()) == ["second.all"]


def test_extra_state_is_asked_for(impl, tree_with):
    class Extra(impl.nn.Module):
        def get_extra_state(self):
            return "extra"

        def set_extra_state(self, state):
            seen.append(state)

    seen = []
    root, _ = tree_with(Extra)
    state = root.state_dict()
    assert state == {"second._extra_state": "extra"}
    root.load_state_dict(state)
    assert seen == ["extra"]


@pytest.mark.parametrize("name", ["get_extra_state", "set_extra_state"])
def test_a_patch_of_modules_own_extra_state_is_no_extra_state(impl, monkeypatch, name):
    """As torch asks whether a class has another one than Module has now."""
    root = impl.nn.Sequential(impl.nn.Module())
    monkeypatch.setattr(impl.nn.Module, name, lambda *args: pytest.fail("called"))
    state = root.state_dict()
    assert list(state) == []
    assert tuple(root.load_state_dict(state)) == ([], [])
    with raises(RuntimeError, 'Unexpected key(s) in state_dict: "0._extra_state"'):
        root.load_state_dict({"0._extra_state": 1})


def test_calls_and_registrations_use_overridden_methods(impl, tree_with):
    class Own(impl.nn.Module):
        def forward(self, x):
            return x + 1

        def register_parameter(self, name, parameter):
            registered.append(name)
            super().register_parameter(name, parameter)

        def __getattr__(self, name):
            return name if name == "computed" else super().__getattr__(name)

    class Other(impl.nn.Module):
        def forward(self, x):
            return x - 1

    registered = []
    root, own = tree_with(Own)
    type(root.first).forward = Other.forward
    for _ in range(2):
        assert (root.first(1), own(1)) == (0, 2)
        root.first.p = own.p = param(impl)
    assert registered == ["p", "p"] and own.computed == "computed"


def test_a_sibling_that_patches_the_class_of_the_next_one_when_it_is_compared(impl):
    class Late(impl.nn.Module):
        pass

    class Patches(impl.nn.Module):
        def __hash__(self):
            Late.train = lambda self, mode=True: calls.append(mode)
            return 1

        def __eq__(self, other):
            return self is other

    calls = []
    root = impl.nn.Module()
    root.patches, root.late = Patches(), Late()
    held = root.late
    root.eval()
    assert calls == [False] and held.training


def test_more_classes_than_fit_into_one_place(impl):
    class First(impl.nn.Module):
        def forward(self, x):
            return x

    def add_number(self, x):
        return x + self.number

    classes = [First, *neighbours(impl, First, 4, {"forward": add_number})]
    for number, cls in enumerate(classes):
        cls.number = number
    modules = [cls() for cls in classes]
    classes[2].train = lambda self, mode=True: self
    root = impl.nn.ModuleList(modules)
    for _ in range(3):
        assert [m(10) for m in modules] == [10, 11, 12, 13, 14]
        assert [m(10) for m in reversed(modules)] == [14, 13, 12, 11, 10]
        root.eval()
        assert [m.training for m in modules] == [False, False, True, False, False]
        root.train()
    classes[3].forward = First.forward
    assert [m(10) for m in modules] == [10, 11, 12, 10, 14]
    del classes[2].train
    root.eval()
    assert not any(m.training for m in modules)


@pytest.mark.parametrize("change", ["patch", "another"])
def test_a_metaclass_that_begins_to_answer_for_new(impl, change):
    class Meta(type):
        pass

    class Answering(type):
        def __getattribute__(cls, name):
            asked.append(name)
            return type.__getattribute__(cls, name)

    class M(impl.nn.Module, metaclass=Meta):
        pass

    asked = []
    m = M()
    copy.deepcopy(m)
    if change == "patch":
        Meta.__getattribute__ = Answering.__getattribute__
    else:
        M.__class__ = Answering
    asked.clear()
    copy.deepcopy(m)
    assert "__new__" in asked
