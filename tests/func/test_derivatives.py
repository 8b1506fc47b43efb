# SPDX-License-Identifier: BSD-3-Clause
"""grad, vjp and their nestings give what torch.func gives."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs

needs_torch = needs("torch")


@pytest.fixture
def fn(lib):
    return importlib.import_module(f"{lib.__name__}.func")


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def shape_of(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: shape_of(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(shape_of(value) for value in tree)
    return tuple(tree.shape), str(tree.dtype).split(".")[-1], tree.requires_grad


def results(function: Any, *arrays: Any) -> list[Any]:
    found = []
    for name in ("torch", "modtree"):
        lib = importlib.import_module(name)
        module = importlib.import_module(f"{name}.func")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about its own functions
            found.append(function(lib, module, *[lib.tensor(a) for a in arrays]))
    return found


def f(m: Any, x: Any) -> Any:
    return (x.sin() * x).sum() + (x[..., :2].prod()) ** 2


def vector(m: Any, x: Any) -> Any:
    return m.tanh(x.reshape(-1)[:3]) * x.sum()


def two(m: Any, x: Any, y: Any) -> Any:
    return {"a": (x * y).sum(0), "b": [m.exp(x[0]), y.mean()]}


def loss(m: Any, p: Any, x: Any) -> Any:
    return ((m.tanh(x @ p["w"]) + p["b"]) ** 2).sum()


NESTINGS = {
    "grad": lambda m, t, x, y: t.grad(lambda a: f(m, a))(x),
    "grad_of_the_second": lambda m, t, x, y: t.grad(lambda a, b: f(m, a * b), argnums=1)(x, y),
    "grad_of_both": lambda m, t, x, y: t.grad(lambda a, b: f(m, a * b), argnums=(1, 0))(x, y),
    "grad_from_the_end": lambda m, t, x, y: t.grad(lambda a, b: f(m, a * b), argnums=-1)(x, y),
    "grad_and_value": lambda m, t, x, y: t.grad_and_value(lambda a: f(m, a))(x),
    "aux": lambda m, t, x, y: t.grad(lambda a: (f(m, a), {"k": a * 2}), has_aux=True)(x),
    "value_and_aux": lambda m, t, x, y: t.grad_and_value(lambda a: (f(m, a), a * 2), has_aux=True)(
        x
    ),
    "unused": lambda m, t, x, y: t.grad(lambda a, b: f(m, a), argnums=(0, 1))(x, y),
    "dicts": lambda m, t, x, y: t.grad(lambda p: loss(m, p, y))({"w": x.T, "b": y.mean(0)[:2]}),
    "second": lambda m, t, x, y: t.grad(lambda a: t.grad(lambda b: f(m, b))(a).pow(2).sum())(x),
    "third": lambda m, t, x, y: t.grad(t.grad(t.grad(lambda a: (a * x).sin().sum())))(y[0, 0]),
    "closure": lambda m, t, x, y: t.grad(lambda a: (a * t.grad(lambda b: f(m, a * b))(y)).sum())(x),
    "vjp": lambda m, t, x, y: (
        lambda pair: (pair[0], pair[1](y.reshape(-1)[:3]), pair[1](y.reshape(-1)[1:4]))
    )(t.vjp(lambda a: vector(m, a), x)),
    "vjp_of_two": lambda m, t, x, y: (lambda pair: pair[1]({"a": y[0], "b": [y[0], y.sum()]}))(
        t.vjp(lambda a, b: two(m, a, b), x, y)
    ),
    "vjp_aux": lambda m, t, x, y: (lambda r: (r[0], r[1](x), r[2]))(
        t.vjp(lambda a: (a.exp(), a), x, has_aux=True)
    ),
    "grad_of_vjp": lambda m, t, x, y: t.grad(
        lambda v: t.vjp(lambda b: vector(m, b), x)[1](v)[0].pow(2).sum()
    )(y.reshape(-1)[:3]),
}


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    return rng.standard_normal((2, 3)), rng.standard_normal((2, 3))


@needs_torch
@pytest.mark.parametrize("name", NESTINGS)
def test_equals_torch(name):
    theirs, ours = results(NESTINGS[name], *data())
    assert shape_of(ours) == shape_of(theirs)
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-10)


@needs_torch
@pytest.mark.parametrize("name", NESTINGS)
def test_inside_a_recorded_computation(name):
    """What comes out depends on the leaves outside as it does in torch."""

    def run(m, t, x, y):
        x, y = x.requires_grad_(), y.requires_grad_()
        found = leaves(NESTINGS[name](m, t, x, y))
        total = sum((v * (i + 1)).sin().sum() for i, v in enumerate(found) if v.requires_grad)
        gradients = m.autograd.grad(total, [x, y], allow_unused=True)
        return gradients

    for a, b in zip(*results(run, *data()), strict=True):
        if a is None or b is None:
            assert all(v is None or not v.any() for v in (a, b))
        else:
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_nothing_is_recorded_under_no_grad(lib, fn):
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    with lib.no_grad():
        gradient = fn.grad(lambda a: (a * a).sum())(x)
        (product,) = fn.vjp(lambda a: a * a, x)[1](lib.ones(2))
    assert gradient.tolist() == [2.0, 4.0]
    assert product.tolist() == [2.0, 4.0]
    assert not gradient.requires_grad
    assert not product.requires_grad


def test_no_grad_inside_counts(lib, fn):
    def function(a):
        with lib.no_grad():
            fixed = a * 2
        return (fixed * a).sum()

    assert fn.grad(function)(lib.tensor([1.0, 3.0])).tolist() == [2.0, 6.0]


def test_leaves_keep_their_gradients(lib, fn):
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    result = fn.grad(lambda a: (a * a).sum())(x)
    result.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_custom_function_inside(lib, fn):
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    x = lib.tensor([1.0, 2.0])
    assert fn.grad(lambda a: Cube.apply(a).sum())(x).tolist() == [3.0, 12.0]
    assert fn.grad(fn.grad(Cube.apply))(lib.tensor(2.0)).item() == 12.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t: t.grad(lambda a: a)(m.ones(2)), "Expected f.*to return a scalar Tensor"),
        (lambda m, t: t.grad(lambda a: 3)(m.ones(2)), "to return a Tensor, got"),
        (lambda m, t: t.grad(lambda a: a.sum(), argnums=2)(m.ones(2)), "Got argnum=2, but only 1"),
        (
            lambda m, t: t.grad(lambda a: a.sum(), argnums=())(m.ones(2)),
            "argnums must be non-empty",
        ),
        (lambda m, t: t.grad(lambda a: a.sum(), argnums=(0, 0))(m.ones(2)), "elements must be uni"),
        (lambda m, t: t.grad(lambda a: a.sum(), has_aux=True)(m.ones(2)), "output of function f"),
        (lambda m, t: t.grad(lambda a: a.sum())(m.arange(3)), "floating point"),
        (lambda m, t: t.vjp(lambda a: a, m.ones(2))[1]((m.ones(2),)), "structure of cotangents"),
        (lambda m, t: t.vjp(lambda a: 1, m.ones(2)), "expected .* (T|t)ensors"),
    ],
)
def test_errors(lib, fn, call, message):
    if lib.__name__ == "torch" and "floating" in message:
        message = "floating point|integer"
    with pytest.raises((RuntimeError, TypeError), match=f"(?s){message}"):
        call(lib, fn)


@needs_torch
def test_tensors_of_torch_are_refused_by_name():
    torch = importlib.import_module("torch")
    func = importlib.import_module("modtree.func")
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        func.grad(lambda a: a.sum())(torch.ones(2))


def test_a_write_into_what_is_captured():
    modtree = importlib.import_module("modtree")
    func = importlib.import_module("modtree.func")
    calls = modtree.tensor(0.0)

    def function(a):
        calls.add_(1)
        return (a * a).sum()

    assert func.grad(function)(modtree.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert calls.item() == 1
