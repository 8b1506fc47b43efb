# SPDX-License-Identifier: BSD-3-Clause
"""Hooks on what operations save, and on several gradients at once, as in torch."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest


def test_what_is_saved_goes_through_the_hooks(lib):
    seen = []

    def pack(tensor):
        seen.append(tensor.tolist())
        return tensor.tolist()

    def unpack(values):
        seen.append("unpack")
        return lib.tensor(values)

    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = lib.tensor([3.0, 4.0], requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(pack, unpack):
        z = x * y
    assert sorted(seen) == [[1.0, 2.0], [3.0, 4.0]]
    z.sum().backward()
    assert seen.count("unpack") == 2
    assert x.grad.tolist() == [3.0, 4.0]


def test_what_the_hook_gives_back_is_used(lib):
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 10):
        y = x * x.detach()
    y.sum().backward()
    assert x.grad.tolist() == [10.0, 20.0]


def test_saved_results(lib):
    x = lib.tensor([0.0, 1.0], requires_grad=True)
    seen = []
    with lib.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t + 1):
        y = x.exp()
    y.sum().backward()
    assert len(seen) == 1
    np.testing.assert_allclose(x.grad, np.exp([0.0, 1.0]) + 1, rtol=1e-6)


def test_second_derivatives_through_packed_values(lib):
    x = lib.tensor([2.0, 3.0], requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), lib.tensor):
        y = (x * x * x).exp().log()
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()
    np.testing.assert_allclose(x.grad, [12.0, 18.0], rtol=1e-4)


def test_nested_hooks_and_their_end(lib):
    seen = []
    graph = lib.autograd.graph

    def hooks(name):
        return graph.saved_tensors_hooks(lambda t: seen.append(name) or t, lambda t: t)

    x = lib.ones(2, requires_grad=True)
    with hooks("outer"):
        with hooks("inner"):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["inner", "outer"]


def test_what_a_hook_computes_is_not_packed(lib):
    calls = []

    def pack(tensor):
        calls.append(1)
        return (tensor * 2).exp()

    x = lib.ones(2, requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x.exp()
    assert len(calls) == 1


def test_changes_of_what_was_packed_are_the_hooks_affair(lib):
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        z = y * y
    with lib.no_grad():
        y.mul_(0)
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_hook_that_changes_its_input(lib):
    x = lib.ones(2, requires_grad=True)
    with (
        lib.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t),
        pytest.raises(RuntimeError, match="pack hook is modifying its input in place"),
    ):
        (x * 1).exp()


def test_a_hook_that_gives_no_tensor_back(lib):
    x = lib.ones(2, requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        y.sum().backward()


@pytest.mark.parametrize("place", ["pack", "unpack"])
def test_errors_of_hooks(lib, place):
    def fails(value):
        raise KeyError("hook")

    def same(value):
        return value

    x = lib.ones(2, requires_grad=True)
    hooks = (fails, same) if place == "pack" else (same, fails)
    with pytest.raises(KeyError, match="hook"):
        with lib.autograd.graph.saved_tensors_hooks(*hooks):
            y = x.exp()
        y.sum().backward()
    assert x.exp().requires_grad


def test_custom_functions(lib):
    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return 2 * x * g + 0 * y

    packed = []
    x = lib.tensor([3.0], requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t.item()) or t.clone(), lambda t: t * 2
    ):
        y = Square.apply(x)
    assert sorted(packed) == [3.0, 9.0]
    y.backward()
    assert x.grad.item() == 12.0


def test_save_on_cpu(lib):
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    with lib.autograd.graph.save_on_cpu(pin_memory=False):
        y = (x * x).exp()
    y.sum().backward()
    np.testing.assert_allclose(x.grad, 2 * x.detach() * (x * x).exp().detach(), rtol=1e-6)


def test_hooks_can_be_disabled(lib):
    graph = lib.autograd.graph
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        lib.ones(1, requires_grad=True).exp().backward()


def test_what_was_packed_goes_with_the_graph(lib):
    class Kept:
        pass

    kept = []

    def pack(tensor):
        thing = Kept()
        kept.append(weakref.ref(thing))
        return thing

    x = lib.ones(2, requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(pack, lambda t: x.detach()):
        y = x.exp()
    assert kept[0]() is not None
    del y
    gc.collect()
    assert kept[0]() is None


def test_layers_whose_operations_save_several_values(lib):
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Softmax(-1), nn.Linear(6, 2))
    x = lib.rand(3, 4)
    target = lib.tensor([0, 1, 1])

    def gradients():
        loss = nn.functional.cross_entropy(model(x), target)
        return lib.autograd.grad(loss, list(model.parameters()))

    plain = gradients()
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), lib.from_numpy):
        packed = gradients()
    for a, b in zip(plain, packed, strict=True):
        # Where copies come to lie decides in which order torch sums up, and so the last bits.
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_a_view_changed_in_place(lib):
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x * 1
        y[:2].exp_()
        (g,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
        (h,) = lib.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h, [4 * np.exp(2), 4 * np.exp(4), 2], rtol=1e-5)


# -- several gradients at once ---------------------------------------------------------------------


def test_all_gradients(lib):
    seen = []
    a, b, c, d = (lib.ones(2, requires_grad=True) for _ in range(4))
    handle = lib.autograd.graph.register_multi_grad_hook((a, b, c), seen.append)
    (a * 2 + b * 3 + d).sum().backward()
    assert [g if g is None else g.tolist() for g in seen[0]] == [[2, 2], [3, 3], None]
    (c * 4).sum().backward()
    assert [g if g is None else g.tolist() for g in seen[1]] == [None, None, [4, 4]]
    handle.remove()
    a.sum().backward()
    assert len(seen) == 2


def test_any_gradient(lib):
    seen = []
    a, b = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
    y = a * 2
    with lib.autograd.graph.register_multi_grad_hook((y, a, b), seen.append, mode="any"):
        (y * 5).sum().backward()
        (a + b).sum().backward()
    assert [g.tolist() for g in seen] == [[5, 5], [1, 1]]


def test_with_inputs_only_what_runs_counts(lib):
    seen = []
    a, b = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
    x, y = a * 2, b * 3
    lib.autograd.graph.register_multi_grad_hook((x, y), seen.append)
    (x + y).sum().backward(inputs=[a])
    assert [g if g is None else g.tolist() for g in seen[0]] == [[1, 1], None]


def test_errors(lib):
    graph = lib.autograd.graph
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook((lib.ones(1, requires_grad=True),), print, mode="some")


def test_changes_of_saved_tensors_are_not_cloned():
    import modtree

    with pytest.raises(NotImplementedError, match="allow_mutation_on_saved_tensors"):
        modtree.autograd.graph.allow_mutation_on_saved_tensors()
