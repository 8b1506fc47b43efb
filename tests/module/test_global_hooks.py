# SPDX-License-Identifier: BSD-3-Clause
"""Hooks for all modules: forward-pre and forward."""

from __future__ import annotations

import contextlib

import pytest
from helpers.support import raises


@pytest.fixture
def scope():
    """Removes the handles put into it."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


def nested(impl):
    class Outer(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = impl.nn.Identity()

        def forward(self, x, **kwargs):
            return self.inner(x)

    return Outer()


def test_order_over_nested_modules(impl, scope):
    m = nested(impl)
    order = []
    name = {m: "outer", m.inner: "inner"}
    register = impl.module
    scope(register.register_module_forward_pre_hook(lambda x, a: order.append(name[x] + " pre")))
    scope(register.register_module_forward_hook(lambda x, a, o: order.append(name[x] + " post")))
    m(1)
    assert order == ["outer pre", "inner pre", "inner post", "outer post"]


def test_global_hooks_run_before_local_ones(impl, scope):
    m = impl.nn.Identity()
    order = []
    m.register_forward_pre_hook(lambda *a: order.append("local pre"), prepend=True)
    m.register_forward_hook(lambda *a: order.append("local"), prepend=True)
    scope(impl.module.register_module_forward_pre_hook(lambda *a: order.append("global pre")))
    scope(impl.module.register_module_forward_hook(lambda *a: order.append("global")))
    m(1)
    assert order == ["global pre", "local pre", "global", "local"]


def test_results_are_used(impl, scope):
    m = impl.nn.Identity()
    m.register_forward_pre_hook(lambda m, a: (a[0] * 10,))
    m.register_forward_hook(lambda m, a, out: out * 10)
    scope(impl.module.register_module_forward_pre_hook(lambda m, a: a[0] + 1))
    scope(impl.module.register_module_forward_hook(lambda m, a, out: out + 1))
    assert m(1) == 210


def test_global_pre_hook_gets_no_kwargs(impl, scope):
    m = nested(impl)
    seen = []
    scope(impl.module.register_module_forward_pre_hook(lambda *a: seen.append(a)))
    m(1, k=2)
    assert seen == [(m, (1,)), (m.inner, (1,))]


def test_global_forward_hook_with_kwargs(impl, scope):
    m = nested(impl)
    seen = []
    scope(impl.module.register_module_forward_hook(lambda *a: seen.append(a), with_kwargs=True))
    m(1, k=2)
    assert seen == [(m.inner, (1,), {}, 1), (m, (1,), {"k": 2}, 1)]


def test_global_hook_reaches_modules_made_before_and_after(impl, scope):
    early = impl.nn.Identity()
    seen = []
    scope(impl.module.register_module_forward_hook(lambda m, a, o: seen.append(m)))
    late = impl.nn.Identity()
    early(1)
    late(1)
    assert seen == [early, late]


def test_removal(impl):
    m = impl.nn.Identity()
    handle = impl.module.register_module_forward_hook(lambda *a: "global")
    assert m(1) == "global"
    handle.remove()
    assert m(1) == 1
    handle.remove()
    assert len(impl.module._global_forward_hooks) == 0


def test_removed_during_the_call_it_still_runs_once(impl, scope):
    m = impl.nn.Identity()
    fired = []
    handles = []
    scope(impl.module.register_module_forward_hook(lambda *a: handles[0].remove()))
    handles.append(impl.module.register_module_forward_hook(lambda *a: fired.append(1)))
    m(1)
    m(1)
    assert fired == [1]


def test_hook_of_the_other_kind_may_be_added_in_forward(impl, scope):
    fired = []

    class Adds(impl.nn.Module):
        def forward(self, x):
            if not impl.module._global_forward_hooks:
                scope(impl.module.register_module_forward_hook(lambda *a: fired.append(1)))
            return x

    m = Adds()
    scope(impl.module.register_module_forward_pre_hook(lambda *a: None))
    m(1)
    assert fired == [1]


def test_functions_take_no_prepend(impl):
    for register in (
        impl.module.register_module_forward_pre_hook,
        impl.module.register_module_forward_hook,
    ):
        with raises(TypeError, "unexpected keyword"):
            register(lambda *a: None, prepend=True)


def test_flags_are_stored_by_id(impl):
    g = impl.module
    handle = g.register_module_forward_hook(lambda *a: None, with_kwargs=True, always_call=True)
    assert dict(g._global_forward_hooks_with_kwargs) == {handle.id: True}
    assert dict(g._global_forward_hooks_always_called) == {handle.id: True}
    handle.remove()
    assert len(g._global_forward_hooks_always_called) == 0


def test_removal_forgets_both_flags(ours):
    g = ours.module
    handle = g.register_module_forward_hook(lambda *a: None, with_kwargs=True, always_call=True)
    handle.remove()
    assert len(g._global_forward_hooks_with_kwargs) == 0
    assert len(g._global_forward_hooks_always_called) == 0


def test_written_into_the_table(impl):
    m = impl.nn.Identity()
    impl.module._global_forward_hooks["mine"] = lambda m, a, out: ("mine", out)
    try:
        assert m(1) == ("mine", 1)
    finally:
        impl.module._global_forward_hooks.clear()
    assert m(1) == 1


def test_removed_global_with_kwargs_hook_keeps_its_form_in_this_call(ours, scope):
    m = ours.nn.Identity()
    seen = []
    handles = []
    scope(ours.module.register_module_forward_hook(lambda *a: handles[0].remove()))
    handles.append(
        ours.module.register_module_forward_hook(lambda *a: seen.append(a), with_kwargs=True)
    )
    m(1)
    assert seen == [(m, (1,), {}, 1)]
