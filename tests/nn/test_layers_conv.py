# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions against torch's: layers, functions, gradients and second gradients, errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.gradients import Case
from helpers.gradients import suite as gradient_suite
from helpers.layer_checks import Layer, suite
from helpers.same import differentiated
from helpers.same import same as same_outcome
from helpers.support import raises

import modtree as mt
from modtree import nn
from modtree.numpy.ops import conv_columns as _columns
from modtree.numpy.ops import conv_images as _images

torch = pytest.importorskip("torch")

IMAGE, LONE, LARGE = (2, 4, 7, 6), (4, 7, 6), (2, 4, 13, 11)

LAYERS = [
    Layer("Conv1d", (2, 4, 9), (4, 6, 3)),
    Layer("Conv1d", (4, 9), (4, 6, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    Layer("Conv1d", (2, 4, 9), (4, 6, 4), {"padding": "same", "dilation": 3}),
    Layer("Conv1d", (2, 4, 90), (4, 6, 3), {"padding": 2, "padding_mode": "circular"}),
    Layer("Conv2d", IMAGE, (4, 6, 3)),
    Layer("Conv2d", LARGE, (4, 6, 3), {"padding": 1}),
    Layer("Conv2d", LONE, (4, 6, (3, 2)), {"stride": (2, 1), "padding": (0, 1), "bias": False}),
    Layer("Conv2d", IMAGE, (4, 6, 3, 2, 2, 2, 2, True)),
    Layer("Conv2d", LARGE, (4, 8, 3), {"groups": 4, "padding": 1}),
    Layer("Conv2d", IMAGE, (4, 4, (3, 2), (1, 2), 1, 2), {"groups": 4}),
    Layer("Conv2d", IMAGE, (4, 6, 1)),
    Layer("Conv2d", LARGE, (4, 6, 1), {"groups": 2, "stride": 2}),
    Layer("Conv2d", IMAGE, (4, 6, (4, 3)), {"padding": "same"}),
    Layer("Conv2d", LONE, (4, 6, (2, 3)), {"padding": "same", "dilation": (3, 1)}),
    Layer("Conv2d", IMAGE, (4, 6, 3), {"padding": "valid"}),
    Layer("Conv2d", IMAGE, (4, 6, 3), {"padding": (1, 2), "padding_mode": "reflect"}),
    Layer("Conv2d", IMAGE, (4, 6, 4), {"padding": "same", "padding_mode": "replicate"}),
    Layer("Conv2d", LONE, (4, 6, 3), {"padding": 2, "padding_mode": "circular", "stride": 2}),
    Layer("Conv2d", (0, 4, 7, 6), (4, 6, 3)),
    Layer("Conv3d", (2, 3, 4, 5, 4), (3, 4, (2, 3, 1)), {"padding": (1, 0, 1), "stride": 2}),
    Layer("Conv3d", (3, 4, 5, 4), (3, 4, 3), {"padding": 1}),
    Layer("ConvTranspose1d", (2, 4, 9), (4, 6, 3, 2), {"padding": 1, "output_padding": 1}),
    Layer("ConvTranspose1d", (4, 9), (4, 6, 3), {"dilation": 2, "output_padding": 1}),
    Layer("ConvTranspose2d", IMAGE, (4, 6, 3)),
    Layer("ConvTranspose2d", LARGE, (4, 6, 3, 2, 1, 1, 2)),
    Layer("ConvTranspose2d", LONE, (4, 6, (3, 2)), {"stride": (2, 3), "bias": False}),
    Layer("ConvTranspose2d", IMAGE, (4, 6, 3), {"dilation": (3, 2), "output_padding": (2, 1)}),
    Layer("ConvTranspose2d", IMAGE, (4, 4, 3, 2, 1), {"groups": 4}),
    Layer("ConvTranspose2d", LONE, (4, 8, 3), {"groups": 4, "dilation": 2}),
    Layer("ConvTranspose2d", IMAGE, (4, 6, 1)),
    Layer("ConvTranspose2d", IMAGE, (4, 6, 3, 2), call={"output_size": (16, 14)}),
    Layer("ConvTranspose2d", LONE, (4, 6, 3, 2), call={"output_size": (6, 15, 14)}),
    Layer("ConvTranspose3d", (2, 3, 2, 3, 2), (3, 4, 2, 2), {"padding": 1, "output_padding": 1}),
]

test_arguments, test_text, test_checkpoint, test_outputs, test_gradients, test_meta = suite(LAYERS)


# -- functions and their second gradients ----------------------------------------------------------


def conv(name, **options):
    return lambda lib, *tensors: getattr(lib.nn.functional, name)(*tensors, **options)


def options_of_conv():
    for stride, padding, dilation in itertools.product((1, (2, 3)), (0, (2, 1)), (1, (1, 2))):
        yield {"stride": stride, "padding": padding, "dilation": dilation}


WEIGHTED = [((2, 4, 6, 7), (6, 4, 3, 2), (6,))]
CASES = [
    *(
        Case(f"conv2d {o}", conv("conv2d", **o), WEIGHTED, mixed=False, layouts=False, single=False)
        for o in options_of_conv()
    ),
    Case("conv2d", conv("conv2d"), [*WEIGHTED, ((4, 12, 11), (2, 4, 3, 3), (2,))], mixed=False),
    Case(
        "conv2d groups", conv("conv2d", groups=2), [((2, 4, 6, 7), (6, 2, 3, 2), (6,))], mixed=False
    ),
    Case(
        "conv2d same", conv("conv2d", padding="same"), [((2, 3, 5, 4), (2, 3, 2, 3))], mixed=False
    ),
    Case("conv1d", conv("conv1d", padding=1), [((2, 3, 7), (4, 3, 3), (4,))], mixed=False),
    Case(
        "conv_transpose2d",
        conv("conv_transpose2d", stride=2, padding=1, output_padding=1),
        [((2, 4, 3, 5), (4, 3, 3, 2), (3,)), ((1, 4, 9, 9), (4, 3, 3, 2), (3,))],
        mixed=False,
    ),
    Case(
        "conv_transpose2d groups",
        conv("conv_transpose2d", groups=2, dilation=3, output_padding=2),
        [((2, 4, 3, 5), (4, 3, 3, 2), (6,))],
        mixed=False,
    ),
    Case("conv_transpose1d", conv("conv_transpose1d"), [((2, 3, 4), (3, 2, 3))], mixed=False),
]
test_function_gradients = gradient_suite(CASES)


OPTIONS = [
    {},
    {"padding": (2, 1)},
    {"stride": 2, "padding": 1},
    {"stride": (3, 1), "dilation": (1, 2)},
]


def test_complex_numbers():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in ((2, 3, 5), (4, 3, 2))]
    results = []
    for lib in (mt, torch):
        x, w = (lib.from_numpy(a.copy()).requires_grad_() for a in arrays)
        y = lib.nn.functional.conv1d(x, w, padding=1)
        (y * y.conj()).real.sum().backward()
        results.append([t.detach().numpy() for t in (y, x.grad, w.grad)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["int64", "float16"])
def test_other_dtypes(dtype):
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-3, 4, s).astype(dtype) for s in ((2, 3, 5, 6), (4, 3, 2, 2)))
    mine = mt.nn.functional.conv2d(mt.from_numpy(x), mt.from_numpy(w), padding=1).numpy()
    theirs = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1).numpy()
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("size", [(10, 9), (7, 5)], ids=["large images", "small images"])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d", "conv3d", "conv_transpose3d"])
@pytest.mark.parametrize("wide", [False, True], ids=["columns", "wide products"])
def test_many_samples_are_worked_on_in_parts(monkeypatch, name, size, wide):
    """The buffer of columns holds some of the samples at a time: every part must come out right."""
    if wide and not _images.WIDE_PRODUCTS:
        pytest.skip("this machine has no wide products")
    monkeypatch.setattr(_images, "WIDE_PRODUCTS", wide)
    rng = np.random.default_rng(2)
    if name.endswith("3d"):
        size = (1, *size)
    x, w = rng.standard_normal((37, 4, *size)), rng.standard_normal((4, 4, *(3,) * len(size)))

    def run(lib):
        a, b = (lib.from_numpy(v.copy()).requires_grad_() for v in (x, w))
        y = getattr(lib.nn.functional, name)(a, b, padding=1)
        (y * y).sum().backward()
        return [t.detach().numpy() for t in (y, a.grad, b.grad)]

    expected = run(torch)
    for samples in (1, 5, 1000):
        size_of_columns = samples * 4 * 3 ** len(size) * math.prod(size) * 8
        monkeypatch.setattr(_columns, "CHUNK", size_of_columns)
        monkeypatch.setattr(_images, "CHUNK", size_of_columns)
        monkeypatch.setattr(_images, "SUM_CHUNK", size_of_columns)
        for mine, theirs in zip(run(mt), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_machines_without_wide_products(monkeypatch, options):
    rng = np.random.default_rng(3)
    x, w, b = (mt.from_numpy(rng.standard_normal(s)) for s in ((2, 4, 9, 8), (6, 2, 3, 2), (6,)))
    y = mt.nn.functional.conv2d(x, w, b, groups=2, **options)
    monkeypatch.setattr(_images, "WIDE_PRODUCTS", False)
    again = mt.nn.functional.conv2d(x, w, b, groups=2, **options)
    np.testing.assert_allclose(again.numpy(), y.numpy(), rtol=1e-12, atol=1e-12)


def test_windows_as_wide_as_a_huge_padding():
    """Nothing of the size of the padded image is made."""
    x, w = mt.randn(1, 2, 3, 3), mt.randn(2, 2, 3, 3)
    y = mt.nn.functional.conv2d(x, w, padding=2**25, dilation=2**25)
    expected = mt.nn.functional.conv2d(x, w[:, :, 1:2, 1:2])
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_no_channels():
    """Sums of nothing are zero. (torch's result has no channels, whatever the weight's shape.)"""
    x, w = mt.ones(2, 0, 4, 4, requires_grad=True), mt.ones(3, 0, 3, 3, requires_grad=True)
    y = mt.nn.functional.conv2d(x, w)
    y.sum().backward()
    assert tuple(y.shape) == (2, 3, 2, 2) and (y == 0).all()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape


def test_arguments_are_left_alone():
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(s) for s in ((2, 3, 5, 5), (4, 3, 3, 3), (4,))]
    tensors = [mt.from_numpy(a.copy()).requires_grad_() for a in arrays]
    y = mt.nn.functional.conv2d(*tensors, padding=1)
    y.backward(mt.ones_like(y))
    for t, a in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(t.detach().numpy(), a)


