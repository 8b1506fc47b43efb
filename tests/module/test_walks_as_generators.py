# SPDX-License-Identifier: BSD-3-Clause
"""Walks answer as generators do: to ``inspect``, ``send``, ``throw`` and ``close``, in every
state.
"""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import gc
import inspect
import pickle
import sys
import types
import warnings
import weakref

import pytest
from helpers.support import raises
from helpers.util import param, tensor

WALKS = {
    "parameters": lambda m: m.parameters(),
    "named_parameters": lambda m: m.named_parameters(),
    "buffers": lambda m: m.buffers(),
    "named_buffers": lambda m: m.named_buffers(),
    "modules": lambda m: m.modules(),
    "named_modules": lambda m: m.named_modules(),
    "children": lambda m: m.children(),
    "named_children": lambda m: m.named_children(),
    "_named_members": lambda m: m._named_members(lambda module: module._parameters.items()),
}
every_walk = pytest.mark.parametrize("name", WALKS)


def tree(impl):
    """Two items or more for every walk."""
    m = impl.nn.Module()
    for name in "ab":
        child = impl.nn.Module()
        setattr(m, name, child)
        child.p = param(impl)
        child.register_buffer("b", tensor(impl))
    return m


def states(make):
    """A walk that was not started, one that was, one at its end, one closed before it started."""
    fresh, started, ended, closed = make(), make(), make(), make()
    next(started)
    assert len(list(ended)) >= 2
    closed.close()
    return {"created": fresh, "suspended": started, "ended": ended, "closed": closed}


@every_walk
def test_a_walk_is_a_generator(impl, name):
    walk = WALKS[name](tree(impl))
    assert inspect.isgenerator(walk) and isinstance(walk, types.GeneratorType)
    assert isinstance(walk, collections.abc.Generator) and walk.__class__ is types.GeneratorType
    assert not inspect.isawaitable(walk) and not inspect.iscoroutine(walk)
    assert walk.__name__ == name and walk.__qualname__ == f"Module.{name}"
    assert repr(walk).startswith(f"<generator object Module.{name} at 0x")
    assert walk.gi_code.co_name == name and walk.gi_frame.f_code.co_name == name
    assert walk.gi_running is False and walk.gi_yieldfrom is None
    assert iter(walk) is walk and len(list(walk)) >= 2


@every_walk
def test_states_as_inspect_sees_them(impl, name):
    m = tree(impl)
    walks = states(lambda: WALKS[name](m))
    shown = [inspect.getgeneratorstate(walk) for walk in walks.values()]
    assert shown == ["GEN_CREATED", "GEN_SUSPENDED", "GEN_CLOSED", "GEN_CLOSED"]
    assert [walk.gi_frame is None for walk in walks.values()] == [False, False, True, True]
    if sys.version_info >= (3, 11):
        assert [walk.gi_suspended for walk in walks.values()] == [False, True, False, False]
    assert {walk.__name__ for walk in walks.values()} == {name}


def test_a_walk_knows_that_it_runs(impl):
    m, seen = tree(impl), []

    def members(module):
        seen.append((walk.gi_running, inspect.getgeneratorstate(walk), walk.gi_frame is None))
        for call in (
            walk.close,
            lambda: walk.send(None),
            lambda: walk.throw(KeyError),
            lambda: next(walk),
        ):
            with raises(ValueError, "generator already executing"):
                call()
        return module._parameters.items()

    walk = m._named_members(members)
    assert len(list(walk)) == 2
    assert seen == [(True, "GEN_RUNNING", False)] * 3
    assert walk.gi_running is False


@every_walk
def test_send(impl, name):
    m = tree(impl)
    walks = states(lambda: WALKS[name](m))
    with raises(TypeError, "can't send non-None value to a just-started generator"):
        walks["created"].send(1)
    walks["created"].send(None)
    walks["created"].send(1)
    walks["suspended"].send("anything")
    for state in ("ended", "closed"):
        for value in (None, 1):
            with pytest.raises(StopIteration) as info:
                walks[state].send(value)
            assert info.value.value is None


@every_walk
@pytest.mark.parametrize("state", ["created", "suspended", "ended", "closed"])
@pytest.mark.parametrize(
    "thrown",
    [KeyError, KeyError("x"), GeneratorExit, KeyboardInterrupt(), Exception],
    ids=repr,
)
def test_throw_ends_the_walk(impl, name, state, thrown):
    m = tree(impl)
    walk = states(lambda: WALKS[name](m))[state]
    kind = thrown if isinstance(thrown, type) else type(thrown)
    with pytest.raises(kind) as info:
        walk.throw(thrown)
    assert type(info.value) is kind
    if not isinstance(thrown, type):
        assert info.value is thrown
    assert inspect.getgeneratorstate(walk) == "GEN_CLOSED" and list(walk) == []


