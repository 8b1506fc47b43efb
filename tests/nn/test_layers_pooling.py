# SPDX-License-Identifier: BSD-3-Clause
"""Pooling against torch's: layers, functions, gradients and second gradients, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.gradients import Case, distinct
from helpers.gradients import suite as gradient_suite
from helpers.layer_checks import Layer, outputs, same, suite
from helpers.same import differentiated
from helpers.same import same as same_outcome
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")

IMAGE, LONE, LINE = (2, 3, 8, 9), (3, 8, 9), (2, 3, 9)


def ties(rng, shape):
    """Whole numbers, so that windows have several largest values: the first takes the gradient."""
    return rng.integers(0, 3, shape).astype(float)


LAYERS = [
    Layer("MaxPool1d", LINE, (2,)),
    Layer("MaxPool1d", (3, 9), (3, 2, 1, 1, True, True)),
    Layer("MaxPool1d", LINE, (3, 1, 1, 3)),
    Layer("MaxPool2d", IMAGE, (2,)),
    Layer("MaxPool2d", IMAGE, (3, 2, 1), sample=ties),
    Layer("MaxPool2d", LONE, ((3, 2),), {"stride": (1, 2), "padding": (1, 0), "dilation": 2}),
    Layer("MaxPool2d", IMAGE, (3,), {"stride": 2, "ceil_mode": True, "return_indices": True}),
    Layer("MaxPool2d", LONE, (3, 3, 1), {"ceil_mode": True, "dilation": 2}),
    Layer("MaxPool2d", (0, 3, 8, 9), (2,)),
    Layer("MaxPool3d", (2, 2, 4, 5, 6), (2,), {"stride": 2, "padding": 1}),
    Layer("MaxPool3d", (2, 4, 5, 6), (3,), {"return_indices": True, "ceil_mode": True}),
    Layer("AvgPool1d", LINE, (2,)),
    Layer("AvgPool1d", (3, 9), (3, 2, 1, True, False)),
    Layer("AvgPool2d", IMAGE, (2,)),
    Layer("AvgPool2d", LONE, ((3, 2),), {"stride": (1, 2), "padding": (1, 0)}),
    Layer("AvgPool2d", IMAGE, (3, 2, 1, True)),
    Layer("AvgPool2d", IMAGE, (3, 2, 1, True, False)),
    Layer("AvgPool2d", IMAGE, (3,), {"divisor_override": 4, "padding": 1}),
    Layer("AvgPool3d", (2, 2, 4, 5, 6), (2,), {"padding": 1}),
    Layer("AdaptiveAvgPool1d", LINE, (4,)),
    Layer("AdaptiveAvgPool1d", (3, 9), (3,)),
    Layer("AdaptiveAvgPool2d", IMAGE, (1,)),
    Layer("AdaptiveAvgPool2d", IMAGE, ((4, 3),)),
    Layer("AdaptiveAvgPool2d", LONE, ((5, None),)),
    Layer("AdaptiveAvgPool2d", IMAGE, ((11, 7),)),
    Layer("AdaptiveAvgPool3d", (2, 2, 4, 5, 6), ((2, 3, None),)),
    Layer("AdaptiveMaxPool1d", LINE, (4,), {"return_indices": True}),
    Layer("AdaptiveMaxPool2d", IMAGE, (1,)),
    Layer("AdaptiveMaxPool2d", IMAGE, ((4, 3),), sample=ties),
    Layer("AdaptiveMaxPool2d", LONE, ((5, None), True), sample=ties),
    Layer("AdaptiveMaxPool2d", IMAGE, ((11, 7),)),
    Layer("AdaptiveMaxPool3d", (2, 2, 4, 5, 6), ((2, 3, None), True)),
]

test_arguments, test_text, test_checkpoint, test_outputs, test_gradients, test_meta = suite(LAYERS)


def pool(name, *args):
    return lambda lib, x: getattr(lib.nn.functional, name)(x, *args)


PLANES = [((2, 3, 7, 6),), ((3, 6, 7),)]
CASES = [
    Case("max_pool1d", pool("max_pool1d", 3, 2, 1), [((2, 3, 7),)], distinct),
    Case("max_pool2d", pool("max_pool2d", 3, 2, 1), PLANES, distinct),
    Case("max_pool2d dilated", pool("max_pool2d", 2, 1, 0, 2, True), PLANES, distinct),
    Case("max_pool2d indices", pool("max_pool2d", 3, 1, 1, 1, False, True), PLANES, distinct),
    Case("adaptive_max_pool2d", pool("adaptive_max_pool2d", (3, 4)), PLANES, distinct),
    Case("avg_pool1d", pool("avg_pool1d", 3, 2, 1), [((2, 3, 7),)]),
    Case("avg_pool2d", pool("avg_pool2d", 3, 2, 1, True), PLANES),
    Case("avg_pool2d inside", pool("avg_pool2d", 3, 2, 1, True, False), PLANES),
    Case("avg_pool2d divisor", pool("avg_pool2d", (3, 2), None, 0, False, True, 7), PLANES),
    Case("adaptive_avg_pool2d", pool("adaptive_avg_pool2d", (3, 4)), PLANES),
    Case("adaptive_avg_pool2d even", pool("adaptive_avg_pool2d", 1), PLANES),
]
test_function_gradients = gradient_suite(CASES)


# -- values ----------------------------------------------------------------------------------------


def run_both(name, array, *args, **kwargs):
    """(results of modtree, results of torch)"""
    return [
        outputs(getattr(lib.nn.functional, name)(lib.from_numpy(array.copy()), *args, **kwargs))
        for lib in (mt, torch)
    ]


@pytest.mark.parametrize("shape", [IMAGE, LONE], ids=str)
def test_every_combination(shape):
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(float)
    for kernel, stride, padding, dilation, ceil in itertools.product(
        (2, 3, (3, 2)), (None, 1, 2, (3, 2)), (0, 1), (1, 2), (False, True)
    ):
        what = str((kernel, stride, padding, dilation, ceil))
        pairs = run_both("max_pool2d", x, kernel, stride, padding, dilation, ceil, True)
        pairs = list(zip(*pairs, strict=True))
        plain = run_both("max_pool2d", x, kernel, stride, padding, dilation, ceil)
        pairs += zip(*plain, strict=True)
        if dilation == 1:
            for inside, divisor in ((True, None), (False, None), (True, 5)):
                args = (kernel, stride, padding, ceil, inside, divisor)
                pairs += zip(*run_both("avg_pool2d", x, *args), strict=True)
        for mine, theirs in pairs:
            same(mine, theirs, 1e-12, what)


@pytest.mark.parametrize("dilation", [1, 2])
def test_the_padding_never_wins(dilation):
    x = np.full((1, 1, 5, 5), -np.inf)
    x[0, 0, 4, 4] = np.nan
    x[0, 0, 0, 3] = -3
    results = run_both("max_pool2d", x, 3, 2, 1, dilation, False, True)
    for mine, theirs in zip(*results, strict=True):
        same(mine, theirs, 0)


def test_nan_wins_and_takes_the_gradient():
    x = np.zeros((1, 6))
    x[0, 1] = np.nan
    grads = []
    for lib in (mt, torch):
        t = lib.from_numpy(x.copy()).requires_grad_()
        lib.nn.functional.max_pool1d(t, 3).sum().backward()
        grads.append(t.grad.numpy())
    np.testing.assert_array_equal(*grads)


@pytest.mark.parametrize("dtype", ["float16", "int64", "uint8"])
def test_other_dtypes(dtype):
    x = np.random.default_rng(3).integers(0, 9, IMAGE).astype(dtype)
    # torch has neither for all of them.
    name = "adaptive_max_pool2d" if dtype == "float16" else "max_pool2d"
    for mine, theirs in zip(*run_both(name, x, 3, return_indices=True), strict=True):
        same(mine, theirs, 0)
    if dtype == "float16":
        for mine, theirs in zip(*run_both("avg_pool2d", x, 3, 2), strict=True):
            same(mine, theirs, 1e-3)


def test_no_parts_and_no_samples():
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        for shape, size in (((2, 3, 4, 4), (0, 2)), ((0, 3, 4, 4), (3, 2))):
            mine, theirs = run_both(name, np.zeros(shape), size)
            same(mine[0], theirs[0], 0)
    x = mt.zeros(2, 3, 4, 4, requires_grad=True)
    mt.nn.functional.adaptive_max_pool2d(x, (0, 2)).sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize(
    ("name", "shape"),
    [("max_pool1d", (1, 4)), ("max_pool2d", (1, 2, 2)), ("max_pool3d", (1, 2, 2, 1))],
)
def test_the_last_nan_takes_the_gradient(name, shape):
    size = shape[1:]
    for mine, theirs in zip(
        *run_both(name, np.full(shape, np.nan), size, return_indices=True), strict=True
    ):
        same(mine, theirs, 0)


def test_functions_with_indices():
    x = mt.randn(1, 2, 6, 6)
    for name in ("max_pool1d", "max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d"):
        values, indices = getattr(mt.nn.functional, name + "_with_indices")(x[0], 2)
        assert (values == getattr(mt.nn.functional, name)(x[0], 2)).all()
        assert indices.dtype is mt.int64


# -- errors ----------------------------------------------------------------------------------------

BAD_CALLS = [
    ("max_pool2d", (2, 3, 5, 5), (3, 1, 2), "pad should be at most half of effective kernel size"),
    ("max_pool2d", (2, 3, 5, 5), (3, 0), "stride should not be zero"),
    ("max_pool2d", (2, 3, 2, 2), (3,), "Output size is too small"),
    (
        "max_pool2d",
        (2, 2, 5, 5),
        ((3, 3, 3),),
        "kernel_size must either be a single int, or a tuple",
    ),
    ("avg_pool2d", (2, 3, 5, 5), (3, 1, 2), "pad should be at most half of effective kernel size"),
    ("avg_pool2d", (2, 3, 5, 5), (3, 1, 0, False, True, 0), "divisor must be not zero"),
    ("avg_pool2d", (2, 3, 2, 2), (3,), "Output size is too small"),
    ("adaptive_avg_pool2d", (2, 2), (3,), "Expected 3D or 4D tensor, but got"),
    ("adaptive_avg_pool2d", (2, 2, 5, 5), ((3, 3, 3),), "output_size must be 2"),
    ("adaptive_avg_pool2d", (2, 2, 0, 5), ((3, 3),), "with dimension 2 being empty"),
    ("adaptive_max_pool2d", (2, 2), (3,), "Expected 3D or 4D tensor, but got"),
]


@pytest.mark.parametrize(("name", "shape", "args", "text"), BAD_CALLS, ids=lambda v: str(v))
def test_call_errors(name, shape, args, text):
    for lib in (mt, torch):
        with raises(RuntimeError, text):
            getattr(lib.nn.functional, name)(lib.zeros(shape), *args)


@pytest.mark.parametrize("name", ["max_pool1d", "avg_pool1d"])
def test_gradients_that_depend_on_nothing(name):
    for lib in (mt, torch):
        x = lib.ones(1, 1, 4, requires_grad=True)
        out = getattr(lib.nn.functional, name)(x, 2)
        (slope,) = lib.autograd.grad(out.sum(), x, create_graph=True)
        assert slope.requires_grad is (lib is torch)
        (slope,) = lib.autograd.grad((out * out).sum(), x, create_graph=True)
        assert slope.requires_grad


def test_errors_in_our_words():
    F = mt.nn.functional
    with raises(RuntimeError, "max_pool2d: Expected 3D or 4D", "[2, 2]"):
        F.max_pool2d(mt.zeros(2, 2), 2)
    with raises(RuntimeError, "got:[1, 0, 4, 4]"):
        F.max_pool2d(mt.zeros(1, 0, 4, 4), 2)
    for function in (F.avg_pool2d, F.adaptive_avg_pool2d):
        with raises(NotImplementedError, "int32"):
            function(mt.zeros(1, 4, 4, dtype=mt.int32), 2)
    with raises(NotImplementedError, "complex"):
        F.max_pool2d(mt.zeros(1, 4, 4, dtype=mt.complex64), 2)
    with raises(TypeError, "argument 'kernel_size' must be an int or a tuple of ints, got 2.5"):
        F.max_pool2d(mt.zeros(1, 4, 4), 2.5)


def test_parts_with_infinities():
    x = np.array([[6, 20, np.nan, 1, 2, np.inf, 4, 7], [1, -np.inf, 3, 4, 5, 6, 7, 8]])
    for parts in (3, 5, 7):
        same_outcome(
            differentiated(lambda lib, x, n=parts: lib.nn.functional.adaptive_avg_pool1d(x, n), x)
        )


@pytest.mark.parametrize("n", [1, 2])
def test_of_several_nan_the_last_has_the_index(n):
    x = np.array([[np.nan, 1, np.nan, 2, 3], [1, np.nan, np.nan, np.inf, 3]])
    x = x if n == 1 else x[None]
    name = f"adaptive_max_pool{n}d"
    same_outcome(lambda lib: getattr(lib.nn.functional, name)(lib.from_numpy(x), 1, True))


@pytest.mark.parametrize("options", [{}, {"ceil_mode": True}, {"padding": 1}])
def test_windows_larger_than_the_image(options):
    same_outcome(lambda lib: lib.nn.functional.avg_pool3d(lib.ones(1, 1, 1, 2, 2), 2, **options))


def test_windows_wholly_in_the_padding_are_refused():
    with pytest.raises(RuntimeError, match="wholly in the padding"):
        mt.nn.functional.max_pool1d(mt.ones(1, 1, 1), 2, 1, 1, 2)
