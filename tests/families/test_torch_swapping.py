# SPDX-License-Identifier: BSD-3-Clause
"""The switches of ``torch.__future__`` and ``modtree.__future__`` on torch tensors as leaves."""

from __future__ import annotations

from importlib import import_module

import pytest
from helpers.support import raises

torch = pytest.importorskip("torch")

from helpers.torch_models import both  # noqa: E402

from modtree import nn as mnn  # noqa: E402


def future(kit):
    return import_module("torch.__future__" if kit.is_torch else "modtree.__future__")


def test_swap_mode(kit):
    net = kit.Net()
    weight, grad_flag = net.first.weight, net.first.weight.requires_grad
    state = kit.Net().state_dict()
    future(kit).set_swap_module_params_on_conversion(True)
    try:
        net.double()
        assert net.first.weight is weight and weight.dtype is torch.float64
        assert weight.requires_grad is grad_flag
        net.load_state_dict(state)
        assert net.first.weight is weight
        assert torch.equal(weight, state["first.weight"].double())
    finally:
        future(kit).set_swap_module_params_on_conversion(False)


def test_overwrite_mode(kit):
    net = kit.Net()
    weight = net.first.weight
    future(kit).set_overwrite_module_params_on_conversion(True)
    try:
        net.double()
    finally:
        future(kit).set_overwrite_module_params_on_conversion(False)
    assert net.first.weight is not weight and weight.dtype is torch.float32
    assert type(net.first.weight) is torch.nn.Parameter


@pytest.mark.parametrize("home", ["torch.__future__", "modtree.__future__"])
def test_swap_mode_while_the_graph_of_the_loss_lives(kit, home):
    if kit.is_torch and home == "modtree.__future__":
        pytest.skip("torch has its own switch only")
    net = kit.Net()
    loss = sum((2 * p).sum() for p in net.parameters())  # its graph holds the old contents
    loss.backward(retain_graph=True)
    weight, grad = net.first.weight, net.first.weight.grad
    values = grad.clone()
    import_module(home).set_swap_module_params_on_conversion(True)
    try:
        net.double()
    finally:
        import_module(home).set_swap_module_params_on_conversion(False)
    assert net.first.weight is weight and weight.grad is grad
    assert weight.dtype is grad.dtype is torch.float64
    assert torch.equal(grad, values.double())


def test_switches_of_torch_hold_for_its_tensors_alone():
    tree = both()
    old_a, old_b = tree.a, tree.b
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        tree.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert tree.a is not old_a and old_a.dtype is torch.float32
    assert tree.b is old_b and str(old_b.dtype).endswith("float64")


def test_a_load_sees_the_switch_of_torch(kit):
    net = kit.Net()
    weight = net.first.weight
    state = kit.Net().state_dict()
    seen = []

    class Loaded(torch.Tensor):
        def module_load(self, other, assign=False):
            seen.append(other)
            return other.detach().clone()

    net.first.weight = torch.nn.Parameter(weight.detach().as_subclass(Loaded))
    weight = net.first.weight
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.load_state_dict(state)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net.first.weight is weight and len(seen) == 1
    assert torch.equal(weight, state["first.weight"])


@pytest.mark.parametrize("what", ["parameter", "gradient"])
def test_a_swap_that_fails_leaves_parameter_and_gradient(what):
    import weakref

    net = mnn.Module()
    net.w = torch.nn.Parameter(torch.ones(2))
    net.w.grad = grad = torch.full((2,), 3.0)
    weight = net.w
    held = weakref.ref(weight if what == "parameter" else grad)  # torch swaps no such tensor
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with raises(RuntimeError, "Couldn't swap Module.w"):
            net.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert held() is not None
    assert net.w is weight and weight.grad is grad
    assert weight.dtype is grad.dtype is torch.float32
    assert weight.tolist() == [1, 1] and grad.tolist() == [3, 3]