@pytest.mark.parametrize("state", ["created", "suspended", "ended", "closed"])
def test_throw_stop_iteration(impl, state):
    m = tree(impl)
    walk = states(m.parameters)[state]
    # Inside of a generator it is a mistake; one that has ended just gives it back.
    # From CPython 3.12 on so does one that has not begun.
    running = state == "suspended" or (state == "created" and sys.version_info < (3, 12))
    with pytest.raises(RuntimeError if running else StopIteration) as info:
        walk.throw(StopIteration("mine"))
    if running:
        assert str(info.value) == "generator raised StopIteration"
        assert str(info.value.__cause__) == "mine"
    assert list(walk) == []


def test_throw_in_its_older_form(impl):
    m = tree(impl)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for arguments in ((KeyError, "x"), (KeyError, KeyError("x")), (KeyError, ("x",), None)):
            walk = m.parameters()
            with raises(KeyError, "x"):
                walk.throw(*arguments)
            assert list(walk) == []


@pytest.mark.parametrize("state", ["created", "suspended"])
@pytest.mark.parametrize(
    "arguments",
    [(), (1,), ("KeyError",), (int,), (KeyError, "x", 3), (KeyError("x"), "y"), (KeyError,) * 4],
    ids=repr,
)
def test_throw_refuses_what_is_no_exception(impl, state, arguments):
    m = tree(impl)
    walk = states(m.parameters)[state]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with raises(TypeError):
            walk.throw(*arguments)
    # The walk goes on.
    assert len(list(walk)) == {"created": 2, "suspended": 1}[state]


@every_walk
def test_close(impl, name):
    m = tree(impl)
    for walk in states(lambda: WALKS[name](m)).values():
        assert walk.close() is None and walk.close() is None
        assert list(walk) == []
        with raises(StopIteration):
            next(walk)


def test_delegation(impl):
    m = tree(impl)

    def outer():
        yield from m.parameters()
        return "end"

    walk = outer()
    assert len(list(walk)) == 2
    walk = outer()
    next(walk)
    walk.send("value")
    with raises(StopIteration):
        walk.send(None)
    walk = outer()
    next(walk)
    with raises(KeyError):
        walk.throw(KeyError("x"))
    with contextlib.closing(m.parameters()) as walk:
        next(walk)
    assert list(walk) == []


@every_walk
def test_walks_are_not_copied(impl, name):
    walk = WALKS[name](tree(impl))
    for action in (
        copy.copy,
        copy.deepcopy,
        *(lambda w, p=p: pickle.dumps(w, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
    ):
        with raises(TypeError, "cannot pickle"):
            action(walk)
    assert len(list(walk)) >= 2


def test_attributes_cannot_be_set(impl):
    walk = tree(impl).parameters()
    for name in ("gi_frame", "gi_code", "gi_running", "gi_yieldfrom"):
        with raises(AttributeError):
            setattr(walk, name, None)
    with raises(AttributeError):
        walk.other = 1


def test_a_frame_outlives_its_walk(impl):
    walks = list(states(tree(impl).parameters).values())
    while walks:
        walk = walks.pop()
        frame, code = walk.gi_frame, walk.gi_code
        if frame is not None:
            shown = inspect.getgeneratorlocals(walk)
            assert shown.keys() == frame.f_locals.keys() and bool(shown) == impl.is_torch
        # CPython 3.13 clears no frame whose generator is alive.
        del walk
        gc.collect()
        assert code.co_name == "parameters"
        if frame is not None:
            frame.clear()
            assert frame.f_code.co_name == "parameters"


def throw_into(walk):
    with raises(KeyError, "thrown"):
        walk.throw(KeyError("thrown"))


def close(walk):
    walk.close()


def closed_generators_keep_arguments():
    """Some of CPython 3.12 and 3.13 keep the frame of a generator that was closed unstarted."""

    class Argument:
        pass

    argument = Argument()
    generator, ref = (lambda given: (yield given))(argument), weakref.ref(argument)
    del argument
    generator.close()
    return ref() is not None


@pytest.mark.parametrize("end", [close, throw_into, list])
def test_an_ended_walk_lets_go_of_its_tree(impl, end):
    if impl.is_torch and end is close and closed_generators_keep_arguments():
        pytest.skip("generators of this CPython keep their arguments when closed unstarted")

    class Own(impl.nn.Module):
        pass

    m = Own()
    m.p = param(impl)
    walk, ref = m.parameters(), weakref.ref(m)
    del m
    assert ref() is not None
    end(walk)
    gc.collect()
    assert ref() is None and list(walk) == []


def test_an_error_is_raised_before_the_tree_is_let_go(impl):
    """What dies with the walk runs code while the thrown error is on its way."""

    class Own(impl.nn.Module):
        def __del__(self):
            with contextlib.suppress(ValueError):
                raise ValueError("of the finalizer")

    walk = Own().parameters()
    with raises(KeyError, "thrown"):
        walk.throw(KeyError("thrown"))
