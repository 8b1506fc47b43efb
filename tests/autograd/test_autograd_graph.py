# SPDX-License-Identifier: BSD-3-Clause
"""The graph itself: its nodes, its depth, its life, threads, and code that misbehaves during a
pass.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest
from helpers.limits import HANGS_AFTER
from helpers.support import raises, values


def test_nodes(lib):
    x = lib.ones(2, requires_grad=True)
    y = x * lib.full((2,), 3.0)
    z = (y + x).sum()
    assert z.grad_fn.name() == "SumBackward0"
    ((add, nr),) = z.grad_fn.next_functions
    assert add.name() == "AddBackward0" and nr == 0
    (mul, _), (leaf, _) = add.next_functions
    assert mul is y.grad_fn and mul.name() == "MulBackward0"
    assert leaf.variable is x and leaf.next_functions == ()
    assert mul.next_functions == ((leaf, 0), (None, 0))
    mul.metadata["kept"] = 1
    assert y.grad_fn.metadata == {"kept": 1}
    assert x.grad_fn is None


def test_node_types_cannot_be_made_or_misused():
    import modtree
    from modtree._C import Node

    with pytest.raises(TypeError):
        Node()
    with pytest.raises(TypeError):
        object.__new__(Node)
    node = (modtree.ones(1, requires_grad=True) * 2).grad_fn
    for name in ("name", "register_hook", "register_prehook"):
        with pytest.raises(TypeError):
            getattr(Node, name)(3)
    with pytest.raises(AttributeError, match="AccumulateGrad"):
        node.variable  # noqa: B018
    with pytest.raises(TypeError):
        node.register_hook()


def test_deep_graph(lib, rounds):
    x = lib.ones(2, requires_grad=True)
    y = x
    count = rounds(100_000, 1_000_000) if lib.__name__ == "modtree" else 20_000
    for _ in range(count):
        y = -y
    y.sum().backward()
    assert values(x.grad) == [1.0, 1.0]
    z = x
    for _ in range(count):
        z = -z
    del y, z


def test_deep_chain_of_functions(lib):
    class Same(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = lib.ones(1, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = Same.apply(y)
    y.backward()
    assert values(x.grad) == [1.0]
    del y


def test_deep_chain_of_grads():
    """Each grad holds the graph of the one before."""
    import modtree

    x = first = modtree.ones(1, requires_grad=True)
    for _ in range(500):
        y = modtree.ones(1, requires_grad=True)
        (y * x * 0.5).sum().backward(create_graph=True, inputs=[y])
        x = y.grad
    assert x.requires_grad
    del x, y, first
    gc.collect()


def test_graph_dies_with_its_result(lib):
    x = lib.ones(2, requires_grad=True)
    y = x.exp()
    seen = weakref.ref(y)
    z = (y * y).sum()
    del y
    z.backward()
    del z
    assert seen() is None


def test_cycle_through_a_hook_is_collected():
    import modtree

    x = modtree.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g, y=y: y)
    seen = weakref.ref(y)
    del y
    assert seen() is not None
    gc.collect()
    assert seen() is None


def test_backward_inside_a_hook(lib):
    x, w = lib.ones(1, requires_grad=True), lib.ones(1, requires_grad=True)

    def hook(g):
        with lib.enable_grad():
            (w * w * 3).sum().backward()

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    assert values(w.grad) == [6.0] and values(x.grad) == [2.0]


def test_checkpointing(lib):
    """A function that computes its forward again in backward, with a pass of its own over shared
    leaves.
    """
    w = lib.ones(1, requires_grad=True)

    class Checkpoint(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * w).tanh()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with lib.enable_grad():
                (x * w).tanh().backward(g)
            return x.grad

    x = lib.tensor([0.5], requires_grad=True)
    out = x
    for _ in range(3):
        out = Checkpoint.apply(out)
    out.sum().backward()
    again, v = lib.tensor([0.5], requires_grad=True), lib.ones(1, requires_grad=True)
    plain = again
    for _ in range(3):
        plain = (plain * v).tanh()
    plain.sum().backward()
    assert values(x.grad) == pytest.approx(values(again.grad))
    assert values(w.grad) == pytest.approx(values(v.grad))


def test_same_graph_inside_its_own_pass(lib):
    x = lib.ones(1, requires_grad=True)
    y = x.exp()
    z = y * 2
    inner = []
    y.register_hook(
        lambda g: (
            inner.append(lib.autograd.grad(z, x, lib.ones(1), retain_graph=True))
            if not inner and not inner.append(0)
            else None
        )
    )
    z.sum().backward(retain_graph=True)
    assert len(inner) == 2 and values(inner[1][0]) == values(x.grad)


def test_threads_share_leaves():
    import modtree

    x = modtree.ones(3, requires_grad=True)
    shared = x * 2
    errors = []

    def work():
        try:
            for _ in range(100):
                (shared * 3).sum().backward(retain_graph=True)
        except Exception as error:  # shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and values(x.grad) == [2400.0] * 3


@pytest.mark.parametrize("size, times", [(3000, 1500), (300_000, 100)])
def test_no_gradient_is_lost_where_threads_add_to_one(lib, size, times):
    """NumPy lets other threads run while it adds up so many numbers."""
    x = lib.ones(size, requires_grad=True)

    def work():
        for _ in range(times):
            (x * 1.0).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x.grad.min().item() == x.grad.max().item() == 4 * times


def test_error_in_a_hook_leaves_the_graph(lib):
    x = lib.ones(1, requires_grad=True)
    y = x.exp()
    fail = [True]

    def hook(g):
        if fail[0]:
            raise KeyError("hook")

    y.register_hook(hook)
    z = (y * 2).sum()
    with pytest.raises(KeyError):
        z.backward(retain_graph=True)
    fail[0] = False
    z.backward()
    assert x.grad is not None


@pytest.mark.parametrize("junk", [3, "x", (), [1], object()])
def test_junk_from_hooks(lib, junk):
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: junk)
    with pytest.raises((TypeError, RuntimeError)):
        y.sum().backward()
    assert x.grad is None


def test_hook_with_another_shape_or_dtype(lib):
    for wrong in (lib.ones(3), lib.ones(2, dtype=lib.float64)):
        x = lib.ones(2, requires_grad=True)
        x.register_hook(lambda g, wrong=wrong: wrong)
        with raises(RuntimeError, "hook", "has changed the"):
            (x * 2).sum().backward()


@pytest.mark.parametrize(
    "derivative",
    [
        lambda g, _out, _x: 1 / 0,
        lambda g, _out, _x: "junk",
        lambda g, _out, _x: [g],
        lambda g, _out, _x: object(),
        lambda g, _out, _x: g[:, None] + g,
        lambda g, _out, _x: __import__("numpy").ones(7),
    ],
    ids=["raises", "text", "list", "object", "matrix", "length"],
)
def test_bad_derivatives(derivative):
    import numpy as np

    import modtree
    from modtree.numpy.ops import registry as table

    name = f"bad_row_{id(derivative)}"
    table.define(name, lambda x: np.negative(x))
    try:
        table.derive(name, derivative, double_backward=False)
        x = modtree.ones(2, requires_grad=True)
        y = table.ops[name](x)
        try:
            y.sum().backward()
        except (ZeroDivisionError, TypeError, RuntimeError, ValueError):
            assert x.grad is None
        else:
            assert tuple(x.grad.shape) == (2,)
    finally:
        del table.ops[name]


def test_tensors_die_and_act_during_the_pass():
    import modtree

    x = modtree.ones(2, requires_grad=True)

    class Late:
        def __init__(self, tensor):
            self.tensor = tensor

        def __del__(self):
            (self.tensor * 2).sum().backward()

    y = x * 1
    for _ in range(50):
        y = y.tanh()
        y.grad_fn.metadata["late"] = Late(x * 1)
        y.register_hook(lambda g: (gc.collect(0), None)[1])
    y.sum().backward()
    del y
    gc.collect()
    assert values(x.grad)[0] > 100.0


def test_hooks_that_change_tables_during_the_pass(lib):
    x = lib.ones(1, requires_grad=True)
    y = x * 2
    handles = []

    def remove_all(g):
        for handle in handles:
            handle.remove()
        y.register_hook(lambda g: g * 100)

    handles += [y.register_hook(remove_all), y.register_hook(lambda g: None)]
    y.sum().backward()
    assert x.grad is not None


def test_interpreter_exit_with_a_live_graph():
    code = """
import modtree as m, sys
x = m.ones(2, requires_grad=True)
y = x
for _ in range(200000):
    y = -y
y.register_hook(lambda g: y)
sys.kept = y
class Late(m.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1
    @staticmethod
    def backward(ctx, g):
        return g
sys.other = Late.apply(x)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_AFTER
    )
    assert process.returncode == 0 and process.stderr == "", process.stderr[-2000:]


def test_operations_on_more_than_65536_tensors(lib):
    parts = [lib.tensor([float(i)], requires_grad=True) for i in range(70_000)]
    joined = lib.cat(parts)
    (joined * joined).sum().backward()
    assert [parts[i].grad.item() for i in (0, 65_536, 69_999)] == [0.0, 131_072.0, 139_998.0]
    assert joined.grad_fn.next_functions[65_537][0].variable is parts[65_537]
    row = lib.ones(70_000, requires_grad=True)
    pieces = row.unbind()
    (pieces[65_537] * 3 + pieces[1]).backward()
    assert [row.grad[i].item() for i in (0, 1, 65_537)] == [0.0, 1.0, 3.0]