# -- starting values -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose2d"])
def test_starting_values(name):
    mt.manual_seed(0)
    layer = getattr(nn, name)(8, 32, 3, groups=2)
    fan_in = layer.weight.shape[1] * 9
    bound = 1 / math.sqrt(fan_in)
    for values in (layer.weight.detach().numpy(), layer.bias.detach().numpy()):
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.9 * bound
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    assert not (before == layer.weight).all()


# -- errors ----------------------------------------------------------------------------------------

BAD_LAYERS = [
    ("Conv2d", (3, 4, 3), {"groups": 2}, "in_channels must be divisible by groups"),
    ("Conv2d", (4, 3, 3), {"groups": 2}, "out_channels must be divisible by groups"),
    ("Conv2d", (4, 4, 3), {"groups": 0}, "groups must be a positive integer"),
    ("Conv2d", (4, 4, 3), {"padding": "full"}, "Invalid padding string"),
    ("Conv2d", (4, 4, 3), {"padding": "same", "stride": 2}, "padding='same' is not supported"),
    ("Conv2d", (4, 4, 3), {"padding_mode": "mirror"}, "padding_mode must be one of"),
    ("ConvTranspose2d", (4, 4, 3), {"padding_mode": "reflect"}, 'Only "zeros" padding mode'),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "text"), BAD_LAYERS, ids=lambda v: str(v))
