# SPDX-License-Identifier: BSD-3-Clause
"""Forward-pre and forward hooks of one module."""

from __future__ import annotations

import pytest
from helpers.support import raises


def echo(impl):
    class Echo(impl.nn.Module):
        def forward(self, *args, **kwargs):
            return (args, kwargs)

    return Echo()


# -- pre-hooks -----------------------------------------------------------------------------------


def test_pre_hook_sees_module_and_args(impl):
    m = echo(impl)
    seen = []
    m.register_forward_pre_hook(lambda *a: seen.append(a))
    assert m(1, 2, k=3) == ((1, 2), {"k": 3})
    assert seen == [(m, (1, 2))]


@pytest.mark.parametrize(
    ("returned", "args"),
    [
        (None, (1, 2)),
        ((7,), (7,)),
        ((), ()),
        ((7, 8, 9), (7, 8, 9)),
        ([7, 8], ([7, 8],)),
        ({"a": 1}, ({"a": 1},)),
        (False, (False,)),
        (0, (0,)),
        ("ab", ("ab",)),
    ],
    ids=repr,
)
def test_pre_hook_result(impl, returned, args):
    m = echo(impl)
    m.register_forward_pre_hook(lambda m, a: returned)
    assert m(1, 2, k=3) == (args, {"k": 3})


def test_pre_hook_may_return_a_tuple_subclass(impl):
    import collections

    Pair = collections.namedtuple("Pair", "a b")
    m = echo(impl)
    m.register_forward_pre_hook(lambda m, a: Pair(5, 6))
    assert m(1) == ((5, 6), {})


def test_pre_hooks_chain(impl):
    m = echo(impl)
    m.register_forward_pre_hook(lambda m, a: a[0] + 1)
    m.register_forward_pre_hook(lambda m, a: (a[0] * 10, "more"))
    assert m(1) == ((20, "more"), {})


def test_pre_hook_with_kwargs(impl):
    m = echo(impl)
    seen = []

    def hook(module, args, kwargs):
        seen.append((module, args, dict(kwargs)))
        return (args[0] + 1,), {**kwargs, "new": True}

    m.register_forward_pre_hook(hook, with_kwargs=True)
    assert m(1, k=2) == ((2,), {"k": 2, "new": True})
    assert seen == [(m, (1,), {"k": 2})]


def test_pre_hook_with_kwargs_returning_none(impl):
    m = echo(impl)
    m.register_forward_pre_hook(lambda m, a, k: None, with_kwargs=True)
    assert m(1, k=2) == ((1,), {"k": 2})
    assert m() == ((), {})


@pytest.mark.parametrize("returned", [3, (3,), (1, 2, 3), [(3,), {}], {}, False, "ab"], ids=repr)
def test_pre_hook_with_kwargs_returning_something_else(impl, returned):
    m = echo(impl)
    m.register_forward_pre_hook(lambda m, a, k: returned, with_kwargs=True)
    with raises(
        RuntimeError, "forward pre-hook must return None or a tuple of (new_args, new_kwargs)"
    ):
        m(1)


def test_pre_hook_with_kwargs_is_not_checked_further(impl):
    m = echo(impl)
    handle = m.register_forward_pre_hook(lambda m, a, k: ([5, 6], {"z": 1}), with_kwargs=True)
    assert m(1) == ((5, 6), {"z": 1})
    handle.remove()
    handle = m.register_forward_pre_hook(lambda m, a, k: (5, {}), with_kwargs=True)
    with raises(TypeError):
        m(1)
    handle.remove()
    for no_mapping in (7, None, (1,), [], "text"):
        handle = m.register_forward_pre_hook(
            lambda m, a, k, given=no_mapping: ((5,), given), with_kwargs=True
        )
        with raises(TypeError):
            m(1)
        handle.remove()


def test_later_hooks_see_the_list_a_with_kwargs_hook_returned(impl):
    m = echo(impl)
    seen = []
    m.register_forward_pre_hook(lambda m, a, k: ([5], k), with_kwargs=True)
    m.register_forward_pre_hook(lambda m, a: seen.append(a))
    m.register_forward_hook(lambda m, a, out: seen.append(a))
    m(1)
    assert seen == [[5], [5]]


def test_kwargs_changed_in_place_reach_forward_but_not_the_caller(impl):
    m = echo(impl)

    def hook(module, args, kwargs):
        kwargs["added"] = 1

    m.register_forward_pre_hook(hook, with_kwargs=True)
    given = {"k": 2}
    assert m(**given) == ((), {"k": 2, "added": 1})
    assert given == {"k": 2}


