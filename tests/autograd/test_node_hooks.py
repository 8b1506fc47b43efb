# SPDX-License-Identifier: BSD-3-Clause
"""Hooks where gradients are accumulated, and on nodes of the graph."""

from __future__ import annotations

import gc
import weakref

import pytest
from helpers.hooks_common import Notes, leaf, pair
from helpers.support import raises


@pytest.fixture
def notes():
    return Notes()


# -- after accumulation ----------------------------------------------------------------------------


def test_post_accumulate_hooks(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    x.register_hook(notes.hook("tensor", lambda g: g * 5))

    def accumulated(t):
        notes.append((t is x, t.grad.tolist()))

    def clears(t):
        t.grad = None

    x.register_post_accumulate_grad_hook(accumulated)
    handle = x.register_post_accumulate_grad_hook(clears)
    (x * pair(lib) + x).sum().backward()
    assert notes == [("tensor", [3.0, 3.0]), (True, [15.0, 15.0])]
    assert x.grad is None
    handle.remove()
    x.sum().backward()
    x.sum().backward()
    assert notes[2:] == [
        ("tensor", [1.0, 1.0]),
        (True, [5.0, 5.0]),
        ("tensor", [1.0, 1.0]),
        (True, [10.0, 10.0]),
    ]


def test_an_optimizer_step_in_the_pass(lib):
    x = leaf(lib, 1.0, 2.0)

    def step(t):
        with lib.no_grad():
            t -= t.grad
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * pair(lib)).sum().backward()
    assert x.tolist() == [-1.0, 0.0] and x.grad is None


@pytest.mark.parametrize(
    ("returned", "kind", "text"),
    [
        (lambda t: 3, TypeError, "expected Variable, but hook returned 'int'"),
        (lambda t: (), TypeError, "expected Variable, but hook returned 'tuple'"),
        (lambda t: t.grad.mul_(2), RuntimeError, "post accumulate grad hooks should return None"),
    ],
)
def test_returns_of_post_accumulate_hooks(lib, returned, kind, text):
    x = leaf(lib, 1.0)
    x.register_post_accumulate_grad_hook(lambda t: t)
    x.sum().backward()
    x.register_post_accumulate_grad_hook(returned)
    with raises(kind, text):
        x.sum().backward()


def test_a_leaf_without_a_gradient(lib, notes):
    class Drops(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    x = leaf(lib, 1.0)
    x.register_hook(notes.hook("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: notes.append(("accumulated", t.grad)))
    Drops.apply(x).sum().backward()
    assert notes == [("tensor", None), ("accumulated", None)]


# -- hooks of nodes --------------------------------------------------------------------------------


def shown(grads):
    return tuple(None if g is None else g.tolist() for g in grads)


def test_hooks_of_a_node(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.register_hook(notes.hook("tensor", lambda g: g * 3))
    y.retain_grad()

    def pre(grad_outputs):
        notes.append(("pre", shown(grad_outputs)))
        return (grad_outputs[0] * 5,)

    def post(grad_inputs, grad_outputs):
        notes.append(("post", shown(grad_inputs), shown(grad_outputs)))
        return grad_inputs[0] * 7, None

    y.grad_fn.register_prehook(pre)
    handle = y.grad_fn.register_hook(post)
    out = y.sum()
    out.backward(retain_graph=True)
    assert notes == [
        ("tensor", [1.0, 1.0]),
        ("pre", ([3.0, 3.0],)),
        ("post", ([30.0, 30.0], None), ([15.0, 15.0],)),
    ]
    assert y.grad.tolist() == [3.0, 3.0]  # hooks of the node come after those of its tensors
    assert x.grad.tolist() == [210.0, 210.0]
    handle.remove()
    out.backward()
    assert x.grad.tolist() == [240.0, 240.0]


def test_hooks_of_a_node_with_several_outputs(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    a, _ = x.unbind(0)
    a.grad_fn.register_prehook(lambda go: notes.append(shown(go)))
    a.grad_fn.register_hook(lambda gi, go: notes.append((shown(gi), shown(go))))
    a.backward()
    assert notes == [(1.0, None), (([1.0, 0.0],), (1.0, None))]


def test_hooks_where_a_gradient_is_accumulated(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    node, nr = y.grad_fn.next_functions[0]
    assert node.variable is x and nr == 0
    node.register_prehook(lambda go: (notes.append(("pre", shown(go))), (go[0] * 2,))[1])
    node.register_hook(lambda gi, go: notes.append(("post", shown(gi), shown(go), x.grad.tolist())))
    x.register_hook(notes.hook("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: notes.append("accumulated"))
    y.sum().backward()
    assert notes == [
        ("tensor", [2.0, 2.0]),
        ("pre", ([2.0, 2.0],)),
        "accumulated",
        ("post", (), ([4.0, 4.0],), [4.0, 4.0]),
    ]


@pytest.mark.parametrize(
    ("returned", "kind", "text"),
    [
        (lambda g: list(g), TypeError, "expected tuple, but hook returned 'list'"),
        (lambda g: g[0], TypeError, "expected tuple, but hook returned 'Tensor'"),
        (lambda g: g[:0], RuntimeError, "incorrect number of values (got 0, but expected"),
        (lambda g: g + g, RuntimeError, "incorrect number of values (got"),
        (lambda g: (3, *g[1:]), TypeError, "expected Variable, but hook returned 'int'"),
        (lambda g: (g[0][0], *g[1:]), RuntimeError, "has changed the size of value"),
        (lambda g: (g[0].double(), *g[1:]), RuntimeError, "has changed the type of value"),
    ],
)
@pytest.mark.parametrize("which", ["pre", "post"])
def test_wrong_returns_of_hooks_of_nodes(lib, returned, kind, text, which):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    if which == "pre":
        y.grad_fn.register_prehook(returned)
    else:
        y.grad_fn.register_hook(lambda gi, go: returned(gi))
    with raises(kind, text):
        y.sum().backward()


def test_a_missing_gradient_of_a_node_cannot_be_replaced(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.grad_fn.register_hook(lambda gi, go: (gi[0], pair(lib)))
    with raises(RuntimeError, "can't replace a None gradient with a non-None value"):
        y.sum().backward()


def test_a_gradient_may_be_dropped(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.grad_fn.register_hook(lambda gi, go: (None,) * len(gi))
    y.sum().backward()
    assert x.grad is None


# -- lifetime --------------------------------------------------------------------------------------


def test_hooks_go_with_their_tensor_and_may_refer_to_it():
    # torch keeps what the hooks of its nodes, and of tensors that are not leaves, refer to.
    import modtree as lib

    class Owner:
        pass

    def make():
        owner, x = Owner(), leaf(lib, 1.0)
        y = x * lib.tensor([2.0])
        x.register_hook(lambda g: (owner, x) and None)
        y.register_hook(lambda g: (owner, y) and None)
        y.grad_fn.register_hook(lambda gi, go: (owner, y) and None)
        return weakref.ref(owner), y.register_hook(print)

    ref, handle = make()
    gc.collect()
    assert ref() is None
    handle.remove()
