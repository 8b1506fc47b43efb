# SPDX-License-Identifier: BSD-3-Clause
"""``apply`` (visits modules) and ``_apply`` (maps tensors)."""

from __future__ import annotations

import pytest
from helpers.support import (
    dtype,
    leaf,
    overwrite_mode,
    parameter_type,
    quiet,
    raises,
    swap_mode,
    tree,
    values,
)

# -- apply ---------------------------------------------------------------------------------------


def test_apply_visits_children_first_and_returns_self(impl):
    net = tree(impl)
    seen = []
    assert net.apply(lambda m: seen.append(m)) is net
    body = net.body
    assert seen == [body.first, body.second, body, net.head, net]


def test_apply_ignores_results(impl):
    net = tree(impl)
    assert net.apply(lambda m: 7) is net


def test_apply_skips_none_children_and_visits_a_child_once_per_parent(impl):
    nn = impl.nn
    shared = nn.Module()
    left, right, root = nn.Module(), nn.Module(), nn.Module()
    left.a, left.b, left.none = shared, shared, None
    right.a = shared
    root.left, root.right = left, right
    seen = []
    root.apply(seen.append)
    assert seen == [shared, left, shared, right, root]


def test_apply_calls_the_apply_of_the_child(impl):
    calls = []

    class Own(impl.nn.Module):
        def apply(self, fn):
            calls.append(fn)
            return "ignored"

    net = impl.nn.Sequential(Own(), impl.nn.Identity())
    seen = []
    fn = seen.append
    assert net.apply(fn) is net
    assert calls == [fn]
    assert seen == [net[1], net]


def test_apply_honours_an_instance_attribute(impl):
    net = impl.nn.Sequential(impl.nn.Identity())
    calls = []
    net[0].apply = calls.append
    net.apply(print_nothing := lambda m: None)
    assert calls == [print_nothing]


def test_apply_uses_overridden_children(impl):
    class Hidden(impl.nn.Module):
        def children(self):
            return iter(())

    root = Hidden()
    root.child = impl.nn.Identity()
    seen = []
    root.apply(seen.append)
    assert seen == [root]


def test_apply_stops_at_an_exception(impl):
    net = tree(impl)
    seen = []

    def fn(module):
        seen.append(module)
        if module is net.body:
            raise KeyError("stop")

    with raises(KeyError, "stop"):
        net.apply(fn)
    assert seen == [net.body.first, net.body.second, net.body]


def test_apply_may_change_the_visited_module(impl):
    net = impl.nn.Sequential(impl.nn.Identity(), impl.nn.Identity())

    def fn(module):
        if isinstance(module, impl.nn.Identity):
            module.added = impl.nn.Module()

    net.apply(fn)
    assert [n for n, _ in net.named_modules()] == ["", "0", "0.added", "1", "1.added"]


def test_apply_of_something_that_cannot_be_called(impl):
    with raises(TypeError, "not callable"):
        tree(impl).apply(None)


def test_apply_on_a_cycle_is_a_recursion_error(impl):
    a, b = impl.nn.Module(), impl.nn.Module()
    a.b, b.a = b, a
    with pytest.raises(RecursionError):
        a.apply(lambda m: None)


def test_apply_names_the_cycle(ours):
    a, b = ours.nn.Module(), ours.nn.Module()
    a.down, b.up = b, a
    with pytest.raises(RecursionError, match="(?s)(down.*up)|(up.*down)"):
        a.apply(lambda m: None)


# -- _apply: order and what fn gets --------------------------------------------------------------


def test_fn_gets_the_registered_objects_in_order(impl):
    net = tree(impl)
    seen = []

    def fn(t):
        seen.append(t)
        return t

    first, second, head = net.body.first, net.body.second, net.head
    expected = [
        *(first.weight, first.count, first.mean, first.scratch),
        *(second.weight, second.count, second.mean, second.scratch),
        net.body.scale,
        *(head.weight, head.count, head.mean, head.scratch),
        *(net.gain, net.offset),
    ]
    assert net._apply(fn) is net
    assert [id(t) for t in seen] == [id(t) for t in expected]


def test_fn_gets_the_gradient_right_after_its_parameter(impl):
    m = leaf(impl, "a", "b")
    m.register_buffer("c", impl.lib.tensor([0.0]))
    a_grad = m.a.grad = impl.lib.tensor([5.0, 6.0])
    seen = []
    m._apply(lambda t: seen.append(t) or t)
    assert [id(t) for t in seen] == [id(m.a), id(a_grad), id(m.b), id(m.c)]
    assert m.a.grad is a_grad


