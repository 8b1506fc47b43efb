# SPDX-License-Identifier: BSD-3-Clause
"""The keys of the last state dicts of a root are remembered, and the next state dict is filled at
once where its keys are the same: what must show none of it.
"""

from __future__ import annotations

import copy
import gc
import random
import sys
import weakref
from collections import OrderedDict

import numpy as np
import pytest
from helpers.free_threading import collects_in_allocations
from helpers.support import raises
from helpers.util import param, tensor

ROUNDS = 4  # the first notes the root, the second the keys; from the third on they are used


def net(impl, leaves=6):
    """``2 * leaves + 1`` entries in three levels."""
    root = impl.nn.Module()
    root.body = impl.nn.Module()
    for i in range(leaves):
        child = impl.nn.Module()
        child.w = param(impl)
        child.register_buffer("s", tensor(impl))
        root.body.add_module(f"c{i}", child)
    root.last = param(impl)
    return root


def expected(root):
    """What ``state_dict()`` gives, found by other ways."""
    items = {}
    for name, m in root.named_modules(remove_duplicate=False):
        prefix = f"{name}." if name else ""
        for registry in (m._parameters, m._buffers):
            for key, value in registry.items():
                hidden = registry is m._buffers and key in m._non_persistent_buffers_set
                if value is not None and not hidden:
                    items[prefix + key] = value
    return items


def check(root):
    state, items = root.state_dict(keep_vars=True), expected(root)
    assert list(state) == list(items)
    assert list(reversed(state)) == list(reversed(items))
    assert all(state[key] is value for key, value in items.items())
    assert len(state) == len(items)
    return state


# -- the tree changes between calls ----------------------------------------------------------------


def change(impl, random_, root):
    modules = [m for name, m in root.named_modules() if name]
    m = random_.choice(modules)
    kind = random_.randrange(7)
    if kind == 0:
        m.register_parameter(f"p{random_.randrange(3)}", param(impl))
    elif kind == 1:
        m.register_buffer(
            f"b{random_.randrange(3)}", tensor(impl), persistent=random_.random() < 0.5
        )
    elif kind == 2 and len(modules) < 30:
        m.add_module(f"m{random_.randrange(3)}", net(impl, random_.randrange(4)))
    elif kind == 3 and m._parameters:
        m._parameters[random_.choice(list(m._parameters))] = random_.choice([None, param(impl)])
    elif kind == 4 and m._parameters:
        del m._parameters[random_.choice(list(m._parameters))]
    elif kind == 5 and len(m._modules) > 1:
        name = random_.choice(list(m._modules))
        m._modules[name] = m._modules.pop(name)
    elif kind == 6:
        root.body, root.other = root.__dict__.get("other", m), root.body


@pytest.mark.parametrize("seed", range(20))
def test_random_changes(impl, seed):
    random_ = random.Random(seed)
    roots = [net(impl, random_.randrange(8)) for _ in range(6)]  # more than are remembered
    for _ in range(60):
        root = random_.choice(roots[: random_.choice([1, 6])])
        for _ in range(random_.randrange(1, ROUNDS + 1)):
            check(root)
        if random_.random() < 0.5:
            change(impl, random_, root)
        if random_.random() < 0.1:
            roots[roots.index(root)] = net(impl, random_.randrange(8))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 65_535, 65_536, 65_537, 70_000])
def test_any_number_of_entries(ours, count):
    root, one = ours.nn.ParameterDict(), param(ours)
    root._parameters.update({f"p{i}": one for i in range(count)})
    for _ in range(ROUNDS):
        state = root.state_dict(keep_vars=True)
        assert list(state) == [f"p{i}" for i in range(count)]
        assert all(value is one for value in state.values())


def test_a_key_that_comes_twice(impl):
    """Names with dots in a registry: the later entry replaces the value of the one before."""
    root = net(impl)
    twice = param(impl)
    for _ in range(ROUNDS):
        assert root.state_dict(keep_vars=True)["body.c0.w"] is root.body.c0.w
    root._parameters["body.c0.w"] = twice
    for _ in range(ROUNDS):
        state = root.state_dict(keep_vars=True)
        assert list(state)[:3] == ["last", "body.c0.w", "body.c0.s"]
        assert state["body.c0.w"] is root.body.c0.w
    root.body.c0._parameters.clear()
    for _ in range(ROUNDS):
        assert root.state_dict(keep_vars=True)["body.c0.w"] is twice