def test_forward_may_not_change_the_kwargs_of_hooks(impl):
    class Pops(impl.nn.Module):
        def forward(self, **kwargs):
            kwargs.clear()

    m = Pops()
    seen = []
    m.register_forward_hook(lambda m, a, k, out: seen.append(k), with_kwargs=True)
    m(a=1)
    assert seen == [{"a": 1}]


def test_prepended_pre_hooks_run_first_in_reverse_order(impl):
    m = echo(impl)
    order = []
    m.register_forward_pre_hook(lambda *a: order.append("a"))
    m.register_forward_pre_hook(lambda *a: order.append("b"), prepend=True)
    m.register_forward_pre_hook(lambda *a: order.append("c"), prepend=True)
    m.register_forward_pre_hook(lambda *a: order.append("d"))
    m()
    assert order == ["c", "b", "a", "d"]
    assert len(m._forward_pre_hooks) == 4


# -- forward hooks -------------------------------------------------------------------------------


def test_forward_hook_sees_args_and_output(impl):
    m = echo(impl)
    seen = []
    m.register_forward_hook(lambda *a: seen.append(a))
    out = m(1, k=2)
    assert seen == [(m, (1,), ((1,), {"k": 2}))]
    assert seen[0][2] is out


@pytest.mark.parametrize("returned", [0, False, "", (), [], "new"], ids=repr)
def test_forward_hook_replaces_the_output(impl, returned):
    m = echo(impl)
    seen = []
    m.register_forward_hook(lambda m, a, out: returned)
    m.register_forward_hook(lambda m, a, out: seen.append(out))
    assert m(1) is returned
    assert seen == [returned]


def test_forward_hook_returning_none_keeps_the_output(impl):
    m = impl.nn.Identity()
    m.register_forward_hook(lambda m, a, out: None)
    x = object()
    assert m(x) is x


def test_forward_hook_with_kwargs(impl):
    m = echo(impl)
    seen = []
    m.register_forward_hook(lambda *a: seen.append(a), with_kwargs=True)
    out = m(1, k=2)
    m()
    assert seen == [(m, (1,), {"k": 2}, out), (m, (), {}, ((), {}))]


def test_forward_hooks_see_what_the_pre_hooks_made(impl):
    m = echo(impl)
    seen = []
    m.register_forward_pre_hook(lambda m, a, k: ((9,), {"n": 1}), with_kwargs=True)
    m.register_forward_hook(lambda m, a, out: seen.append(a))
    m.register_forward_hook(lambda m, a, k, out: seen.append((a, k)), with_kwargs=True)
    m(1)
    assert seen == [(9,), ((9,), {"n": 1})]


def test_prepended_forward_hooks(impl):
    m = echo(impl)
    order = []
    m.register_forward_hook(lambda *a: order.append("a"))
    m.register_forward_hook(lambda *a: order.append("b"), prepend=True)
    m.register_forward_hook(lambda *a: order.append("c"), prepend=True, with_kwargs=True)
    m()
    assert order == ["c", "b", "a"]


def test_options_are_keyword_only(impl):
    m = echo(impl)
    with raises(TypeError, "positional argument"):
        m.register_forward_hook(lambda *a: None, True)
    with raises(TypeError, "positional argument"):
        m.register_forward_pre_hook(lambda *a: None, True)
    with raises(TypeError, "unexpected keyword"):
        m.register_forward_pre_hook(lambda *a: None, always_call=True)
    with raises(TypeError):
        m.register_forward_hook()


def test_hook_that_cannot_be_called_fails_in_the_call(impl):
    m = echo(impl)
    m.register_forward_hook(None)
    with raises(TypeError, "not callable"):
        m(1)


def test_hook_may_be_any_callable(impl):
    class Hook:
        def __init__(self):
            self.calls = 0

        def __call__(self, module, args, out):
            self.calls += 1

    hook = Hook()
    m = echo(impl)
    m.register_forward_hook(hook)
    m.register_forward_hook(hook)
    m(1)
    assert hook.calls == 2