def test_recurse_false_stays_in_the_module(impl):
    net = tree(impl)
    assert net._apply(lambda t: t.double(), recurse=False) is net
    assert dtype(net.gain) == dtype(net.offset) == "float64"
    assert dtype(net.head.weight) == dtype(net.body.scale) == "float32"


def test_child_apply_is_called_with_one_argument(impl):
    calls = []

    class Own(impl.nn.Module):
        def _apply(self, *args, **kwargs):
            calls.append((args, kwargs))

    root = impl.nn.Sequential(Own())
    fn = lambda t: t  # noqa: E731
    assert root._apply(fn) is root
    assert root._apply(fn, True) is root
    assert calls == [((fn,), {})] * 2


def test_child_apply_may_be_an_instance_attribute(impl):
    root = impl.nn.Sequential(impl.nn.Identity())
    calls = []
    root[0]._apply = calls.append
    fn = lambda t: t  # noqa: E731
    root._apply(fn)
    assert calls == [fn]


def test_override_that_calls_super(impl):
    order = []

    class Own(impl.nn.Module):
        def _apply(self, fn, recurse=True):
            order.append("before")
            out = super()._apply(fn, recurse)
            order.append("after")
            return out

    child = Own()
    child.w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    root = impl.nn.Sequential(child)
    root.double()
    assert order == ["before", "after"]
    assert dtype(child.w) == "float64"


def test_uses_overridden_children(impl):
    class Hidden(impl.nn.Module):
        def children(self):
            return iter(())

    root = Hidden()
    root.child = leaf(impl, "w")
    root.double()
    assert dtype(root.child.w) == "float32"


def test_fn_runs_per_registration(impl):
    m, other = leaf(impl, "a"), impl.nn.Module()
    m.b = m.a
    other.c = m.a
    m.child = other
    m._apply(lambda t: t * 2)
    assert m.a is m.b is m.child.c
    assert values(m.a) == [8.0, 16.0]


def test_nothing_is_rolled_back(impl):
    m = leaf(impl, "a", "b")

    def fn(t):
        if t is m.b:
            raise ValueError("no")
        return t.double()

    with raises(ValueError, "no"):
        m._apply(fn)
    assert dtype(m.a) == "float64"
    assert dtype(m.b) == "float32"


def test_registry_changed_by_fn_is_an_error(impl):
    m = leaf(impl, "a", "b")

    def fn(t):
        m._parameters["new" + str(len(m._parameters))] = None
        return t

    with raises(RuntimeError, "changed size during iteration"):
        m._apply(fn)


def test_cycle_is_a_recursion_error(impl):
    a = leaf(impl, "w")
    a.again = a
    with pytest.raises(RecursionError):
        a._apply(lambda t: t)


def test_parameters_are_mapped_without_recording(impl):
    m = leaf(impl, "a")
    m.register_buffer("b", impl.lib.tensor([1.0]))
    m.a.grad = impl.lib.tensor([1.0, 1.0])
    modes = []
    m._apply(lambda t: modes.append(impl.lib.is_grad_enabled()) or t)
    assert modes == [False, False, True]


# -- _apply: same object, new storage ------------------------------------------------------------


def test_conversion_keeps_the_parameter_object(impl):
    m = leaf(impl, "w")
    w = m.w
    w.note = "kept"
    m._apply(lambda t: t.double())
    assert m.w is w
    assert w.note == "kept"
    assert dtype(w) == "float64"
    assert w.requires_grad
    assert type(w) is parameter_type(impl)
    assert values(w) == [1.0, 2.0]


def test_conversion_may_change_the_shape(impl):
    m = leaf(impl, "w")
    w = m.w
    m._apply(lambda t: impl.lib.ones(3))
    assert m.w is w
    assert values(w) == [1.0, 1.0, 1.0]


def test_conversion_keeps_the_gradient_object(impl):
    m = leaf(impl, "w")
    grad = m.w.grad = impl.lib.tensor([5.0, 6.0])
    m.double()
    assert m.w.grad is grad
    assert dtype(grad) == "float64"
    assert values(grad) == [5.0, 6.0]


def test_frozen_parameter_stays_frozen(impl):
    m = leaf(impl, "w")
    m.w.requires_grad_(False)
    m.double()
    assert m.w.requires_grad is False


def test_ties_survive_a_conversion(impl):
    m = leaf(impl, "a")
    m.child = impl.nn.Module()
    m.child.b = m.a
    m.double()
    assert m.child.b is m.a
    assert dtype(m.a) == "float64"


# -- _apply: replacement -------------------------------------------------------------------------


