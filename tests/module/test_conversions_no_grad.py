# SPDX-License-Identifier: BSD-3-Clause
"""Under which gradient mode ``_apply`` calls what: the function for parameters without gradients,
everything else in the mode of the caller, however many modules lie between.
"""

from __future__ import annotations

from collections import OrderedDict

import pytest
from helpers.support import raises
from helpers.util import tensor


def node(impl, parameters=1, buffers=0, Module=None):
    m = (Module or impl.nn.Module)()
    for i in range(parameters):
        m.register_parameter(f"p{i}", impl.nn.Parameter(tensor(impl)))
    for i in range(buffers):
        m.register_buffer(f"b{i}", tensor(impl))
    return m


def tree(impl, *children):
    root = node(impl)
    for i, child in enumerate(children):
        root.add_module(str(i), child)
    return root


def watcher(impl, log):
    """A function for ``_apply`` that notes the mode for each kind of tensor."""

    def fn(t):
        log.append(("p" if isinstance(t, impl.nn.Parameter) else "b", impl.lib.is_grad_enabled()))
        return t

    return fn


def test_parameters_without_and_buffers_with_gradients(impl):
    log = []
    m = tree(impl, node(impl), node(impl, 1, 1), node(impl, 2, 0), node(impl, 0, 2))
    m._apply(watcher(impl, log))
    assert log == [("p", False)] * 2 + [("b", True)] + [("p", False)] * 2 + [("b", True)] * 2 + [
        ("p", False)
    ]
    assert impl.lib.is_grad_enabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_mode_of_the_caller_is_back_at_the_end(impl, enabled):
    log = []
    with impl.lib.set_grad_enabled(enabled):
        tree(impl, node(impl), node(impl, 1, 1))._apply(watcher(impl, log))
        assert impl.lib.is_grad_enabled() is enabled
    assert ("b", enabled) in log
    assert impl.lib.is_grad_enabled()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_of_the_function_leaves_the_mode(impl, place):
    m = tree(impl, node(impl), node(impl), node(impl))
    count = 0

    def fn(t):
        nonlocal count
        count += 1
        if count == place + 1:
            raise KeyError("stop")
        return t

    with raises(KeyError, "stop"):
        m._apply(fn)
    assert impl.lib.is_grad_enabled()


def test_an_overridden_conversion_is_called_outside(impl):
    log = []

    class Own(impl.nn.Module):
        def _apply(self, fn, recurse=True):
            log.append(impl.lib.is_grad_enabled())
            return super()._apply(fn)

    m = tree(impl, node(impl), node(impl, Module=Own), node(impl))
    m._apply(lambda t: t)
    assert log == [True]


@pytest.mark.parametrize("method", ["children", "named_children"])
def test_overridden_children_are_asked_for_outside(impl, method):
    log = []

    class Own(impl.nn.Module):
        def note(self, found):
            log.append(impl.lib.is_grad_enabled())
            for each in found:
                yield each
                log.append(impl.lib.is_grad_enabled())

    setattr(Own, method, lambda self: self.note(getattr(impl.nn.Module, method)(self)))
    middle = node(impl, Module=Own)
    middle.one, middle.two = node(impl), node(impl)
    m = tree(impl, node(impl), middle, node(impl))
    m._apply(lambda t: t)
    assert log and all(log)


def test_siblings_are_compared_outside(impl):
    log = []

    class Compared(impl.nn.Module):
        def __hash__(self):
            return 1

        def __eq__(self, other):
            log.append(impl.lib.is_grad_enabled())
            return self is other

    m = tree(impl, node(impl), *(node(impl, Module=Compared) for _ in range(3)), node(impl))
    m._apply(lambda t: t)
    assert log and all(log)


@pytest.mark.parametrize("registry", ["_parameters", "_buffers", "_modules"])
def test_registries_that_run_python_are_walked_outside(impl, registry):
    log = []

    class Noted(OrderedDict):
        def items(self):
            log.append(impl.lib.is_grad_enabled())
            for pair in super().items():
                yield pair
                if registry == "_modules":
                    log.append(impl.lib.is_grad_enabled())

    m = tree(impl, node(impl), node(impl, 1, 1), node(impl))
    for each in (m, getattr(m, "1")):
        setattr(each, registry, Noted(getattr(each, registry)))
    m._apply(lambda t: t)
    assert log and all(log)


def test_a_missing_registry_is_asked_for_outside(impl):
    log = []

    class Given(impl.nn.Module):
        def __getattr__(self, name):
            if name == "_buffers":
                log.append(impl.lib.is_grad_enabled())
                return {}
            return super().__getattr__(name)

    odd = node(impl, Module=Given)
    del odd.__dict__["_buffers"]
    tree(impl, node(impl), odd, node(impl))._apply(lambda t: t)
    assert log and all(log)


def test_a_function_that_converts_another_tree(impl):
    log = []
    other = tree(impl, node(impl, 1, 1))

    def fn(t):
        other._apply(watcher(impl, log))
        return t

    tree(impl, node(impl), node(impl))._apply(fn)
    assert len(log) == 9 and ("b", True) not in log
    assert impl.lib.is_grad_enabled()


def test_modules_that_are_looked_at_by_the_function(impl):
    """The function exposes and changes what comes next."""
    m = tree(impl, node(impl), node(impl, 1, 1), node(impl))
    log = []
    note = watcher(impl, log)

    def fn(t):
        for each in m.modules():
            _ = each.__dict__
        if not hasattr(m, "late"):
            m.__dict__["late"] = True
            getattr(m, "2").register_buffer("new", tensor(impl))
        return note(t)

    m._apply(fn)
    assert [mode for kind, mode in log if kind == "b"] == [True, True]
    assert not any(mode for kind, mode in log if kind == "p")
