# SPDX-License-Identifier: BSD-3-Clause
"""A gradient that is zero is there: values that do not change with a tensor leave zeros in its
grad, as in torch, and not None.
"""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt

X = np.random.default_rng(0).uniform(0.2, 0.9, (3, 3))
Y = np.random.default_rng(1).uniform(0.2, 0.9, (3, 3))
IMAGE = np.random.default_rng(2).uniform(-1, 1, (1, 2, 4, 4))
GRID = np.random.default_rng(3).uniform(-1, 1, (1, 3, 3, 2))
VOLUME = np.random.default_rng(4).uniform(-1, 1, (1, 1, 3, 3, 3))
GRID3 = np.random.default_rng(5).uniform(-1, 1, (1, 2, 2, 2, 3))
COMPARISONS = ("eq_", "ne_", "lt_", "le_", "gt_", "ge_")

CASES = {
    **{
        f"x.{name}(y)": (lambda lib, x, y, name=name: getattr(x * 1, name)(y), "00", X, Y)
        for name in COMPARISONS
    },
    **{
        f"x.{name}(1)": (lambda lib, x, name=name: getattr(x * 1, name)(1), "0", X)
        for name in COMPARISONS
    },
    **{
        f"grid_sample nearest, {padding}": (
            lambda lib, x, g, padding=padding: lib.nn.functional.grid_sample(
                x, g, mode="nearest", padding_mode=padding, align_corners=False
            ),
            "g0",
            IMAGE,
            GRID,
        )
        for padding in ("zeros", "border", "reflection")
    },
    "grid_sample nearest, of a constant": (
        lambda lib, g: lib.nn.functional.grid_sample(
            lib.ones(1, 1, 2, 2).double(), g, mode="nearest", align_corners=True
        ),
        "0",
        GRID,
    ),
    "grid_sample nearest of a volume": (
        lambda lib, x, g: lib.nn.functional.grid_sample(x, g, mode="nearest", align_corners=False),
        "g0",
        VOLUME,
        GRID3,
    ),
    "bernoulli": (lambda lib, x: lib.bernoulli(x), "0", X),
    "x.bernoulli": (lambda lib, x: x.bernoulli(), "0", X),
    "bernoulli_ by a tensor": (lambda lib, x, y: (x * 1).bernoulli_(y), "00", X, Y),
    "bernoulli_ by a number": (lambda lib, x: (x * 1).bernoulli_(0.5), "0", X),
    "normal, mean": (lambda lib, x: lib.normal(x, 1.0), "0", X),
    "normal, std": (lambda lib, x: lib.normal(0.0, x), "0", X),
    "normal, both": (lambda lib, x, y: lib.normal(x, y), "00", X, Y),
    "poisson": (lambda lib, x: lib.poisson(x), "0", X),
    "matrix_power 0": (lambda lib, x: lib.linalg.matrix_power(x, 0), "0", X),
    "cdist 0": (lambda lib, x, y: lib.cdist(x, y, p=0), "00", X, Y),
    "norm 0": (lambda lib, x: x.norm(0), "-", X),
    "floor": (lambda lib, x: x.floor(), "0", X),
    "round": (lambda lib, x: x.round(decimals=1), "0", X),
    "sign": (lambda lib, x: x.sign(), "0", X),
    "fmod": (lambda lib, x, y: lib.fmod(x, y * 9), "g0", X, Y),
    "div, floor": (lambda lib, x, y: lib.div(x, y, rounding_mode="floor"), "00", X, Y),
    "x * 0": (lambda lib, x: x * 0, "0", X),
    "x ** 0": (lambda lib, x: x**0, "0", X),
    "zero_": (lambda lib, x: (x * 1).zero_(), "0", X),
    "fill_": (lambda lib, x: (x * 1).fill_(2.0), "0", X),
    "copy_": (lambda lib, x, y: (x * 1).copy_(y), "0g", X, Y),
    "normal_": (lambda lib, x: (x * 1).normal_(), "0", X),
    "dropout of everything": (lambda lib, x: lib.nn.functional.dropout(x, 1.0), "0", X),
    "clamp outside": (lambda lib, x: x.clamp(min=5), "0", X),
    "kl_div of a target that is a number": (
        lambda lib, x, y: lib.nn.functional.kl_div(x, y[0, 0], reduction="sum"),
        "gg",
        X,
        Y,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_zeros_are_there(lib, case):
    function, expected, *arrays = CASES[case]
    inputs = [lib.tensor(array, requires_grad=True) for array in arrays]
    result = function(lib, *inputs)
    assert result.requires_grad
    result.sum().backward()
    for x, kind in zip(inputs, expected, strict=True):
        if kind == "-":
            assert x.grad is None
        else:
            assert x.grad.shape == x.shape and bool(x.grad.any()) == (kind == "g")


REFUSED = {
    "cross_entropy": lambda f, x, t, w: f.cross_entropy(x, t, weight=w),
    "cross_entropy, smoothed": lambda f, x, t, w: f.cross_entropy(
        x, t, weight=w, label_smoothing=0.1
    ),
    "nll_loss": lambda f, x, t, w: f.nll_loss(x, t, weight=w),
    "binary_cross_entropy": lambda f, x, t, w: f.binary_cross_entropy(x, x, weight=w),
    "binary_cross_entropy_with_logits": lambda f, x, t, w: f.binary_cross_entropy_with_logits(
        x, x, weight=w
    ),
    "pos_weight": lambda f, x, t, w: f.binary_cross_entropy_with_logits(x, x, pos_weight=w),
    "batch_norm": lambda f, x, t, w: f.batch_norm(x, w, w),
    "batch_norm while training": lambda f, x, t, w: f.batch_norm(x, w * 1, w * 1, training=True),
    "instance_norm": lambda f, x, t, w: f.instance_norm(
        x[None].expand(2, 3, 3), w, w, use_input_stats=False
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_gradient_must_not_need_one(lib, case):
    x, target, weight = lib.rand(3, 3), lib.tensor([0, 1, 2]), lib.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="is not differentiable with respect to argument"):
        REFUSED[case](lib.nn.functional, x, target, weight)
    with lib.no_grad():
        REFUSED[case](lib.nn.functional, x, target, weight)


def test_cross_entropy_of_probabilities_has_gradients_of_weights(lib):
    x, weight = lib.rand(3, 3), lib.ones(3, requires_grad=True)
    lib.nn.functional.cross_entropy(x, x.softmax(1), weight=weight).backward()
    assert weight.grad.shape == (3,)


def test_gradients_that_torch_refuses_are_zero():
    x, y = mt.rand(3, requires_grad=True), mt.rand(3, requires_grad=True)
    for result, leaves in [
        (mt.floor_divide(x, y), (x, y)),
        (x // 2, (x,)),
        (mt.bernoulli(x, 0.5), (x,)),
    ]:
        for leaf in leaves:
            leaf.grad = None
        result.sum().backward()
        assert all(leaf.grad.tolist() == [0, 0, 0] for leaf in leaves)


def test_logical_operations_in_place_have_no_gradient():
    x = mt.rand(3, requires_grad=True)
    (x * 1).logical_and_(x).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("name", ["asinh_", "atanh_", "acosh_"])
def test_inverse_hyperbolic_functions_in_place(name):
    x = mt.tensor([1.5 if name == "acosh_" else 0.5], requires_grad=True)
    getattr(x * 1, name)().backward()
    y = x.detach().clone().requires_grad_()
    getattr(y, name.removesuffix("_"))().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_losses_with_more_gradients_than_in_torch():
    x, y, w = (mt.rand(3, 3, requires_grad=True) for _ in range(3))
    functional = mt.nn.functional
    functional.soft_margin_loss(x, y).backward()
    assert y.grad.any()
    functional.multi_margin_loss(x, mt.tensor([0, 1, 2]), weight=w[0]).backward()
    assert w.grad.any()


def test_adaptive_max_pool1d_at_the_top_gives_both(lib):
    x = lib.tensor([[1.0, 3.0, 2.0, 5.0]])
    values, places = lib.adaptive_max_pool1d(x, 2)
    assert values.tolist() == [[3, 5]] and places.tolist() == [[1, 3]]
