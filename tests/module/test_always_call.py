# SPDX-License-Identifier: BSD-3-Clause
"""Forward hooks with ``always_call=True``: what runs when a call fails."""

from __future__ import annotations

import pytest
from helpers.support import raises, warns

SILENCED = "forward hook with ``always_call=True`` raised an exception that was silenced"


def failing(impl, error=ValueError):
    class Fails(impl.nn.Module):
        def forward(self, x):
            raise error("forward")

    return Fails()


def test_runs_when_forward_fails(impl):
    m = failing(impl)
    seen = []
    m.register_forward_hook(lambda *a: seen.append("normal"))
    m.register_forward_hook(lambda *a: seen.append(a), always_call=True)
    with raises(ValueError, "forward"):
        m(1)
    assert seen == [(m, (1,), None)]


def test_runs_in_its_normal_place_on_success(impl):
    m = impl.nn.Identity()
    order = []
    m.register_forward_hook(lambda *a: order.append("a"))
    m.register_forward_hook(lambda *a: order.append("always"), always_call=True)
    m.register_forward_hook(lambda *a: order.append("b"))
    m(1)
    assert order == ["a", "always", "b"]


def test_gets_kwargs(impl):
    class Fails(impl.nn.Module):
        def forward(self, x, k):
            raise ValueError("forward")

    m = Fails()
    seen = []
    m.register_forward_hook(lambda *a: seen.append(a), always_call=True, with_kwargs=True)
    with raises(ValueError):
        m(1, k=2)
    assert seen == [(m, (1,), {"k": 2}, None)]


def test_base_exceptions_skip_it(impl):
    m = failing(impl, KeyboardInterrupt)
    seen = []
    m.register_forward_hook(lambda *a: seen.append(1), always_call=True)
    with raises(KeyboardInterrupt):
        m(1)
    assert seen == []


def test_runs_when_a_pre_hook_fails_with_the_arguments_so_far(impl):
    m = impl.nn.Identity()
    seen = []

    def fail(module, args):
        raise LookupError("pre")

    m.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
    m.register_forward_pre_hook(fail)
    m.register_forward_hook(lambda *a: seen.append(a), always_call=True)
    with raises(LookupError, "pre"):
        m(1)
    assert seen == [(m, (2,), None)]


def test_runs_when_a_forward_hook_fails_with_the_latest_result(impl):
    m = impl.nn.Identity()
    seen = []

    def fail(*args):
        raise LookupError("post")

    m.register_forward_hook(lambda m, a, out: out + 10)
    m.register_forward_hook(fail)
    m.register_forward_hook(lambda m, a, out: seen.append("normal"))
    m.register_forward_hook(lambda m, a, out: seen.append(out), always_call=True)
    with raises(LookupError, "post"):
        m(1)
    assert seen == [11]


def test_results_reach_the_later_always_call_hooks_only(impl):
    m = failing(impl)
    seen = []
    m.register_forward_hook(lambda m, a, out: "first", always_call=True)
    m.register_forward_hook(lambda m, a, out: seen.append(out), always_call=True)
    with raises(ValueError, "forward"):
        m(1)
    assert seen == ["first"]


def test_is_not_run_twice(impl):
    m = impl.nn.Identity()
    ran = []

    def fail(*args):
        raise LookupError("post")

    m.register_forward_hook(lambda *a: ran.append("a"), always_call=True)
    m.register_forward_hook(fail)
    m.register_forward_hook(lambda *a: ran.append("b"), always_call=True)
    with raises(LookupError):
        m(1)
    assert ran == ["a", "b"]


def test_that_fails_itself_is_not_run_again_but_the_others_are(impl):
    m = impl.nn.Identity()
    ran = []

    def fail(*args):
        ran.append("fail")
        raise LookupError("always")

    m.register_forward_hook(fail, always_call=True)
    m.register_forward_hook(lambda *a: ran.append("other"), always_call=True)
    with raises(LookupError, "always"):
        m(1)
    assert ran == ["fail", "other"]