def test_move_to_meta_replaces_the_parameter(impl):
    m = leaf(impl, "a", "b")
    old = m.a
    old.note = "lost"
    old.requires_grad_(False)
    m.to("meta")
    assert m.a is not old
    assert type(m.a) is parameter_type(impl)
    assert m.a.is_meta and not old.is_meta
    assert m.a.requires_grad is False and m.b.requires_grad is True
    assert not hasattr(m.a, "note")
    assert list(m._parameters) == ["a", "b"]
    assert values(old) == [1.0, 2.0]


def test_only_a_parameter_can_be_replaced(impl):
    m = impl.nn.Module()
    tensor = m._parameters["x"] = impl.lib.ones(2)
    with raises(AssertionError, "param must be a Parameter"):
        m.to("meta")
    assert m.x is tensor
    m.double()  # in place
    assert m.x is tensor and dtype(tensor) == "float64"


def test_only_a_leaf_can_be_replaced(impl):
    m = leaf(impl, "w")
    m.w.requires_grad_(False).mul_(impl.lib.ones(2, requires_grad=True))
    with quiet(), raises(AssertionError, "param must be a leaf tensor"):
        m.to("meta")


def test_replacement_makes_a_new_gradient(impl):
    m = leaf(impl, "w")
    old = m.w
    grad = old.grad = impl.lib.tensor([5.0, 6.0])
    m.to("meta")
    assert old.grad is grad and not grad.is_meta
    assert m.w.grad is not grad
    assert m.w.grad.is_meta
    assert m.w.grad.requires_grad is False


def test_replacement_breaks_ties(impl):
    m = leaf(impl, "a")
    m.b = m.a
    m.to("meta")
    assert m.a is not m.b


def test_overwrite_flag_replaces_even_an_unchanged_tensor(impl):
    m = leaf(impl, "w")
    old = m.w
    with overwrite_mode(impl):
        m._apply(lambda t: t)
    assert m.w is not old
    assert type(m.w) is parameter_type(impl)
    assert values(m.w) == [1.0, 2.0]
    assert m.w.requires_grad


def test_overwrite_flag_replaces_the_gradient(impl):
    m = leaf(impl, "w")
    old = m.w
    grad = old.grad = impl.lib.tensor([5.0, 6.0])
    with overwrite_mode(impl):
        m.double()
    assert dtype(old) == "float32" and old.grad is grad and dtype(grad) == "float32"
    assert dtype(m.w) == "float64"
    assert m.w.grad is not grad and dtype(m.w.grad) == "float64"


def test_overwrite_flag_breaks_ties(impl):
    m = leaf(impl, "a")
    m.b = m.a
    with overwrite_mode(impl):
        m.double()
    assert m.a is not m.b


def test_replacement_runs_no_registration_hook(impl):
    m = leaf(impl, "w")
    m.register_buffer("b", impl.lib.tensor([1.0]))
    fired = []
    hooks = [
        impl.module.register_module_parameter_registration_hook(lambda *a: fired.append(a)),
        impl.module.register_module_buffer_registration_hook(lambda *a: fired.append(a)),
    ]
    try:
        m.to("meta")
    finally:
        for h in hooks:
            h.remove()
    assert fired == []


# -- _apply: swap mode ---------------------------------------------------------------------------


def test_swap_mode_keeps_identity_across_devices(impl):
    m = leaf(impl, "a")
    m.b = m.a
    old = m.a
    old.requires_grad_(False)
    with swap_mode(impl):
        m.to("meta")
    assert m.a is m.b is old
    assert old.is_meta
    assert old.requires_grad is False


def test_swap_mode_wins_over_overwrite_mode(impl):
    m = leaf(impl, "w")
    old = m.w
    with swap_mode(impl), overwrite_mode(impl):
        m.double()
    assert m.w is old
    assert dtype(old) == "float64"


def test_swap_mode_swaps_the_gradient(impl):
    m = leaf(impl, "w")
    m.w.grad = impl.lib.tensor([5.0, 6.0])
    with swap_mode(impl):
        m.double()
    assert dtype(m.w.grad) == "float64"
    assert values(m.w.grad) == [5.0, 6.0]


def test_swap_mode_keeps_a_gradient_that_does_not_change(impl):
    m = leaf(impl, "w")
    grad = m.w.grad = impl.lib.tensor([5.0, 6.0])
    with swap_mode(impl):
        m.float()
    assert m.w.grad is grad
    assert values(grad) == [5.0, 6.0]


def test_swap_mode_makes_a_parameter_of_a_plain_tensor(impl):
    m = impl.nn.Module()
    tensor = m._parameters["x"] = impl.lib.ones(2)
    with swap_mode(impl):
        m.double()
    assert m.x is tensor and type(tensor) is parameter_type(impl)
    assert dtype(tensor) == "float64"


def test_swap_mode_drops_attributes(impl):
    m = leaf(impl, "w")
    m.w.note = "lost"
    with swap_mode(impl):
        m.double()
    assert not hasattr(m.w, "note")