def test_constructor_errors(name, args, kwargs, text):
    for lib in (mt, torch):
        with raises(ValueError, text):
            getattr(lib.nn, name)(*args, **kwargs)


BAD_CALLS = [
    ("conv2d", [(2, 4, 5, 5), (3, 2, 3, 3)], {}, "expected input[2, 4, 5, 5] to have 2 channels"),
    ("conv2d", [(2, 2, 2, 2), (3, 2, 3, 3)], {}, "Kernel size can't be greater than actual input"),
    (
        "conv2d",
        [(2, 2), (3, 2, 3, 3)],
        {},
        "Expected 3D (unbatched) or 4D (batched) input to conv2d",
    ),
    ("conv2d", [(2, 2, 5, 5), (3, 2, 3, 3), (4,)], {}, "expected bias to be 1-dimensional with 3"),
    (
        "conv2d",
        [(2, 2, 5, 5), (3, 2, 3, 3)],
        {"stride": (1, 1, 1)},
        "expected stride to be a single",
    ),
    ("conv2d", [(2, 2, 5, 5), (3, 2, 3, 3)], {"stride": 0}, "non-positive stride is not supported"),
    ("conv2d", [(2, 2, 5, 5), (3, 2, 3, 3)], {"padding": -1}, "negative padding is not supported"),
    ("conv2d", [(2, 2, 5, 5), (3, 2, 3, 3)], {"dilation": 0}, "non-positive dilation"),
    ("conv2d", [(2, 2, 5, 5), (0, 2, 3, 3)], {}, "expected weight to be at least 1 at dimension 0"),
    ("conv2d", [(2, 2, 5, 5), (3, 1, 3, 3)], {"groups": 2}, "expected weight to be divisible by 2"),
    ("conv2d", [(2, 2, 5, 5), (3, 2, 3, 3)], {"padding": "same", "stride": 2}, "padding='same'"),
    ("conv2d", [(2, 2, 5, 5), (3, 2, 3, 3)], {"padding": "full"}, "Invalid padding string"),
    (
        "conv_transpose2d",
        [(2, 3, 5, 5), (3, 2, 3, 3)],
        {"output_padding": 1},
        "output padding must be",
    ),
    ("conv_transpose2d", [(2, 4, 5, 5), (3, 2, 3, 3)], {}, "to have 3 channels, but got 4"),
    ("conv_transpose2d", [(2, 3, 5, 5), (3, 2, 3, 3), (3,)], {}, "1-dimensional with 2 elements"),
]


