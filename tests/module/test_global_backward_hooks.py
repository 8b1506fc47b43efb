# SPDX-License-Identifier: BSD-3-Clause
"""Backward hooks for all modules: full ones, those before them, legacy ones."""

from __future__ import annotations

import contextlib
import importlib

import pytest
from helpers.backward_common import doubles, leaf_input, lists, module_of, tensor
from helpers.support import quiet, raises, warns


@pytest.fixture
def scope():
    """Removes the handles put into it."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


def nested(impl):
    inner = doubles(impl)
    outer = module_of(impl, lambda self, x: self.inner(x) * x)
    outer.inner = inner
    return outer


def test_order_over_nested_modules(impl, scope):
    m = nested(impl)
    name = {m: "outer", m.inner: "inner"}
    order = []
    register = impl.module
    scope(
        register.register_module_full_backward_hook(
            lambda m, gi, go: order.append((name[m], lists(gi), lists(go)))
        )
    )
    scope(
        register.register_module_full_backward_pre_hook(
            lambda m, go: order.append((name[m] + " pre", lists(go)))
        )
    )
    m(leaf_input(impl, 3.0)).sum().backward()
    assert order == [
        ("outer pre", ([1.0],)),
        ("inner pre", ([3.0],)),
        ("inner", ([6.0],), ([3.0],)),
        ("outer", ([12.0],), ([1.0],)),
    ]


def test_global_hooks_run_before_local_ones_and_feed_them(impl, scope):
    m = doubles(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(lists(gi)), prepend=True)
    m.register_full_backward_pre_hook(lambda m, go: seen.append(lists(go)), prepend=True)
    scope(impl.module.register_module_full_backward_hook(lambda m, gi, go: (gi[0] + 1,)))
    scope(impl.module.register_module_full_backward_pre_hook(lambda m, go: (go[0] + 4,)))
    x = leaf_input(impl, 1.0)
    m(x).sum().backward()
    assert seen == [([5.0],), ([11.0],)]
    assert x.grad.tolist() == [11.0]


def test_modules_without_gradients_are_left_alone(impl, scope):
    scope(impl.module.register_module_full_backward_hook(lambda *a: pytest.fail("no pass")))
    x, m = tensor(impl, 1.0), module_of(impl, lambda self, x: x)
    assert m(x) is x
    with impl.lib.no_grad():
        y = leaf_input(impl, 1.0)
        assert m(y) is y


def test_outputs_that_cannot_be_tapped(impl, scope):
    scope(impl.module.register_module_full_backward_hook(lambda *a: pytest.fail("not tapped")))
    m = module_of(impl, lambda self, x: [x * 2])
    x = leaf_input(impl, 1.0)
    with warns(UserWarning, "module output should be a Tensor or a tuple of Tensors"):
        (out,) = m(x)
    out.sum().backward()
    assert x.grad.tolist() == [2.0]


def test_removed_global_hooks(impl, scope):
    m = doubles(impl)
    fired = []
    handle = impl.module.register_module_full_backward_hook(lambda *a: fired.append(1))
    out = m(leaf_input(impl, 1.0)).sum()
    handle.remove()
    out.backward()  # has met the hook already
    assert fired == [1]
    x = leaf_input(impl, 1.0)
    assert "BackwardHook" not in m(x).grad_fn.name()


def test_legacy_global_hooks(impl, scope):
    m = module_of(impl, lambda self, x, y: x * y)
    seen = []
    scope(
        impl.module.register_module_backward_hook(
            lambda m, gi, go: seen.append((m, lists(gi), lists(go)))
        )
    )
    x, y = leaf_input(impl, 2.0), leaf_input(impl, 5.0)
    with quiet():
        m(x, y).sum().backward()
    assert seen == [(m, ([5.0], [2.0]), ([1.0],))]


@pytest.mark.parametrize("first", ["full", "legacy"])
def test_global_kinds_exclude_each_other(impl, scope, first):
    register = {
        "full": impl.module.register_module_full_backward_hook,
        "legacy": impl.module.register_module_backward_hook,
    }
    second = {"full": "legacy", "legacy": "full"}[first]
    scope(register[first](lambda *a: None))
    text = "Cannot use both regular backward hooks and full backward hooks as a global Module hook"
    with raises(RuntimeError, text):
        register[second](lambda *a: None)
    scope(register[first](lambda *a: None))


@pytest.mark.parametrize("globally", ["full", "legacy"])
def test_global_and_local_kinds_mix(impl, scope, globally):
    m = module_of(impl, lambda self, x, y: x * y)
    seen = []

    def hook(where):
        return lambda m, gi, go: seen.append((where, lists(gi), lists(go)))

    if globally == "full":
        scope(impl.module.register_module_full_backward_hook(hook("full")))
        m.register_backward_hook(hook("legacy"))
    else:
        scope(impl.module.register_module_backward_hook(hook("legacy")))
        m.register_full_backward_hook(hook("full"))
    with quiet():
        m(leaf_input(impl, 2.0), leaf_input(impl, 5.0)).sum().backward()
    # The legacy hook sits on the node of the full hook's identity.
    assert seen == [
        ("legacy", ([1.0],), ([1.0],)),
        ("full", ([5.0], [2.0]), ([1.0],)),
    ]


def test_a_hook_that_raises_for_one_module(impl, scope):
    m = nested(impl)

    def fails(module, grad_input, grad_output):
        if module is m.inner:
            raise KeyError("inner")

    scope(impl.module.register_module_full_backward_hook(fails))
    x = leaf_input(impl, 3.0)
    with raises(KeyError, "inner"):
        m(x).sum().backward()
    assert x.grad is None
    m.inner(x).detach()


def test_handles_are_found_where_torch_has_them(impl, scope):
    name = "torch" if impl.is_torch else "modtree"
    handles = importlib.import_module(f"{name}.utils.hooks")
    handle = scope(impl.module.register_module_full_backward_hook(lambda *a: None))
    assert type(handle) is handles.RemovableHandle
