# SPDX-License-Identifier: BSD-3-Clause
"""Backward hooks: full ones, those before them, the legacy ones, and how they mix."""

from __future__ import annotations

import collections
import contextlib

import pytest
from helpers.support import quiet, raises, warns


@pytest.fixture
def scope():
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


def scale(impl, factor=3.0):
    """A module with one parameter: ``x * w``."""

    class Scale(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = impl.nn.Parameter(impl.lib.tensor(factor))

        def forward(self, x):
            return x * self.w

    return Scale()


def leaf_input(impl, *numbers):
    return impl.lib.tensor(list(numbers), requires_grad=True)


def lists(grads):
    return tuple(None if g is None else g.tolist() for g in grads)


# -- full hooks ------------------------------------------------------------------------------------


def test_full_hook_sees_gradients_of_inputs_and_outputs(impl):
    m = scale(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((m, lists(gi), lists(go))))
    x = leaf_input(impl, 1.0, 2.0)
    (m(x) * 10).sum().backward()
    assert seen == [(m, ([30.0, 30.0],), ([10.0, 10.0],))]
    assert x.grad.tolist() == [30.0, 30.0]
    assert m.w.grad.item() == 30.0


def test_full_hook_replaces_the_input_gradients(impl):
    m = scale(impl)
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0 + 7,))
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] + 1,))
    x = leaf_input(impl, 1.0)
    m(x).sum().backward()
    assert x.grad.tolist() == [8.0]
    assert m.w.grad.item() == 1.0


def test_pre_hook_replaces_the_output_gradients(impl):
    m = scale(impl)
    seen = []
    m.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    m.register_full_backward_pre_hook(lambda m, go: seen.append(lists(go)))
    x = leaf_input(impl, 1.0)
    m(x).sum().backward()
    assert seen == [([2.0],)]
    assert x.grad.tolist() == [6.0]
    assert m.w.grad.item() == 2.0


def test_order_of_full_hooks(impl, scope):
    m = scale(impl)
    order = []

    def note(name):
        return lambda *a: order.append(name)

    m.register_full_backward_hook(note("a"))
    m.register_full_backward_hook(note("b"), prepend=True)
    m.register_full_backward_hook(note("c"), True)
    m.register_full_backward_pre_hook(note("pre a"))
    m.register_full_backward_pre_hook(note("pre b"), prepend=True)
    scope(impl.module.register_module_full_backward_hook(note("global")))
    scope(impl.module.register_module_full_backward_pre_hook(note("global pre")))
    m(leaf_input(impl, 1.0)).sum().backward()
    assert order == ["global pre", "pre b", "pre a", "global", "c", "b", "a"]


def test_nested_modules_run_from_the_output(impl):
    inner = scale(impl)
    outer = impl.nn.Sequential(inner, scale(impl))
    order = []
    for name, m in outer.named_modules():
        m.register_full_backward_pre_hook(lambda *a, name=name: order.append("pre " + name))
        m.register_full_backward_hook(lambda *a, name=name: order.append("full " + name))
    outer(leaf_input(impl, 1.0)).sum().backward()
    assert order == ["pre ", "pre 1", "full 1", "pre 0", "full 0", "full "]


def test_missing_output_gradients_are_none(impl):
    class Two(impl.nn.Module):
        def forward(self, x):
            return x * 2, "text", x * 3

    m = Two()
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((lists(gi), lists(go))))
    x = leaf_input(impl, 1.0)
    out = m(x)
    assert type(out) is tuple and out[1] == "text"
    out[0].sum().backward()
    assert seen == [(([2.0],), ([1.0], None, None))]


def test_inputs_that_are_no_tensors(impl):
    class Mixed(impl.nn.Module):
        def forward(self, n, x, y, k=None):
            return n * x + y + k

    m = Mixed()
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(lists(gi)))
    x, y, k = leaf_input(impl, 1.0), impl.lib.tensor([1.0]), leaf_input(impl, 1.0)
    m(4, x, y, k=k).sum().backward()
    assert seen == [(None, [4.0], [0.0])]
    assert k.grad.tolist() == [1.0]