@pytest.mark.parametrize("mode", [None, overwrite_mode, swap_mode])
def test_a_parameter_and_its_gradient_are_converted_both_or_neither(impl, mode):
    if impl.is_torch:
        pytest.skip("torch has converted the parameter by then")
    m = leaf(impl, "w")
    w, m.w.grad = m.w, impl.lib.ones(2)
    grad = w.grad
    calls = []

    def half(tensor):
        calls.append(tensor)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return tensor.double()

    with mode(impl) if mode else quiet(), raises(KeyboardInterrupt):
        m._apply(half)
    assert calls[0] is w and calls[1] is grad
    assert m.w is w and w.grad is grad
    assert dtype(w) == dtype(grad) == "float32" and values(w) == [1.0, 2.0]


# -- _apply: buffers -----------------------------------------------------------------------------


def test_buffer_is_replaced_by_whatever_fn_returns(impl):
    m = impl.nn.Module()
    m.register_buffer("a", impl.lib.tensor([1.0]))
    m.register_buffer("none", None)
    m.register_buffer("b", impl.lib.tensor([2.0]), persistent=False)
    marker = object()
    m._apply(lambda t: marker)
    assert m.a is m.b is marker
    assert m.none is None
    assert list(m._buffers) == ["a", "none", "b"]
    assert m._non_persistent_buffers_set == {"b"}


def test_unchanged_buffer_stays_the_same_object(impl):
    m = impl.nn.Module()
    m.register_buffer("a", impl.lib.tensor([1.0]))
    a = m.a
    m.float()
    assert m.a is a


def test_conversion_unties_buffers(impl):
    m = impl.nn.Module()
    m.register_buffer("a", impl.lib.tensor([1.0]))
    m.register_buffer("b", m.a)
    m.double()
    assert m.a is not m.b


def test_buffer_mark_is_lost_but_the_registration_stays(impl):
    m = impl.nn.Module()
    m.a = impl.nn.Buffer(impl.lib.tensor([1.0]), persistent=False)
    assert isinstance(m.a, impl.nn.Buffer)
    m.double()
    assert not isinstance(m.a, impl.nn.Buffer)
    assert list(m._buffers) == ["a"]
    assert "a" in m._non_persistent_buffers_set


# -- preserve_ties -------------------------------------------------------------------------------


def test_ties_can_be_kept_for_any_function(ours):
    from modtree import _C

    m = leaf(ours, "a")
    m.b = m.a
    m.child = ours.nn.Module()
    m.child.c = m.a
    m._apply(_C.KeepTies(lambda t: t * 2))
    assert m.a is m.b is m.child.c
    assert values(m.a) == [2.0, 4.0]


def test_preserve_ties_keeps_ties_through_to_empty(ours):
    m = leaf(ours, "a")
    m.child = ours.nn.Module()
    m.child.b = m.a
    m.register_buffer("x", ours.lib.tensor([1.0]))
    m.child.register_buffer("y", m.x)
    m.to("meta", preserve_ties=True)
    assert m.a is m.child.b and m.a.is_meta
    assert m.x is m.child.y and m.x.is_meta
    m.to_empty(device="cpu", preserve_ties=True)
    assert m.a is m.child.b and not m.a.is_meta
    assert m.x is m.child.y and not m.x.is_meta


def test_preserve_ties_keeps_tied_buffers_in_a_cast(ours):
    m = ours.nn.Module()
    m.register_buffer("a", ours.lib.tensor([1.0]))
    m.register_buffer("b", m.a)
    m.to(ours.lib.float64, preserve_ties=True)
    assert m.a is m.b
    assert dtype(m.a) == "float64"


# -- _apply: wrong results -----------------------------------------------------------------------


@pytest.mark.parametrize("result", ["x", None, 3], ids=repr)
def test_parameter_must_be_mapped_to_a_tensor(impl, result):
    m = leaf(impl, "w")
    w = m.w
    with raises(TypeError):
        m._apply(lambda t: result)
    assert m.w is w
    assert values(w) == [1.0, 2.0]


def test_fn_that_cannot_be_called(impl):
    with raises(TypeError, "not callable"):
        leaf(impl, "w")._apply(None)


def test_swapping_a_gradient_that_two_parameters_hold(impl):
    m, other = leaf(impl, "w"), impl.nn.Parameter(impl.lib.ones(2))
    m.w.grad = other.grad = impl.lib.ones(2)
    with swap_mode(impl):
        if impl.leaves == "torch":
            with raises(RuntimeError, "_apply(): Couldn't swap Module.w.grad"):
                m.double()
        else:
            m.double()
            assert dtype(m.w.grad) == dtype(other.grad) == "float64"