@pytest.mark.parametrize(("name", "shapes", "kwargs", "text"), BAD_CALLS, ids=lambda v: str(v))
def test_call_errors(name, shapes, kwargs, text):
    for lib in (mt, torch):
        tensors = [lib.zeros(shape) for shape in shapes]
        with raises(RuntimeError, text):
            getattr(lib.nn.functional, name)(*tensors, **kwargs)


def test_errors_in_our_words():
    x, w = mt.zeros(1, 2, 4, 4), mt.zeros(3, 2, 3, 3)
    with raises(RuntimeError, "float64", "float32", ".to(dtype)"):
        mt.nn.functional.conv2d(x.double(), w)
    with raises(TypeError, "conv2d: expected a modtree.Tensor, got numpy.ndarray"):
        mt.nn.functional.conv2d(x.numpy(), w)
    with raises(RuntimeError, "Output size is too small"):
        mt.nn.functional.conv_transpose2d(x, mt.zeros(2, 3, 3, 3), padding=4)
    with raises(RuntimeError, "Expected 4-dimensional weight"):
        mt.nn.functional.conv2d(x, w[0])
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2)
    for size in ((20, 20), (8, 8)):
        with raises(ValueError, "valid sizes range from [9, 9] to [10, 10]", str(size)):
            layer(x, output_size=size)
    with raises(ValueError, "output_size must have 2 or 4 elements (got 3)"):
        layer(x, output_size=(9, 9, 9))


@pytest.mark.parametrize("channels", [(3, 5), (5, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"padding": 5},
        {"padding": (0, 2), "dilation": 2},
        {"stride": 2, "padding": 1},
        {"stride": (1, 3), "dilation": (2, 1)},
    ],
    ids=str,
)
def test_input_gradients_gathered_and_added_up(channels, dtype, options):
    """The gradient of an image is a convolution or a sum of columns, by the channels, strides and
    padding.
    """
    rng = np.random.default_rng(4)
    arrays = [
        rng.standard_normal(s).astype(dtype)
        for s in ((2, channels[0], 8, 9), (*channels[::-1], 3, 3))
    ]
    results = []
    for lib in (mt, torch):
        x, w = (lib.from_numpy(a.copy()).requires_grad_() for a in arrays)
        y = lib.nn.functional.conv2d(x, w, **options)
        (y * y).sum().backward()
        results.append([t.detach().numpy() for t in (y, x.grad, w.grad)])
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    for mine, theirs in zip(*results, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float32", "complex64"])
@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose2d"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_dtypes_of_kernels(name, dtype, dilation):
    n = next(int(c) for c in name if c.isdigit())
    x, weight = np.ones((1, 2, *[5] * n), dtype), np.ones((2, 2, *[2] * n), dtype)
    same_outcome(
        lambda lib: getattr(lib.nn.functional, name)(
            lib.from_numpy(x), lib.from_numpy(weight), dilation=dilation
        )
    )


@pytest.mark.parametrize(
    "line",
    [
        "f.conv2d(m.ones(1, 1, 2, 2), m.ones(1, 1, 0, 1))",
        "f.conv2d(m.ones(1, 1, 0, 2), m.ones(1, 1, 1, 1), padding=1)",
        "f.conv_transpose2d(m.ones(1, 1, 0, 2), m.ones(1, 1, 3, 3))",
        "f.conv_transpose2d(m.ones(1, 1, 2, 2), m.ones(1, 1, 0, 1))",
        "f.conv_transpose1d(m.ones(1, 1, 1), m.ones(1, 1, 1), None, 2, 1, 1)",
        "f.conv_transpose1d(*[m.ones(1, 1, 1).long()] * 2, None, 2, 1, 1)",
        "f.conv1d(m.ones(2, 1), m.ones(2, 1), padding='same')",
    ],
)
def test_sizes_of_nothing(line):
    same_outcome(lambda lib: eval(line, {"m": lib, "f": lib.nn.functional}))


def test_gradients_of_no_samples_with_nothing_in_them():
    arrays = np.ones((0, 2, 0, 5)), np.ones((1, 2, 1, 1))
    same_outcome(
        differentiated(lambda lib, x, w: lib.nn.functional.conv2d(x, w, padding=2), *arrays)
    )


def test_float16_of_memory_in_another_order():
    x = np.array([[[-2.5, 1, 0.5]]], "float16")
    weight = np.arange(6, dtype="float16").reshape(3, 1, 2)
    results = [
        mt.nn.functional.conv1d(mt.from_numpy(x), mt.from_numpy(weight.copy(order)))
        for order in "CF"
    ]
    assert mt.equal(*results)