def test_names_of_a_str_class_are_asked_as_often_each_time(impl):
    asked = []

    class Name(str):
        def __hash__(self):
            asked.append(self)
            return str.__hash__(self)

    root, counts = net(impl), []
    root._parameters[Name("own")] = param(impl)
    for _ in range(ROUNDS):
        asked.clear()
        assert "own" in root.state_dict()
        counts.append(len(asked))
    assert len(set(counts)) == 1


@pytest.mark.parametrize("prefix", ["", "a.", "b"])
def test_other_prefixes(impl, prefix):
    root = net(impl)
    names = list(expected(root))
    for given in ["", prefix, "", prefix, prefix, prefix]:
        assert list(root.state_dict(prefix=given)) == [given + name for name in names]


# -- the dict is as any other ----------------------------------------------------------------------


def operate(random_, d):
    """One random operation; its result."""
    keys = list(d)
    key = random_.choice(keys) if keys else "none"
    kind = random_.randrange(9)
    if kind == 0:
        d[key] = random_.random()
    elif kind == 1:
        d[f"new{random_.randrange(5)}"] = random_.random()
    elif kind == 2:
        return d.pop(key, "missing")
    elif kind == 3 and keys:
        return d.popitem(last=random_.random() < 0.5)
    elif kind == 4 and keys:
        d.move_to_end(key, last=random_.random() < 0.5)
    elif kind == 5:
        d.update({key: 3, "more": 4})
    elif kind == 6:
        return list(reversed(d.items()))
    elif kind == 7:
        return d.setdefault(f"new{random_.randrange(5)}", 7)
    elif kind == 8 and random_.random() < 0.05:
        d.clear()
    return None


@pytest.mark.parametrize("seed", range(10))
def test_operations_on_the_result(impl, seed):
    root = net(impl, 5 + 7 * seed)
    for _ in range(ROUNDS):
        state = root.state_dict()
    other = OrderedDict()
    for i, key in enumerate(state):
        state[key] = other[key] = i
    for step in range(400):
        results = [operate(random.Random(f"{seed} {step}"), d) for d in (state, other)]
        assert results[0] == results[1]
        assert list(state.items()) == list(other.items())


def test_a_change_while_it_is_iterated_over(impl):
    root = net(impl)
    for _ in range(ROUNDS):
        state = root.state_dict()
    keys = iter(state)
    next(keys)
    state["new"] = 1
    with raises(RuntimeError, "mutated"):
        next(keys)


def test_results_are_apart(impl):
    root = net(impl)
    states = [root.state_dict() for _ in range(ROUNDS)]
    states[-1].clear()
    del states[-2]["last"]
    states[0]["new"] = 1
    check(root)
    assert list(states[1]) == list(expected(root))


def test_what_it_holds_is_let_go(impl):
    root = net(impl)
    counts = []
    for _ in range(ROUNDS + 2):
        state = root.state_dict(keep_vars=True)
        counts.append(sys.getrefcount(root.last))
        state.me = state  # a cycle, for the collector
        seen = weakref.ref(state)
        del state
        gc.collect()
        assert seen() is None
    assert len(set(counts)) == 1
    last = weakref.ref(root.last)
    del root
    gc.collect()
    assert last() is None


def test_copies(impl):
    root = net(impl)
    for _ in range(ROUNDS):
        state = root.state_dict()
    for other in (copy.copy(state), state.copy(), OrderedDict(state)):
        assert list(other.items()) == list(state.items())
        other.popitem()
        assert len(state) == len(other) + 1


# -- user code in the walk -------------------------------------------------------------------------


