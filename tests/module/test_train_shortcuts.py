# SPDX-License-Identifier: BSD-3-Clause
"""``train()`` writes the modes of plain modules where they stand, and remembers of a module that no
registry has an entry ``training``: what must show none of it.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random

import pytest
from helpers.free_threading import collects_in_allocations, ends_at_once
from helpers.support import raises
from helpers.util import param, tensor

REGISTRIES = ("_parameters", "_buffers", "_modules")


def value_for(impl, registry):
    return {"_parameters": param, "_buffers": tensor, "_modules": lambda i: i.nn.Module()}[
        registry
    ](impl)


def pair(impl):
    """A module with a child that has an entry in each registry."""
    m = impl.nn.Module()
    m.child = impl.nn.Module()
    m.child.w = param(impl)
    m.child.register_buffer("s", tensor(impl))
    m.child.c = impl.nn.Module()
    return m


def assert_train_fails(m):
    for operation in (m.train, m.eval):
        with raises(TypeError, "cannot assign", "training"):
            operation()


# -- an entry of that name appears -----------------------------------------------------------------


@pytest.mark.parametrize("registry", REGISTRIES)
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_a_registry_in_hand(impl, registry, when):
    m = pair(impl)
    held = getattr(m.child, registry) if when != "after" else None
    m.eval()
    if when != "before":
        held = getattr(m.child, registry)
    held["training"] = value_for(impl, registry)
    assert_train_fails(m)
    del held["training"]
    assert m.train().child.training is True
    held["training"] = value_for(impl, registry)
    assert_train_fails(m)


@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_registry_that_is_handed_out_again(impl, registry):
    m = pair(impl)
    for mode in (False, True, False):
        m.train(mode)
        getattr(m.child, registry)["other"] = value_for(impl, registry)
        assert m.train(mode).child.training is mode
    getattr(m.child, registry)["training"] = value_for(impl, registry)
    assert_train_fails(m)


@pytest.mark.parametrize("registry", REGISTRIES)
@pytest.mark.parametrize(
    "look",
    [
        lambda m, r: vars(m)[r],
        lambda m, r: m.__getstate__()[r],
        lambda m, r: m.__reduce_ex__(2)[2][r],
        lambda m, r: getattr(copy.copy(m), r),
        lambda m, r: object.__getattribute__(m, "__dict__")[r],
    ],
    ids=["vars", "getstate", "reduce_ex", "copy", "object dict"],
)
def test_a_registry_found_elsewhere(impl, registry, look):
    m = pair(impl)
    m.eval()
    look(m.child, registry)["training"] = value_for(impl, registry)
    assert_train_fails(m)


@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_registry_put_in(impl, registry):
    m = pair(impl)
    m.eval()
    held = {"x": value_for(impl, registry)}
    setattr(m.child, registry, held)
    assert m.train().child.training is True
    held["training"] = value_for(impl, registry)
    assert_train_fails(m)
    m.child.__setstate__({registry: {}})
    assert m.train().child.training is True


@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_registry_that_a_copy_shares(impl, registry):
    m = pair(impl)
    m.eval()
    other = copy.copy(m.child)
    m.train()
    assert (m.child.training, other.training) == (True, False)
    getattr(other, registry)["training"] = value_for(impl, registry)
    assert_train_fails(m)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_takes_such_an_entry_along(impl, copied):
    m = pair(impl)
    m.eval()
    m.child._parameters["training"] = param(impl)
    assert_train_fails(copied(m))


def test_a_memo_holds_a_registry(ours):
    m, memo = pair(ours), {}
    shared = copy.copy(m.child)
    m.other = shared
    m.train()
    new = copy.deepcopy(m, memo)
    new.train()
    for value in memo.values():
        if type(value) is dict and "w" in value:
            value["training"] = param(ours)
            assert_train_fails(new)


def test_assignments_through_the_class(impl):
    m = pair(impl)
    m.eval()
    m.child.training = param(impl)
    assert_train_fails(m)
    del m.child.training
    m.train()
    assert m.child.training is True


def test_a_name_of_a_str_class(impl):
    class Name(str):
        __slots__ = ()

    m = pair(impl)
    m.eval()
    m.child._parameters[Name("training")] = param(impl)
    assert_train_fails(m)


def test_a_name_that_a_class_hides(impl):
    """Where nothing is found under the name, it may be registered."""

    class Blind(impl.nn.Module):
        def __getattribute__(self, name):
            if name == "training" and Blind.is_blind:
                raise AttributeError(name)
            return super().__getattribute__(name)

    m = impl.nn.Module()
    m.child = Blind()
    Blind.is_blind = False
    m.eval()
    Blind.is_blind = True
    m.child.register_parameter("training", param(impl))
    del Blind.__getattribute__
    assert_train_fails(m)


@collects_in_allocations
@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_registry_that_the_collector_hands_out(ours, registry):
    """Nothing says so to the module: its mode is set as if the entry were not there, until the
    registry is looked at."""
    m = pair(ours)
    m.eval()
    value = {"_parameters": m.child.w, "_buffers": m.child.s, "_modules": m.child.c}[registry]
    (found,) = [
        d
        for d in gc.get_referrers(value)
        if type(d) is dict and value in d.values() and len(d) == 1
    ]
    found["training"] = value_for(ours, registry)
    m.train()
    getattr(m.child, registry)
    assert_train_fails(m)


# -- trees that are not plain ----------------------------------------------------------------------


def test_a_class_patched_by_an_override_half_way_through(impl):
    calls = []

    class Plain(impl.nn.Module):
        pass

    class Patching(impl.nn.Module):
        def train(self, mode=True):
            Plain.train = lambda self, mode=True: calls.append((self.number, mode))
            return super().train(mode)

    m = impl.nn.ModuleList([Plain(), Plain(), Patching(), Plain(), impl.nn.ModuleList([Plain()])])
    for number, child in enumerate(c for c in m.modules() if isinstance(c, Plain)):
        child.number = number
    m.train(False)
    del Plain.train
    assert calls == [(2, False), (3, False)]
    assert [c.training for c in m.modules()] == [False, False, False, False, True, False, True]


@pytest.mark.parametrize("change", ["add", "remove", "replace"])
def test_children_changed_by_an_override(impl, change):
    class Changing(impl.nn.Module):
        def train(self, mode=True):
            if change == "add":
                m.late = impl.nn.Module()
            elif change == "remove":
                del m.c
            else:
                m.c = new
            return super().train(mode)

    m, new = impl.nn.Module(), impl.nn.Module()
    m.a, m.b, m.c = impl.nn.Module(), Changing(), impl.nn.Module()
    if change == "replace":
        m.eval()
        assert [m.a.training, m.b.training, new.training] == [False, False, False]
    else:
        # torch has the list of children before the first is visited.
        with pytest.raises(RuntimeError, match="changed size"):
            m.eval()
        assert [m.training, m.a.training, m.b.training] == [False, False, False]


def test_siblings_are_visited_once(impl):
    calls = []

    class Counted(impl.nn.Module):
        def train(self, mode=True):
            calls.append(mode)
            return super().train(mode)

    shared = impl.nn.Module()
    shared.counted = Counted()
    m = impl.nn.Module()
    m.a, m.b, m.c = shared, impl.nn.Module(), shared
    m.b.again = shared
    m.eval()
    assert calls == [False, False]


def test_nested_twins_take_no_time(impl):
    m = impl.nn.Module()
    for _ in range(60):
        outer = impl.nn.Module()
        outer.a, outer.b = m, m
        m = outer
    m.eval()
    assert not any(c.training for c in m.modules())


@pytest.mark.parametrize("length", [1, 2, 3, 5, 64, 700])
@pytest.mark.parametrize("before", [0, 1, 40])
def test_cycles_end(impl, length, before):
    modules = [impl.nn.Module() for _ in range(before + length)]
    for number, m in enumerate(modules):
        m.leaf = impl.nn.Module()
        m.next = modules[number + 1] if number + 1 < len(modules) else modules[before]
    with pytest.raises(RecursionError):
        modules[0].eval()
    del modules[-1].next
    assert not any(m.training for m in modules)
    modules[0].train()
    assert all(m.training for m in modules)


def test_many_children_with_other_holders(impl):
    held = [impl.nn.Sequential(impl.nn.Identity()) for _ in range(200)]
    m = impl.nn.ModuleList([*held, *held, impl.nn.Identity()])
    m.eval()
    assert not any(c.training for c in m.modules())
    assert len(list(m.modules())) == 402


def deep(impl, length):
    """A module with a child that has a child, and so on, and a leaf beside each."""
    m = impl.nn.Module()
    for _ in range(length):
        above = impl.nn.Module()
        above.down, above.leaf = m, impl.nn.Module()
        m = above
    return m


def test_deep_trees_that_change_between_calls(impl):
    """What the last walks from a root met is only a hint for the next."""
    random_ = random.Random(3)
    roots = [deep(impl, 30) for _ in range(6)]  # more than have a trail
    for _ in range(200):
        root = random_.choice(roots)
        mode = random_.random() < 0.5
        assert root.train(mode) is root
        assert {m.training for m in root.modules()} == {mode}
        change = random_.randrange(3)
        if change == 0:  # a new root, perhaps where another was
            roots.remove(root)
            del root
            roots.append(deep(impl, 30))
        elif change == 1:
            random_.choice(list(root.modules())).down = deep(impl, random_.randrange(9))
        else:
            other = random_.choice([r for r in roots if r is not root])
            other.down, root.down = root.down, other.down


def test_a_tree_longer_than_what_is_remembered_of_it(ours):
    root = deep(ours, 5_000)
    for mode in (False, True, True, False):
        root.train(mode)
        assert {m.training for m in root.modules()} == {mode}


@ends_at_once
def test_modes_that_are_no_bool(impl):
    dead = []

    class Mode:
        def __del__(self):
            dead.append([c.training for c in (m, m.a, m.b)])

    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.eval()
    m.a.training = Mode()
    m.train()
    assert m.a.training is True and dead == [[True, True, False]]


def test_random_trees_with_modules_that_are_not_plain(impl):
    """Every module gets its mode, those with code of their own when it is their turn."""
    for seed in range(30):
        rng = random.Random(seed)
        log = []

        class Own(impl.nn.Module):
            def train(self, mode=True, log=log):
                log.append(self.number)
                return super().train(mode)

        class Setting(impl.nn.Module):
            def __setattr__(self, name, value, log=log):
                if name == "training" and "number" in self.__dict__:
                    log.append(self.number)
                super().__setattr__(name, value)

        expected = []

        numbers = iter(range(10_000))

        def build(depth, in_order, Own=Own, Setting=Setting, rng=rng, numbers=numbers):
            kind = rng.choice([impl.nn.Module] * 6 + [Own, Setting, "exposed"])
            m = impl.nn.Module() if kind == "exposed" else kind()
            if kind == "exposed":
                _ = m.__dict__
            m.number = next(numbers)
            if kind in (Own, Setting):
                in_order.append(m.number)
            for number in range(rng.randrange(5) if depth else 0):
                m.add_module(f"c{number}", build(depth - 1, in_order))
            return m

        root = build(5, expected)
        log.clear()
        root.eval()
        assert log == expected
        assert not any(c.training for c in root.modules())
        root.train()
        assert all(c.training for c in root.modules())