def test_nested_order(impl):
    order = []

    class Outer(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = impl.nn.Identity()

        def forward(self, x):
            order.append("forward")
            return self.inner(x)

    m = Outer()
    for name, module in (("outer", m), ("inner", m.inner)):
        module.register_forward_pre_hook(lambda *a, name=name: order.append(name + " pre"))
        module.register_forward_hook(lambda *a, name=name: order.append(name + " post"))
    m(1)
    assert order == ["outer pre", "forward", "inner pre", "inner post", "outer post"]


def test_exceptions_in_hooks_stop_the_call(impl):
    m = echo(impl)
    ran = []

    def fail(*args):
        raise LookupError("hook")

    m.register_forward_hook(lambda *a: ran.append("post"))
    handle = m.register_forward_pre_hook(fail)
    with raises(LookupError, "hook"):
        m(1)
    handle.remove()
    m.register_forward_hook(fail, prepend=True)
    with raises(LookupError, "hook"):
        m(1)
    assert ran == []


# -- flags and tables ----------------------------------------------------------------------------


def test_tables_after_registration(impl):
    m = echo(impl)

    def hook(*args):
        return None

    handles = [
        m.register_forward_pre_hook(hook),
        m.register_forward_pre_hook(hook, with_kwargs=True),
        m.register_forward_hook(hook),
        m.register_forward_hook(hook, with_kwargs=True, always_call=True),
    ]
    ids = [h.id for h in handles]
    assert ids == sorted(set(ids))
    assert list(m._forward_pre_hooks) == ids[:2]
    assert list(m._forward_pre_hooks_with_kwargs.items()) == [(ids[1], True)]
    assert list(m._forward_hooks) == ids[2:]
    assert list(m._forward_hooks_with_kwargs.items()) == [(ids[3], True)]
    assert list(m._forward_hooks_always_called.items()) == [(ids[3], True)]
    assert m._forward_hooks[ids[3]] is hook
    for handle in handles:
        handle.remove()
    for table in (
        *(m._forward_pre_hooks, m._forward_pre_hooks_with_kwargs, m._forward_hooks),
        *(m._forward_hooks_with_kwargs, m._forward_hooks_always_called),
    ):
        assert len(table) == 0


# -- changes during a call -----------------------------------------------------------------------


def test_hook_removed_by_an_earlier_one_still_runs_in_this_call(impl):
    m = echo(impl)
    fired = []
    handles = []
    m.register_forward_hook(lambda *a: handles[0].remove())
    handles.append(m.register_forward_hook(lambda *a: fired.append("second")))
    m(1)
    assert fired == ["second"]
    m(1)
    assert fired == ["second"]


def test_pre_hook_removed_by_an_earlier_one_still_runs_in_this_call(impl):
    m = echo(impl)
    fired = []
    handles = []
    m.register_forward_pre_hook(lambda *a: handles[0].remove())
    handles.append(m.register_forward_pre_hook(lambda *a: fired.append("second")))
    m(1)
    m(1)
    assert fired == ["second"]


def test_hooks_of_the_same_kind_added_in_the_phase_wait(impl):
    m = echo(impl)
    fired = []

    def adds(*args):
        if len(m._forward_hooks) < 2:
            m.register_forward_hook(lambda *a: fired.append("post"))

    def adds_pre(*args):
        if len(m._forward_pre_hooks) < 2:
            m.register_forward_pre_hook(lambda *a: fired.append("pre"))

    m.register_forward_hook(adds)
    m.register_forward_pre_hook(adds_pre)
    m(1)
    assert fired == []
    m(1)
    assert fired == ["pre", "post"]


def test_forward_hook_added_in_a_pre_hook_runs(impl):
    m = echo(impl)
    fired = []

    def adds(*args):
        if not m._forward_hooks:
            m.register_forward_hook(lambda *a: fired.append("post"))

    m.register_forward_pre_hook(adds)
    m(1)
    assert fired == ["post"]


def test_hook_that_removes_itself(impl):
    m = echo(impl)
    fired = []

    def once(*args):
        fired.append(1)
        handle.remove()

    handle = m.register_forward_hook(once)
    m(1)
    m(1)
    assert fired == [1]


def test_tables_cleared_during_a_call(impl):
    m = echo(impl)
    fired = []

    def clears(*args):
        m._forward_pre_hooks.clear()
        m._forward_hooks.clear()

    m.register_forward_pre_hook(clears)
    m.register_forward_pre_hook(lambda *a: fired.append("pre"))
    m.register_forward_hook(lambda *a: fired.append("post"))
    assert m(1) == ((1,), {})
    assert fired == ["pre"]


def test_removed_with_kwargs_hook_keeps_its_form_in_this_call(ours):
    m = echo(ours)
    seen = []
    handles = []
    m.register_forward_pre_hook(lambda *a: handles[0].remove())
    handles.append(m.register_forward_pre_hook(lambda *a: seen.append(a), with_kwargs=True))
    m.register_forward_hook(lambda *a: handles[1].remove())
    handles.append(m.register_forward_hook(lambda *a: seen.append(a), with_kwargs=True))
    m(1, k=2)
    assert seen == [(m, (1,), {"k": 2}), (m, (1,), {"k": 2}, ((1,), {"k": 2}))]


def test_hook_registering_on_another_module_during_the_call(impl):
    a, b = echo(impl), echo(impl)
    fired = []
    a.register_forward_hook(lambda *x: b.register_forward_hook(lambda *y: fired.append(1)))
    a(1)
    b(1)
    assert fired == [1]
