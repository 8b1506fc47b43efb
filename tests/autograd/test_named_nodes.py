# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of the graph: their classes, and the edges that lead nowhere."""

from __future__ import annotations

import gc

import pytest

import modtree as mt

RESULTS = {
    "AddBackward0": lambda lib, x: x + 1,
    "SubBackward0": lambda lib, x: x - 1,
    "MulBackward0": lambda lib, x: x * 2,
    "DivBackward0": lambda lib, x: x / 2,
    "PowBackward0": lambda lib, x: x**2,
    "ExpBackward0": lambda lib, x: x.exp(),
    "SumBackward0": lambda lib, x: x.sum(),
    "NegBackward0": lambda lib, x: -x,
    "CloneBackward0": lambda lib, x: x.clone(),
    "ViewBackward0": lambda lib, x: x.view(1, 2),
    "CatBackward0": lambda lib, x: lib.cat([x, x]),
    "ReluBackward0": lambda lib, x: lib.relu(x),
}


@pytest.mark.parametrize("name", RESULTS)
def test_classes_carry_the_name(lib, name):
    node = RESULTS[name](lib, lib.ones(2, requires_grad=True)).grad_fn
    assert type(node).__name__ == node.name() == name
    assert type(node).__module__ == "builtins" and repr(node).startswith(f"<{name} object at ")
    assert isinstance(node, lib.autograd.graph.Node)
    other = RESULTS[name](lib, lib.ones(2, requires_grad=True)).grad_fn
    assert type(other) is type(node) and other is not node


def test_leaves(lib):
    x = lib.ones(2, requires_grad=True)
    node = (x * 2).grad_fn.next_functions[0][0]
    assert type(node).__name__ == "AccumulateGrad" and node.variable is x
    assert node.name().rpartition("::")[2] == "AccumulateGrad"
    assert (x + 1).grad_fn.next_functions[0][0] is node
    assert lib.autograd.graph.get_gradient_edge(x).node is node


def test_functions_in_python(lib):
    class Double(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Double.apply(lib.ones(2, requires_grad=True))
    assert type(y.grad_fn).__name__ == "DoubleBackward"


EDGES = {
    "x + 2": (lambda x, o: x + 2, [True, False]),
    "2 + x": (lambda x, o: 2 + x, [True, False]),
    "x - 2": (lambda x, o: x - 2, [True, False]),
    "2 - x": (lambda x, o: 2 - x, [True]),
    "x * 2": (lambda x, o: x * 2, [True, False]),
    "2 * x": (lambda x, o: 2 * x, [True, False]),
    "x / 2": (lambda x, o: x / 2, [True, False]),
    "x ** 2": (lambda x, o: x**2, [True]),
    "2 ** x": (lambda x, o: 2**x, [True]),
    "x % 2": (lambda x, o: x % 2, [True]),
    "x + y": (lambda x, o: x + o, [True, False]),
    "y + x": (lambda x, o: o + x, [False, True]),
    "x * x": (lambda x, o: x * x, [True, True]),
    "add_": (lambda x, o: x.clone().add_(2), [True, False]),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_of_numbers_and_constants(lib, name):
    make, expected = EDGES[name]
    node = make(lib.ones(2, requires_grad=True), lib.ones(2)).grad_fn
    assert [edge is not None for edge, _ in node.next_functions] == expected
    assert all(number == 0 for _, number in node.next_functions)


@pytest.mark.parametrize("name", EDGES)
def test_gradients_pass_by_numbers(lib, name):
    make, _ = EDGES[name]
    x = lib.tensor([3.3, 4.6], dtype=lib.float64, requires_grad=True)
    other = lib.tensor([2.0, 5.0], dtype=lib.float64)
    (grad,) = lib.autograd.grad(make(x, other).sum(), x, create_graph=True)
    step = 1e-6
    high = make((x + step).detach(), other)
    low = make((x - step).detach(), other)
    expected = ((high - low) / (2 * step)).tolist()
    assert grad.tolist() == pytest.approx(expected, rel=1e-5)


def test_hooks_see_the_number(lib):
    x = lib.ones(2, requires_grad=True)
    seen = []
    y = 2 * x
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))
    y.sum().backward()
    assert seen[0][0].tolist() == [2.0, 2.0] and seen[0][1] is None and len(seen[0]) == 2


def test_hooks_may_replace_beside_a_number(lib):
    x = lib.ones(2, requires_grad=True)
    y = 2 * x
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 10, None))
    y.sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]


def test_walking_over_a_graph(lib):
    """As programs do that draw graphs."""
    x = lib.ones(2, 2, requires_grad=True)
    layer = lib.nn.Linear(2, 2)
    names, todo = [], [lib.relu(layer(x) * 2).sum().grad_fn]
    while todo:
        node = todo.pop()
        names.append(type(node).__name__)
        todo += [n for n, _ in node.next_functions if n is not None]
    assert names[:3] == ["SumBackward0", "ReluBackward0", "MulBackward0"]
    assert names.count("AccumulateGrad") == 3


def test_nodes_that_were_looked_at_die():
    def count():
        gc.collect()
        return sum(issubclass(type(o), mt.autograd.graph.Node) for o in gc.get_objects())

    before = count()
    for _ in range(50):
        y = (mt.ones(2, requires_grad=True) * 2).exp()
        assert y.grad_fn.next_functions[0][0].next_functions
        y.grad_fn.metadata["self"] = y.grad_fn
    del y
    assert count() <= before


def test_many_names():
    for i in range(5000):
        members = {
            "forward": staticmethod(lambda ctx, x: x * 1),
            "backward": staticmethod(lambda ctx, g: g),
        }
        kind = type(f"F{i}", (mt.autograd.Function,), members)
        node = kind.apply(mt.ones(1, requires_grad=True)).grad_fn
        assert type(node).__name__ == f"F{i}Backward"
