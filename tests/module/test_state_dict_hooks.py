# SPDX-License-Identifier: BSD-3-Clause
"""Hooks around ``state_dict``."""

from __future__ import annotations

import pytest
from helpers.support import leaf, raises


def pair(impl):
    m = leaf(impl, "a")
    m.child = leaf(impl, "w")
    return m


def test_order_of_all_hooks(impl):
    m = pair(impl)
    order = []
    for name, module in (("root", m), ("child", m.child)):
        module.register_state_dict_pre_hook(lambda *a, n=name: order.append((n, "pre")))
        module.register_state_dict_post_hook(lambda *a, n=name: order.append((n, "post")))
        module._register_state_dict_hook(lambda *a, n=name: order.append((n, "legacy")))
    m.state_dict()
    assert order == [
        *(("root", "pre"), ("child", "pre")),
        *(("child", "post"), ("child", "legacy")),
        *(("root", "post"), ("root", "legacy")),
    ]


def test_pre_hook_arguments(impl):
    m = pair(impl)
    seen = []
    m.child.register_state_dict_pre_hook(lambda *a: seen.append(a) or "ignored")
    m.state_dict(prefix="p.", keep_vars=True)
    assert seen == [(m.child, "p.child.", True)]


def test_pre_hook_may_add_members(impl):
    m = pair(impl)

    def adds(module, prefix, keep_vars):
        module.register_buffer("late", impl.lib.tensor([1.0]))

    m.child.register_state_dict_pre_hook(adds)
    assert list(m.state_dict()) == ["a", "child.w", "child.late"]


def test_post_hook_arguments(impl):
    m = pair(impl)
    seen = []

    def hook(module, destination, prefix, local_metadata):
        seen.append((module, destination, prefix, local_metadata))

    m.child.register_state_dict_post_hook(hook)
    sd = m.state_dict(prefix="p.")
    ((module, destination, prefix, local_metadata),) = seen
    assert module is m.child and destination is sd and prefix == "p.child."
    assert local_metadata is sd._metadata["p.child"]


def test_metadata_may_be_extended(impl):
    m = pair(impl)

    def hook(module, destination, prefix, local_metadata):
        local_metadata["note"] = prefix

    m.child._register_state_dict_hook(hook)
    assert m.state_dict()._metadata["child"] == {"version": 1, "note": "child."}


def test_hooks_with_a_plain_destination_still_get_metadata(impl):
    m = leaf(impl, "w")
    seen = []
    m._register_state_dict_hook(lambda *a: seen.append(a[3]))
    m.state_dict(destination={})
    assert seen == [{"version": 1}]


def test_post_hook_may_change_the_destination_in_place(impl):
    m = pair(impl)

    def rename(module, destination, prefix, local_metadata):
        destination[prefix + "v"] = destination.pop(prefix + "w")

    m.child.register_state_dict_post_hook(rename)
    assert list(m.state_dict()) == ["a", "child.v"]


def test_post_hook_must_return_none(impl):
    m = leaf(impl, "w")
    m.register_state_dict_post_hook(lambda module, destination, *a: destination)
    with raises(RuntimeError, "state_dict post-hook must return None"):
        m.state_dict()


def test_legacy_hook_replaces_the_result_of_the_root(impl):
    m = pair(impl)
    other = {"replaced": 1}
    seen = []
    m._register_state_dict_hook(lambda module, destination, *a: other)
    m._register_state_dict_hook(lambda module, destination, *a: seen.append(destination))
    assert m.state_dict() is other
    assert seen[0] is other


def test_legacy_hook_of_a_child_does_not_change_the_result(impl):
    m = pair(impl)
    seen = []
    m.child._register_state_dict_hook(lambda *a: {"replaced": 1})
    m.child._register_state_dict_hook(lambda module, destination, *a: seen.append(destination))
    assert list(m.state_dict()) == ["a", "child.w"]
    assert seen == [{"replaced": 1}]


@pytest.mark.parametrize("value", [0, "", False], ids=repr)
def test_legacy_hook_may_replace_by_anything_but_none(impl, value):
    m = leaf(impl, "w")
    m._register_state_dict_hook(lambda *a: value)
    assert m.state_dict() is value


def test_exceptions_in_hooks(impl):
    def fail(*args):
        raise LookupError("hook")

    for register in (
        "register_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "_register_state_dict_hook",
    ):
        m = pair(impl)

        def own(*args):
            fail()

        getattr(m.child, register)(own)
        with raises(LookupError, "hook"):
            m.state_dict()


def test_public_hook_marks_the_function(impl):
    def hook(*args):
        return None

    m = leaf(impl, "w")
    m.register_state_dict_post_hook(hook)
    assert hook._from_public_api is True
    with raises(RuntimeError, "previously registered via register_state_dict_post_hook"):
        m._register_state_dict_hook(hook)


def test_hooks_written_into_the_table(impl):
    m = leaf(impl, "w")
    m._state_dict_pre_hooks["x"] = lambda module, prefix, keep: module.register_buffer(
        "late", impl.lib.tensor([1.0])
    )
    assert list(m.state_dict()) == ["w", "late"]


def test_hook_that_removes_itself(impl):
    m = leaf(impl, "w")
    fired = []

    def once(*args):
        fired.append(1)

    handle = m.register_state_dict_pre_hook(once)
    m.state_dict()
    handle.remove()
    m.state_dict()
    assert fired == [1]


# -- better than torch ---------------------------------------------------------------------------


def test_bound_methods_can_be_public_hooks(ours):
    class Own(ours.nn.Module):
        def note(self, module, destination, prefix, local_metadata):
            destination[prefix + "note"] = 1

        def wrong(self, *args):
            return {}

    m = Own()
    m.register_state_dict_post_hook(m.note)
    assert dict(m.state_dict()) == {"note": 1}
    m.register_state_dict_post_hook(m.wrong)
    with raises(RuntimeError, "state_dict post-hook must return None"):
        m.state_dict()


def test_builtins_can_be_public_hooks(ours):
    m = leaf(ours, "w")
    seen = []
    m.register_state_dict_post_hook(print)
    m._state_dict_hooks.clear()

    class Callable:
        __slots__ = ()

        def __call__(self, *args):
            seen.append(args[0])

    m.register_state_dict_post_hook(Callable())
    m.state_dict()
    assert seen == [m]


def test_public_registration_does_not_change_private_ones_elsewhere(ours):
    def hook(module, destination, prefix, local_metadata):
        return {"replaced": 1}

    a, b = leaf(ours, "w"), leaf(ours, "w")
    a._register_state_dict_hook(hook)
    b.register_state_dict_post_hook(hook)
    assert a.state_dict() == {"replaced": 1}
    with raises(RuntimeError, "state_dict post-hook must return None"):
        b.state_dict()
