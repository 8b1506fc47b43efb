# SPDX-License-Identifier: BSD-3-Clause
"""``train``, ``eval`` and ``requires_grad_``."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.support import leaf, raises, tree


def modes(module):
    return {name: m.training for name, m in module.named_modules()}


def test_modules_start_in_training_mode(impl):
    assert set(modes(tree(impl)).values()) == {True}


def test_eval_and_train_reach_the_whole_tree(impl):
    net = tree(impl)
    assert net.eval() is net
    assert set(modes(net).values()) == {False}
    assert net.train() is net
    assert set(modes(net).values()) == {True}
    assert net.train(mode=False) is net
    assert set(modes(net).values()) == {False}


def test_only_the_subtree_changes(impl):
    net = tree(impl)
    net.body.eval()
    assert modes(net) == {
        "": True,
        **{"body": False, "body.first": False, "body.second": False},
        "head": True,
    }


@pytest.mark.parametrize(
    "mode", [1, 0, None, "train", np.True_], ids=["one", "zero", "none", "text", "numpy bool"]
)
def test_mode_must_be_a_bool(impl, mode):
    net = tree(impl)
    with raises(ValueError, "training mode is expected to be boolean"):
        net.train(mode)
    assert set(modes(net).values()) == {True}


def test_mode_may_not_be_a_tensor(impl):
    with raises(ValueError, "training mode is expected to be boolean"):
        tree(impl).train(impl.lib.tensor(True))


def test_module_comes_before_its_children(impl):
    order = []

    class Own(impl.nn.Module):
        def __setattr__(self, name, value):
            if name == "training":
                order.append((type(self).__name__, value))
            super().__setattr__(name, value)

    class Child(Own):
        pass

    root = Own()
    root.a, root.b = Child(), Child()
    order.clear()
    root.eval()
    assert order == [("Own", False), ("Child", False), ("Child", False)]


def test_child_train_is_called_positionally(impl):
    calls = []

    class Own(impl.nn.Module):
        def train(self, *args, **kwargs):
            calls.append((args, kwargs))
            return "ignored"

    root = impl.nn.Sequential(Own())
    assert root.eval() is root
    assert root.train() is root
    assert calls == [((False,), {}), ((True,), {})]
    assert root[0].training is True


def test_eval_uses_an_overridden_train(impl):
    class Frozen(impl.nn.Module):
        def train(self, mode=True):
            return super().train(False)

    root = impl.nn.Sequential(Frozen(), impl.nn.Identity())
    root.train()
    assert modes(root) == {"": True, "0": False, "1": True}

    class Own(impl.nn.Module):
        def train(self, mode=True):
            return ("train", mode)

    assert Own().eval() == ("train", False)


def test_child_eval_is_not_called(impl):
    class Own(impl.nn.Module):
        def eval(self):
            raise AssertionError("not used by the parent")

    root = impl.nn.Sequential(Own())
    root.eval()
    assert root[0].training is False


def test_train_as_an_instance_attribute(impl):
    root = impl.nn.Sequential(impl.nn.Identity())
    calls = []
    root[0].train = calls.append
    root.eval()
    assert calls == [False]
    assert root[0].training is True


def test_train_uses_overridden_children(impl):
    class Hidden(impl.nn.Module):
        def children(self):
            return iter(())

    root = Hidden()
    root.child = impl.nn.Identity()
    root.eval()
    assert root.training is False and root.child.training is True


def test_training_is_an_ordinary_attribute(impl):
    m = impl.nn.Module()
    m.training = "anything"
    assert m.training == "anything"
    assert m.__dict__["training"] == "anything"
    del m.training
    with raises(AttributeError, "training"):
        _ = m.training
    m.eval()
    assert m.training is False


def test_training_taken_by_a_parameter(impl):
    m = impl.nn.Module()
    m.training = impl.nn.Parameter(impl.lib.tensor([1.0]))
    with raises(TypeError, "cannot assign", "training"):
        m.train()


def test_train_skips_none_children(impl):
    net = tree(impl)
    assert net.body.gone is None
    net.eval()
    assert net.body.second.training is False


def test_train_on_a_cycle_is_a_recursion_error(impl):
    a = impl.nn.Module()
    a.again = a
    with pytest.raises(RecursionError):
        a.train()


# -- requires_grad_ ------------------------------------------------------------------------------


def test_requires_grad_sets_every_parameter(impl):
    net = tree(impl)
    assert net.requires_grad_(False) is net
    assert {p.requires_grad for p in net.parameters()} == {False}
    assert net.requires_grad_() is net
    assert {p.requires_grad for p in net.parameters()} == {True}
    assert {b.requires_grad for b in net.buffers()} == {False}
    net.body.requires_grad_(requires_grad=False)
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == [
        "body.scale",
        "body.first.weight",
        "body.second.weight",
    ]


def test_requires_grad_looks_at_its_argument_where_there_is_a_parameter(impl):
    m = impl.nn.Module()
    assert m.requires_grad_(None) is m
    m.w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    for flag in (None, "yes"):
        with raises(TypeError, "must be bool, not"):
            m.requires_grad_(flag)
    assert m.w.requires_grad is True


def test_requires_grad_uses_overridden_parameters(impl):
    class Own(impl.nn.Module):
        def parameters(self, recurse=True):
            return iter([self.a])

    m = Own()
    m.a = impl.nn.Parameter(impl.lib.tensor([1.0]))
    m.b = impl.nn.Parameter(impl.lib.tensor([1.0]))
    m.requires_grad_(False)
    assert (m.a.requires_grad, m.b.requires_grad) == (False, True)


def test_requires_grad_does_not_use_the_children(impl):
    class Own(impl.nn.Module):
        def requires_grad_(self, flag=True):
            raise AssertionError("not used by the parent")

    root = impl.nn.Module()
    root.child = Own()
    root.child.w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    root.requires_grad_(False)
    assert root.child.w.requires_grad is False


def test_integer_parameters_cannot_require_gradients(impl):
    m = impl.nn.Module()
    m.w = impl.nn.Parameter(impl.lib.tensor([1, 2]), requires_grad=False)
    with raises(RuntimeError, "only Tensors of floating point dtype can require gradients"):
        m.requires_grad_()
    m.requires_grad_(False)


@pytest.mark.parametrize("flag", [1, "x", None], ids=repr)
def test_flag_must_be_a_bool(impl, flag):
    m = leaf(impl, "w")
    with raises(TypeError, "bool"):
        m.requires_grad_(flag)
    assert m.w.requires_grad is True
