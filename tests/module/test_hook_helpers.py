# SPDX-License-Identifier: BSD-3-Clause
"""The Python half of hooks: wrapped hooks, taps of backward hooks, legacy hooks on graph nodes."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import warnings
from collections import OrderedDict, namedtuple

import pytest
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.support import quiet, raises, warns

import modtree as mt
from modtree.core import hooks

if HAS_TORCH:
    import torch


def wrapped_hook_classes():
    classes = [pytest.param(hooks.WrappedHook, id="modtree")]
    if HAS_TORCH:
        from torch.nn.modules.module import _WrappedHook

        classes.append(pytest.param(_WrappedHook, id="torch"))
    return classes


class Owner:
    """Stands for a module: something that can be weakly referenced and copied."""

    def method(self, *args):
        return self, args


def plain(*args, **kwargs):
    """Says what it does."""
    return args, kwargs


plain.note = "attribute"


# -- WrappedHook -----------------------------------------------------------------------------------


@pytest.fixture(params=wrapped_hook_classes())
def Wrapped(request):
    return request.param


def test_wrapped_hook_looks_like_its_function(Wrapped):
    w = Wrapped(plain)
    assert w.__wrapped__ is plain and w.__name__ == "plain" and w.__doc__ == plain.__doc__
    assert w.note == "attribute"
    assert w.hook is plain and w.with_module is False
    assert w(1, k=2) == ((1,), {"k": 2})


def test_wrapped_hook_of_a_callable_without_a_name(Wrapped):
    w = Wrapped(functools.partial(plain, 1))
    assert w(2) == ((1, 2), {})


def test_wrapped_hook_passes_its_module_and_does_not_hold_it(Wrapped):
    owner = Owner()
    w = Wrapped(plain, owner)
    assert w(1, k=2) == ((owner, 1), {"k": 2})
    assert w.module() is owner
    del owner
    gc.collect()
    with raises(RuntimeError, "hook of a dead Module"):
        w(1)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_wrapped_hook_is_bound_to_the_copy(Wrapped, how):
    def copied(x):
        return copy.deepcopy(x) if how == "deepcopy" else pickle.loads(pickle.dumps(x))

    owner = Owner()
    owner.table = {1: Wrapped(plain, owner), 2: Wrapped(owner.method)}
    other = copied(owner)
    assert other is not owner
    assert other.table[1](5) == ((other, 5), {})
    assert other.table[2](5) == (other, (5,))
    if Wrapped is hooks.WrappedHook:  # torch drops them
        assert other.table[1].__name__ == "plain" and other.table[1].note == "attribute"
    assert owner.table[1](5) == ((owner, 5), {})


def test_wrapped_hook_keeps_its_module_for_a_copy(Wrapped):
    owner = Owner()
    w = copy.copy(Wrapped(plain, owner))
    assert w(1) == ((owner, 1), {})


def test_attributes_of_the_function_do_not_replace_fields():
    def odd():
        return "called"

    odd.hook = odd.with_module = odd.module = "attribute"
    assert hooks.WrappedHook(odd)() == "called"


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_dead_hook_cannot_be_copied(how):
    owner = Owner()
    w = hooks.WrappedHook(plain, owner)
    del owner
    gc.collect()
    with raises(RuntimeError, "hook of a dead Module", "'plain'"):
        how(w)


# -- taps ------------------------------------------------------------------------------------------


def test_values_without_gradients_pass_through():
    fired = []
    args = (mt.tensor([1.0]), 3)
    tap = hooks.make_backward_tap(Owner(), [fired.append], [fired.append], args)
    assert tap.setup_input_hook(args) is args
    out = mt.tensor([2.0])
    assert tap.setup_output_hook(out) is out
    assert fired == []


@pytest.mark.parametrize("output", [3, None, "text", [1], {"a": 1}], ids=repr)
def test_other_outputs_are_warned_of(output):
    tap = hooks.make_backward_tap(Owner(), [plain], [], ())
    assert tap.setup_input_hook(()) == ()
    text = (
        "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
        "but "
        f"received {type(output)}"
    )
    with warns(UserWarning, text):
        assert tap.setup_output_hook(output) is output


@pytest.mark.parametrize("output", [(), (1, "text")], ids=repr)
def test_tuples_are_not_warned_of(output):
    tap = hooks.make_backward_tap(Owner(), [plain], [], ())
    tap.setup_input_hook(())
    assert tap.setup_output_hook(output) is output


def gradients(pairs):
    return [None if g is None else g.tolist() for g in pairs]


@needs_torch
def test_tap_of_torch_tensors():
    owner, seen = Owner(), []

    def full(module, grad_input, grad_output):
        seen.append((module, gradients(grad_input), gradients(grad_output)))

    def pre(module, grad_output):
        seen.append((module, gradients(grad_output)))

    x = torch.tensor([2.0], requires_grad=True)
    args = (mt.tensor([1.0]), x, "text")
    tap = hooks.make_backward_tap(owner, [full], [pre], args)
    first, tapped, text = tap.setup_input_hook(args)
    assert first is args[0] and text == "text" and tapped is not x
    out, rest = tap.setup_output_hook((tapped * 3, 5))
    assert rest == 5
    out.backward()
    assert seen == [(owner, [[1.0], None]), (owner, [None, [3.0], None], [[1.0], None])]
    assert x.grad.tolist() == [3.0]


@needs_torch
@pytest.mark.parametrize("args", [(), (3, mt.tensor([1.0]))], ids=["none", "numpy"])
def test_the_output_decides_when_no_argument_does(args):
    seen = []
    tap = hooks.make_backward_tap(
        Owner(), [lambda m, gi, go: seen.append((gi, gradients(go)))], [], args
    )
    assert tap.setup_input_hook(args) is args
    w = torch.tensor([2.0], requires_grad=True)
    out = tap.setup_output_hook(w * 2)
    with quiet():  # no input requires gradients
        out.backward()
    assert seen == [((None,) * len(args), [[1.0]])]


@needs_torch
def test_named_tuples_keep_their_type():
    Pair = namedtuple("Pair", "a b")
    x = torch.tensor([2.0], requires_grad=True)
    tap = hooks.make_backward_tap(Owner(), [plain], [], (x,))
    (tapped,) = tap.setup_input_hook((x,))
    assert type(tap.setup_output_hook(Pair(tapped * 2, 1))) is Pair


# -- legacy hooks ----------------------------------------------------------------------------------


class Legacy(Owner):
    """A module as far as attaching legacy hooks is concerned."""

    _maybe_warn_non_full_backward_hook = hooks.warn_non_full_backward_hook


def attach(args, output):
    module, seen = Legacy(), []

    def hook(*given):
        seen.append((given[0] is module, gradients(given[1]), gradients(given[2])))

    hooks.attach_legacy_backward_hooks(module, args, output, [hook])
    return module, seen


def cyclic():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "output",
    [3, None, "text", b"text", {}, {"a": 1}, [], (), [["x"]], cyclic(), object()],
    ids=lambda v: "cyclic" if v and v.__class__ is list and v[0] is v else repr(v)[:12],
)
def test_outputs_without_a_tensor(output):
    with warns(UserWarning, "non-full backward hooks of 'Legacy' are not called"):
        attach((), output)


def test_tensors_without_a_graph():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach((), mt.tensor([1.0]))
        attach((), [{"a": mt.tensor([1.0])}])


@needs_torch
@pytest.mark.parametrize("wrap", ["bare", "tuple", "list", "dict", "nested"])
def test_first_tensor_of_the_output(wrap):
    x = torch.tensor([2.0], requires_grad=True)
    y = x * x
    output = {
        "bare": y,
        "tuple": (y, 1),
        "list": [y],
        "dict": OrderedDict(n=1, a=y),
        "nested": [({"a": y},)],
    }[wrap]
    with quiet():
        module, seen = attach((x,), output)
    y.backward()
    assert seen == [(True, [[2.0], [2.0]], [[1.0]])]


@needs_torch
def test_legacy_warnings():
    x = torch.tensor([1.0], requires_grad=True)
    y = x * 1  # a node
    single = y.exp()
    several = y.exp().exp()
    text = "non-full backward hook"
    cases = {
        "does not return a single Tensor": ((y,), {"a": single}),
        "does not take as input a single Tensor": ((y, 3), single),
        "generated by different autograd Nodes": ((y,), (single, y.sin())),
        "contains multiple autograd Nodes": ((y,), several),
    }
    for part, (args, output) in cases.items():
        with warns(FutureWarning, text) as record:
            attach(args, output)
        assert part in str(record[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach((y,), single)
        attach((y,), (single,))