def test_hooks_see_what_is_there_so_far(impl):
    root = net(impl)
    seen = []

    def hook(module, destination, prefix, metadata):
        seen.append((prefix, list(destination), all(v is not None for v in destination.values())))

    def pre_hook(module, prefix, keep_vars):
        seen.append(prefix)

    for _ in range(ROUNDS):
        root.state_dict()
    handle = root.body.c3._register_state_dict_hook(hook)
    root.body.c4.register_state_dict_pre_hook(pre_hook)
    names = list(expected(root))
    upto = names.index("body.c3.s") + 1
    for _ in range(ROUNDS):
        seen.clear()
        assert list(root.state_dict()) == names
        assert seen == [("body.c3.", names[:upto], True), "body.c4."]
    handle.remove()
    assert list(root.state_dict()) == names


def test_an_error_half_way(impl):
    root = net(impl)

    class Fails(impl.nn.Module):
        broken = True

        def get_extra_state(self):
            if self.broken:
                raise ValueError("no state today")
            return 5

    for _ in range(ROUNDS):
        root.state_dict()
    root.body.c3 = Fails()
    for _ in range(ROUNDS):
        with raises(ValueError, "no state today"):
            root.state_dict()
    Fails.broken = False
    for _ in range(ROUNDS):
        assert root.state_dict()["body.c3._extra_state"] == 5


def test_walks_inside_the_walk(impl):
    root = net(impl)

    class Asks(impl.nn.Module):
        asks = True

        def get_extra_state(self):
            if not self.asks:
                return 0
            self.asks = False
            try:
                for _ in range(ROUNDS):
                    inner = root.state_dict()
                    assert inner["body.c3._extra_state"] == 0
                    root.last = param(impl)
                return len(inner)
            finally:
                self.asks = True

    root.body.c3 = Asks()
    for _ in range(ROUNDS):
        state = root.state_dict()
        assert len(state) == state["body.c3._extra_state"] == 12


@collects_in_allocations
def test_the_collector_runs_walks(ours):
    """A walk allocates; what the collector runs then may take state dicts, and change the tree."""
    root = net(ours, 40)
    names = list(expected(root))
    running = []

    def walk(phase, info):
        if phase == "start" and not running:
            running.append(1)
            root.extra = param(ours)
            assert "extra" in root.state_dict()
            del root.extra
            root.state_dict()
            running.clear()
            walks.append(1)

    walks = []
    old = gc.get_threshold()
    gc.callbacks.append(walk)
    gc.set_threshold(1)
    try:
        for _ in range(100):
            state = root.state_dict()
            assert list(state) == names
            assert None not in state.values()
    finally:
        gc.set_threshold(*old)
        gc.callbacks.remove(walk)
    assert len(walks) > 50


def test_user_code_finds_the_dict_of_the_walk(ours):
    """Through the collector, before the dict has an entry, where entries are kept until the end."""
    root = net(ours)
    writes = []

    class Writes(ours.nn.Module):
        def get_extra_state(self):
            for d in gc.get_objects() if writes else ():
                if type(d) is kind and not d:
                    d["intruder"] = d["last"] = 1
            return 0

    kind = type(root.state_dict())
    root.body.c3 = Writes()
    names = list(expected(root))
    names.insert(names.index("body.c2.s") + 1, "body.c3._extra_state")
    for _ in range(ROUNDS):
        assert list(root.state_dict()) == names
    writes.append(1)
    state = root.state_dict()
    if "intruder" in state:
        assert next(iter(state)) == "intruder"
        state.move_to_end("intruder")
        assert list(reversed(state)) == ["intruder", *reversed(names)]
        del state["intruder"]
    assert list(state) == names
    writes.clear()
    for _ in range(ROUNDS):
        assert list(root.state_dict()) == names


def test_walks_of_other_trees_between(impl):
    """Then the keys of a tree are other objects each time."""
    roots = [net(impl, 5), net(impl, 9), impl.nn.Sequential(net(impl), net(impl))]
    for turn in range(80):
        for root in roots if turn % 20 < 15 else roots[:1]:
            check(root)


def test_values_are_those_of_the_call(impl):
    root = net(impl)
    for i in range(ROUNDS + 2):
        with impl.lib.no_grad():
            root.last.fill_(i)
        state = root.state_dict()
        np.testing.assert_array_equal(
            state["last"].numpy(), np.full(root.last.shape, i, np.float32)
        )
        assert not state["last"].requires_grad