def test_its_own_failure_is_silenced_with_a_warning(impl):
    m = failing(impl)
    ran = []

    def fail(*args):
        raise LookupError("silenced text")

    m.register_forward_hook(fail, always_call=True)
    m.register_forward_hook(lambda *a: ran.append("other"), always_call=True)
    with warns(UserWarning, "module " + SILENCED), raises(ValueError, "forward"):
        m(1)
    assert ran == ["other"]


def test_warning_turned_into_an_error_does_not_crash(impl):
    m = failing(impl)

    def fail(*args):
        raise LookupError("silenced text")

    m.register_forward_hook(fail, always_call=True)
    with pytest.raises((ValueError, UserWarning)):
        m(1)


def test_global_hook_runs_before_the_local_one(impl):
    m = failing(impl)
    ran = []
    m.register_forward_hook(lambda *a: ran.append("local"), always_call=True)
    handle = impl.module.register_module_forward_hook(
        lambda *a: ran.append(("global", a)), always_call=True
    )
    try:
        with raises(ValueError, "forward"):
            m(1)
    finally:
        handle.remove()
    assert ran == [("global", (m, (1,), None)), "local"]


def test_failure_of_a_global_hook_is_silenced_with_a_warning(impl):
    m = failing(impl)

    def fail(*args):
        raise LookupError("silenced text")

    handle = impl.module.register_module_forward_hook(fail, always_call=True)
    try:
        with warns(UserWarning, "global module " + SILENCED), raises(ValueError, "forward"):
            m(1)
    finally:
        handle.remove()


def test_fast_path_has_no_exception_phase(impl):
    class Registers(impl.nn.Module):
        def forward(self, x):
            self.register_forward_hook(lambda *a: ran.append(1), always_call=True)
            raise ValueError("forward")

    ran = []
    with raises(ValueError):
        Registers()(1)
    assert ran == []


def test_hook_added_by_the_failing_forward_runs_on_the_slow_path(impl):
    class Registers(impl.nn.Module):
        def forward(self, x):
            self.register_forward_hook(lambda *a: ran.append(1), always_call=True)
            raise ValueError("forward")

    ran = []
    m = Registers()
    m.register_forward_pre_hook(lambda *a: None)
    with raises(ValueError):
        m(1)
    assert ran == [1]


def test_nested_modules(impl):
    inner = failing(impl)
    outer = impl.nn.Sequential(inner)
    ran = []
    inner.register_forward_hook(lambda *a: ran.append("inner"), always_call=True)
    outer.register_forward_hook(lambda *a: ran.append("outer"), always_call=True)
    with raises(ValueError):
        outer(1)
    assert ran == ["inner", "outer"]


def test_flag_in_the_table_decides(impl):
    m = failing(impl)
    ran = []
    handle = m.register_forward_hook(lambda *a: ran.append(1), always_call=True)
    del m._forward_hooks_always_called[handle.id]
    with raises(ValueError):
        m(1)
    assert ran == []


# -- better than torch ---------------------------------------------------------------------------


def test_hook_that_removes_itself_keeps_the_exception(ours):
    m = failing(ours)
    ran = []

    def once(*args):
        ran.append("once")
        handle.remove()

    handle = m.register_forward_hook(once, always_call=True)
    m.register_forward_hook(lambda *a: ran.append("other"), always_call=True)
    with raises(ValueError, "forward"):
        m(1)
    assert ran == ["once", "other"]
    assert len(m._forward_hooks) == 1


def test_global_hook_gets_its_kwargs(ours):
    class Fails(ours.nn.Module):
        def forward(self, x, k):
            raise ValueError("forward")

    m = Fails()
    seen = []
    handle = ours.module.register_module_forward_hook(
        lambda *a: seen.append(a), with_kwargs=True, always_call=True
    )
    try:
        with raises(ValueError, "forward"):
            m(1, k=2)
    finally:
        handle.remove()
    assert seen == [(m, (1,), {"k": 2}, None)]