def test_named_tuple_outputs_keep_their_type(impl):
    Pair = collections.namedtuple("Pair", "a b")

    class Makes(impl.nn.Module):
        def forward(self, x):
            return Pair(x * 2, x * 3)

    m = Makes()
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(lists(go)))
    out = m(leaf_input(impl, 1.0))
    assert type(out) is Pair
    (out.a + out.b).sum().backward()
    assert seen == [([1.0], [1.0])]


def test_tensors_become_new_objects_only_when_gradients_are_wanted(impl):
    seen = []

    class Sees(impl.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x

    m = Sees()
    m.register_full_backward_hook(lambda *a: None)
    x, constant = leaf_input(impl, 1.0), impl.lib.tensor([1.0])
    m(x)
    m(constant)
    with impl.lib.no_grad():
        m(x)
    assert seen[0] is not x
    assert seen[1] is constant
    assert seen[2] is x


@pytest.mark.parametrize("kind", ["pre", "full"])
def test_wrong_number_of_gradients(impl, kind):
    m = scale(impl)
    if kind == "pre":
        m.register_full_backward_pre_hook(lambda m, go: (go[0], go[0]))
        text = "Backward pre hook returned an invalid number of grad_output, got 2, but expected 1"
    else:
        m.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
        text = "Backward hook returned an invalid number of grad_input, got 2, but expected 1"
    out = m(leaf_input(impl, 1.0)).sum()
    with raises(RuntimeError, text):
        out.backward()


def test_no_input_requires_gradients(impl):
    m = scale(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((gi, lists(go))))
    out = m(impl.lib.tensor([1.0])).sum()
    with warns(UserWarning, "Full backward hook is firing when gradients are computed with"):
        out.backward()
    assert seen == [((None,), ([1.0],))]
    assert m.w.grad.item() == 1.0


def test_no_input_requires_gradients_and_the_hook_returns_some(impl):
    m = scale(impl)
    m.register_full_backward_hook(lambda m, gi, go: (go[0],))
    out = m(impl.lib.tensor([1.0])).sum()
    with quiet(), raises(RuntimeError, "should always return None or None for all gradients"):
        out.backward()


def test_keyword_inputs_only(impl):
    m = scale(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((gi, lists(go))))
    out = m(x=leaf_input(impl, 1.0)).sum()
    with quiet():
        out.backward()
    assert seen == [((), ([1.0],))]


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_other_outputs_warn_and_fire_nothing(impl, kind):
    class Makes(impl.nn.Module):
        def forward(self, x):
            return {"a": x * 2} if kind == "dict" else [x * 2]

    m = Makes()
    fired = []
    m.register_full_backward_hook(lambda *a: fired.append(1))
    x = leaf_input(impl, 1.0)
    with warns(UserWarning, "module output should be a Tensor or a tuple of Tensors but received"):
        out = m(x)
    out["a" if kind == "dict" else 0].sum().backward()
    assert fired == []
    assert x.grad.tolist() == [2.0]


def test_forward_hooks_come_before_the_output_tap(impl):
    m = scale(impl)
    seen = []
    m.register_forward_hook(lambda m, a, out: out * 5)
    m.register_full_backward_hook(lambda m, gi, go: seen.append((lists(gi), lists(go))))
    m(leaf_input(impl, 1.0)).sum().backward()
    assert seen == [(([15.0],), ([1.0],))]


def test_inplace_change_of_a_tapped_output(impl):
    m = scale(impl)
    m.register_full_backward_hook(lambda *a: None)
    out = m(leaf_input(impl, 1.0))
    with raises(RuntimeError, "is a view and is being modified inplace"):
        out += 1


def test_hooks_removed_before_backward_still_fire_in_it(impl):
    m = scale(impl)
    fired = []
    handle = m.register_full_backward_hook(lambda *a: fired.append(1))
    out = m(leaf_input(impl, 1.0)).sum()
    handle.remove()
    out.backward()
    assert fired == [1]
    m(leaf_input(impl, 1.0)).sum().backward()
    assert fired == [1]


def test_backward_hook_added_by_a_pre_hook_misses_this_call(impl):
    m = scale(impl)
    fired = []

    def adds(module, args):
        if not m._backward_hooks:
            m.register_full_backward_hook(lambda *a: fired.append(1))

    m.register_forward_pre_hook(adds)
    m(leaf_input(impl, 1.0)).sum().backward()
    assert fired == []
    m(leaf_input(impl, 1.0)).sum().backward()
    assert fired == [1]


def test_two_backward_passes(impl):
    m = scale(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(lists(go)))
    out = m(leaf_input(impl, 1.0)).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert seen == [([1.0],)] * 2


# -- legacy hooks and mixing -----------------------------------------------------------------------


def test_legacy_hook_sees_the_gradients_of_the_last_node(impl):
    m = scale(impl)
    seen = []
    m.register_backward_hook(lambda m, gi, go: seen.append((m, lists(gi), lists(go))))
    with quiet():  # of several nodes
        m(leaf_input(impl, 2.0)).sum().backward()
    assert seen == [(m, ([3.0], 2.0), ([1.0],))]


def test_legacy_hook_replaces_gradients(impl):
    m = scale(impl)
    m.register_backward_hook(lambda m, gi, go: (gi[0] * 2, gi[1]))
    x = leaf_input(impl, 2.0)
    with quiet():  # of several nodes
        m(x).sum().backward()
    assert x.grad.tolist() == [6.0]


def test_legacy_hook_with_a_dict_output(impl):
    class Makes(impl.nn.Module):
        def forward(self, x):
            return {"n": 1, "a": x * 2}

    m = Makes()
    seen = []
    m.register_backward_hook(lambda m, gi, go: seen.append(lists(go)))
    with warns(FutureWarning, "non-full backward hook"):
        out = m(leaf_input(impl, 1.0))
    out["a"].sum().backward()
    assert seen == [([1.0],)]


def test_phrases_of_the_warnings_for_legacy_hooks(impl):
    """Programs filter by them."""
    warn = impl.nn.Module()._maybe_warn_non_full_backward_hook
    x = impl.lib.ones(2, requires_grad=True)
    y, other = x * 2, x * 3
    cases = [
        ((x,), {}, None, "Using non-full backward hooks on a Module that does not return a "
                         "single Tensor or a tuple of Tensors"),
        ({}, y, None, "Using non-full backward hooks on a Module that does not take as input a "
                      "single Tensor or a tuple of Tensors"),
        ((x,), y, other.grad_fn, "Using a non-full backward hook when outputs are nested in "
                                 "python data structure"),
        ((x,), (y, other), y.grad_fn, "Using a non-full backward hook when outputs are generated "
                                      "by different autograd Nodes"),
        ((y,), other, other.grad_fn, "Using a non-full backward hook when the forward contains "
                                     "multiple autograd Nodes"),
    ]  # fmt: skip
    # Fmt: skip.
    missing = [
        "some of the grad_output",
        "some of the grad_input",
        *["some grad_output"] * 2,
        "some grad_input",
    ]
    for (args, output, node, phrase), lost in zip(cases, missing, strict=True):
        with warns(FutureWarning, f"{phrase} is deprecated") as caught:
            warn(args, output, node)
        assert f"This hook will be missing {lost}." in str(caught[0].message)
        nested = "nested" in phrase
        assert nested or "Please use register_full_backward_hook" in str(caught[0].message)


def test_legacy_hook_warns_of_several_nodes(impl):
    two, three = impl.lib.tensor([2.0]), impl.lib.tensor([3.0])

    class Makes(impl.nn.Module):
        def forward(self, x):
            return (x * two) * three

    m = Makes()
    seen = []
    m.register_backward_hook(lambda m, gi, go: seen.append(lists(gi)))
    x = leaf_input(impl, 1.0)
    with warns(FutureWarning, "non-full backward hook"):
        out = m(x)
    out.sum().backward()
    assert seen == [([3.0], None)]


def test_numbers_have_a_place_in_the_gradients_of_a_node(impl):
    class Makes(impl.nn.Module):
        def forward(self, x):
            return x * 2

    m = Makes()
    seen = []
    m.register_backward_hook(lambda m, gi, go: seen.append(lists(gi)))
    with quiet():
        m(leaf_input(impl, 1.0)).sum().backward()
    assert seen == [([2.0], None)]


def test_kinds_exclude_each_other_on_one_module(impl):
    text = "Cannot use both regular backward hooks and full backward hooks on a single Module"
    m = scale(impl)
    m.register_full_backward_hook(lambda *a: None)
    assert m._is_full_backward_hook is True
    with raises(RuntimeError, text):
        m.register_backward_hook(lambda *a: None)
    m = scale(impl)
    m.register_backward_hook(lambda *a: None)
    assert m._is_full_backward_hook is False
    with raises(RuntimeError, text):
        m.register_full_backward_hook(lambda *a: None)
    m.register_full_backward_pre_hook(lambda *a: None)


def test_global_full_and_local_legacy_hooks(impl, scope):
    m = scale(impl)
    fired = []
    scope(impl.module.register_module_full_backward_hook(lambda *a: fired.append("full")))
    m.register_backward_hook(lambda *a: fired.append("legacy"))
    with quiet():
        m(leaf_input(impl, 1.0)).sum().backward()
    assert sorted(fired) == ["full", "legacy"]


def test_get_backward_hooks(impl, scope):
    def a(*args):
        return None

    def b(*args):
        return None

    m = scale(impl)
    assert m._get_backward_hooks() == ([], [])
    lacking = impl.nn.Module()
    del lacking._backward_hooks
    assert lacking._get_backward_hooks() == ([], [])
    assert m._get_backward_pre_hooks() == []
    m.register_full_backward_hook(a)
    m.register_full_backward_pre_hook(a)
    scope(impl.module.register_module_full_backward_hook(b))
    scope(impl.module.register_module_full_backward_pre_hook(b))
    assert m._get_backward_hooks() == ([b, a], [])
    assert m._get_backward_pre_hooks() == [b, a]
    legacy = scale(impl)
    legacy.register_backward_hook(a)
    assert legacy._get_backward_hooks() == ([b], [a])


# -- better than torch -----------------------------------------------------------------------------


def ours_only(impl):
    if impl.is_torch:
        pytest.skip("torch does it differently")


@pytest.mark.parametrize("output", ["text", 3, {}, []], ids=repr)
def test_legacy_hook_with_an_output_without_tensors_is_skipped(impl, output):
    ours_only(impl)

    class Makes(impl.nn.Module):
        def forward(self, x):
            return output

    m = Makes()
    fired = []
    m.register_backward_hook(lambda *a: fired.append(1))
    with pytest.warns(Warning, match="non-full backward hook"):
        assert m(leaf_input(impl, 1.0)) is output
    assert fired == []


def test_kind_may_change_once_all_hooks_are_removed(impl):
    ours_only(impl)
    m = scale(impl)
    m.register_full_backward_hook(lambda *a: None).remove()
    fired = []
    m.register_backward_hook(lambda *a: fired.append(1)).remove()
    m.register_full_backward_hook(lambda *a: fired.append(2))
    m(leaf_input(impl, 1.0)).sum().backward()
    assert fired == [2]


def test_global_kind_may_change_once_all_hooks_are_removed(impl):
    ours_only(impl)
    g = impl.module
    g.register_module_full_backward_hook(lambda *a: None).remove()
    g.register_module_backward_hook(lambda *a: None).remove()
    g.register_module_full_backward_hook(lambda *a: None).remove()
