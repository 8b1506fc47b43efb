# SPDX-License-Identifier: BSD-3-Clause
"""Resizing, padding, shuffling of pixels, patches, (un)flattening against torch's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.gradients import Case
from helpers.gradients import suite as gradient_suite
from helpers.layer_checks import Layer, same, suite
from helpers.same import differentiated
from helpers.same import same as same_outcome
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")

IMAGE, LONE, LINE, SOLID = (2, 3, 5, 4), (3, 5, 4), (2, 3, 6), (1, 2, 3, 4, 3)

LAYERS = [
    Layer("Upsample", IMAGE, (), {"scale_factor": 2}),
    Layer("Upsample", IMAGE, ((7, 3),)),
    Layer("Upsample", LINE, (9,)),
    Layer("Upsample", LINE, (), {"scale_factor": 1.7, "mode": "linear"}),
    Layer("Upsample", IMAGE, (), {"scale_factor": (1.5, 2), "mode": "bilinear"}),
    Layer("Upsample", IMAGE, (9,), {"mode": "bilinear", "align_corners": True}),
    Layer(
        "Upsample",
        IMAGE,
        (),
        {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True},
    ),
    Layer("Upsample", IMAGE, ((3, 9),), {"mode": "bicubic"}),
    Layer("Upsample", SOLID, (5,), {"mode": "trilinear"}),
    Layer("UpsamplingNearest2d", IMAGE, (), {"scale_factor": 3}),
    Layer("UpsamplingBilinear2d", IMAGE, ((9, 2),)),
    Layer("PixelShuffle", (2, 8, 3, 4), (2,)),
    Layer("PixelShuffle", (9, 3, 4), (3,)),
    Layer("PixelUnshuffle", (2, 2, 6, 4), (2,)),
    Layer("ChannelShuffle", (2, 6, 3, 2), (3,)),
    Layer("Unfold", (2, 3, 6, 5), (3,)),
    Layer("Unfold", (3, 6, 5), ((3, 2), 2, 1, (1, 2))),
    Layer("Fold", (2, 12, 20), ((6, 5), 2)),
    Layer("Fold", (12, 4), ((5, 4), (2, 3)), {"padding": 1, "stride": (3, 2)}),
    Layer("ConstantPad1d", LINE, ((1, 2), 0.5)),
    Layer("ConstantPad2d", IMAGE, (2, -1)),
    Layer("ConstantPad2d", LONE, ((1, -1, -2, 2), 3.0)),
    Layer("ConstantPad3d", SOLID, (1, 0.5)),
    Layer("ZeroPad1d", LINE, (1,)),
    Layer("ZeroPad2d", IMAGE, ((1, 2, 0, 3),)),
    Layer("ZeroPad3d", SOLID, (1,)),
    Layer("ReflectionPad1d", (3, 6), ((2, 1),)),
    Layer("ReflectionPad2d", IMAGE, ((1, 2, 3, 4),)),
    Layer("ReflectionPad3d", SOLID, (1,)),
    Layer("ReplicationPad1d", LINE, (4,)),
    Layer("ReplicationPad2d", LONE, ((1, 2, 3, 7),)),
    Layer("ReplicationPad3d", SOLID, (2,)),
    Layer("CircularPad1d", LINE, ((2, 6),)),
    Layer("CircularPad2d", IMAGE, ((1, 2, 3, 4),)),
    Layer("CircularPad3d", SOLID, (2,)),
    Layer("Flatten", IMAGE),
    Layer("Unflatten", (2, 6, 3), (1, (2, 3))),
    Layer("Unflatten", (2, 6, 3), (1, [-1, 2])),
    Layer("Identity", IMAGE),
]

test_arguments, test_text, test_checkpoint, test_outputs, test_gradients, test_meta = suite(
    [case for case in LAYERS if case.name != "Identity"]
)


def test_identity_takes_any_arguments():
    x = mt.randn(2)
    for lib in (mt, torch):
        layer = lib.nn.Identity(54, unused=True)
        assert repr(layer) == "Identity()"
    assert mt.nn.Identity(54, unused=True)(x) is x


# -- resizing --------------------------------------------------------------------------------------

SIZES = [
    {"size": (3, 9)},
    {"size": 14},
    {"size": 1},
    {"size": IMAGE[2:]},
    {"size": (5, 8)},
    {"scale_factor": 2},
    {"scale_factor": (1.7, 0.6)},
    {"scale_factor": 1.3, "recompute_scale_factor": True},
]
MODES = [
    {"mode": "nearest"},
    {"mode": "nearest-exact"},
    {"mode": "area"},
    {"mode": "bilinear"},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bilinear", "antialias": True},
    {"mode": "bilinear", "antialias": True, "align_corners": True},
    {"mode": "bicubic"},
    {"mode": "bicubic", "align_corners": True},
    {"mode": "bicubic", "antialias": True},
]


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_interpolate(size, options):
    for dtype, tolerance in (("float32", 2e-5), ("float64", 1e-9)):
        x = np.random.default_rng(0).standard_normal((2, 3, 7, 5)).astype(dtype)
        results, grads = [], []
        for lib in (mt, torch):
            t = lib.from_numpy(x.copy()).requires_grad_()
            y = lib.nn.functional.interpolate(t, **size, **options)
            (y * y).sum().backward()
            results.append(y)
            grads.append(t.grad)
        same(*results, tolerance)
        same(*grads, 10 * tolerance)


@pytest.mark.parametrize("size", [17, 23, 29, 40, 63])
def test_nearest_rounds_as_torch(size):
    """Positions are float32 in torch (but not in the exact mode with 3-D float64): for some sizes
    rounding decides which neighbour is nearest.
    """
    for old, mode in itertools.product(range(1, 50), ("nearest", "nearest-exact")):
        x = np.arange(old, dtype="f8").reshape(1, 1, 1, old)
        mine, theirs = (
            lib.nn.functional.interpolate(lib.from_numpy(x), (1, size), mode=mode)
            for lib in (mt, torch)
        )
        same(mine, theirs, 0, f"{old} to {size}, {mode}")


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rest", [(), (5,), (140,), (2, 2)], ids=["1d", "small", "large", "3d"])
def test_nearest_by_a_factor(mode, dtype, rest):
    """Rounding decides here; of small images neighbours at the same or twice the size go without
    the factor.
    """
    for size, factor in itertools.product((2, 3, 14, 16, 40, 56), (1.1, 1.2, 2.3, 3.7, 23 / 14)):
        x = np.zeros((1, 1, size, *rest), dtype)
        x += np.arange(size, dtype=dtype).reshape(-1, *(1,) * len(rest))
        factors = (factor, *(1.0 for _ in rest))
        mine, theirs = (
            lib.nn.functional.interpolate(lib.from_numpy(x), scale_factor=factors, mode=mode)
            for lib in (mt, torch)
        )
        same(mine, theirs, 0, f"{size} by {factor}")


def test_whole_numbers():
    x = np.random.default_rng(0).integers(0, 255, (1, 2, 5, 4)).astype("u1")
    mine, theirs = (lib.nn.functional.interpolate(lib.from_numpy(x), 7) for lib in (mt, torch))
    same(mine, theirs, 0)
    with raises(NotImplementedError, "int64", ".float()"):
        mt.nn.functional.interpolate(mt.from_numpy(x).long(), 7, mode="bilinear")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"antialias": True}])
def test_bytes_are_rounded(mode, options):
    """In fixed point, the sum of the shares of an element at the border as one."""
    random = np.random.default_rng(0)
    for size in ((7, 3), (2, 9), (1, 1), (5, 4)):
        x = random.integers(0, 256, (20, 1, 5, 4)).astype("u1")
        mine, theirs = (
            lib.nn.functional.interpolate(lib.from_numpy(x), size, mode=mode, **options).numpy()
            for lib in (mt, torch)
        )
        assert mine.dtype == np.uint8
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("factors", [(1.3, 2.0), (2.0, 1.2), (1.1, 1.1)])
def test_an_axis_of_bytes_that_keeps_its_size_is_kept(factors):
    x = np.arange(0, 240, 15, "u1").reshape(1, 1, 4, 4)[:, :, :2, :3]
    x = np.ascontiguousarray(x)
    mine, theirs = (
        lib.nn.functional.interpolate(lib.from_numpy(x), scale_factor=factors, mode="bicubic")
        for lib in (mt, torch)
    )
    same(mine, theirs, 0)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "area"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "complex64", "float16"])
def test_dtypes_of_images(mode, dtype):
    x = np.ones((1, 2, 3, 3), dtype)
    same_outcome(lambda lib: lib.nn.functional.interpolate(lib.from_numpy(x), 2, mode=mode))


@pytest.mark.parametrize(
    "options",
    [
        {"size": (2.0, 2.0)},
        {"size": 2.5},
        {"size": "a"},
        {"size": True},
        {"size": -1},
        {"scale_factor": math.nan},
        {"scale_factor": math.inf},
        {"scale_factor": 1e30},
        {"scale_factor": math.nan, "recompute_scale_factor": True},
    ],
    ids=str,
)
def test_sizes_that_no_image_has(options):
    same_outcome(lambda lib: lib.nn.functional.interpolate(lib.ones(1, 2, 3, 3), **options))


@pytest.mark.parametrize(
    ("shape", "mode"),
    [
        ((1, 0, 3), "linear"),
        ((1, 0, 3, 3), "nearest"),
        ((1, 0, 3, 3), "area"),
        ((0, 1, 3, 3), "bicubic"),
        ((1, 0, 3, 3, 3), "trilinear"),
    ],
)
def test_images_without_channels(shape, mode):
    same_outcome(lambda lib: lib.nn.functional.interpolate(lib.ones(shape), 2, mode=mode))


# -- padding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        ((2, 3), (1, 2)),
        ((2, 3, 4), (1, 2)),
        ((2, 3, 4), (1, 2, 0, 1)),
        ((2, 3, 4, 5), (1, 2, 3, 1)),
        ((2, 3, 4, 5), (-1, 2, -2, 1)),
        ((2, 3, 4, 5), (-1, -2, 1, -1)),
        ((2, 3, 4, 5, 6), (1, 2, 2, 1, 1, 1)),
    ],
    ids=str,
)
def test_pad(mode, shape, pads):
    x = np.random.default_rng(0).standard_normal(shape)
    mine, theirs = (lib.nn.functional.pad(lib.from_numpy(x), pads, mode) for lib in (mt, torch))
    same(mine, theirs, 0)


def test_pad_with_other_dtypes_and_values():
    for dtype in ("int64", "bool", "float16", "complex128"):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        mine, theirs = (
            lib.nn.functional.pad(lib.from_numpy(x.copy()), (1, 2), value=1) for lib in (mt, torch)
        )
        same(mine, theirs, 0)
    x = mt.ones(2, 2)
    same_values = mt.nn.functional.pad(x, (0, 0))
    same_values[0, 0] = 5
    assert x[0, 0].item() == 1


# -- second gradients ------------------------------------------------------------------------------


def function(name, *args, **kwargs):
    return lambda lib, x: getattr(lib.nn.functional, name)(x, *args, **kwargs)


CASES = [
    Case("nearest", function("interpolate", 7), [(IMAGE,), (LINE,)]),
    Case("bilinear", function("interpolate", (3, 7), mode="bilinear"), [(IMAGE,)]),
    Case("bicubic", function("interpolate", (3, 7), mode="bicubic"), [(IMAGE,)]),
    Case("pixel_shuffle", function("pixel_shuffle", 2), [((2, 4, 3, 2),)]),
    Case("unfold", function("unfold", (3, 2), 1, 1, 2), [((2, 3, 5, 6),), ((3, 5, 6),)]),
    Case("fold", function("fold", (5, 6), (3, 2), 1, 1, 2), [((2, 12, 12),)]),
    *(
        Case(f"pad {mode}", function("pad", (1, 2, 3, 1), mode), [(IMAGE,)])
        for mode in ("constant", "reflect", "replicate", "circular")
    ),
    Case("pad negative", function("pad", (-1, 2, 3, -2), value=2.0), [(IMAGE,)]),
]
test_function_gradients = gradient_suite(CASES)


# -- errors ----------------------------------------------------------------------------------------

BAD_CALLS = [
    ("pad", (2, 3), ((1,),), RuntimeError, "Padding length must be divisible by 2"),
    (
        "pad",
        (2, 3),
        ((1,) * 6,),
        RuntimeError,
        "Padding length should be less than or equal to two",
    ),
    ("pad", (1, 2, 3), ((-2, -2),), RuntimeError, ""),
    ("pad", (1, 2, 3), ((3, 1), "reflect"), RuntimeError, "Padding size should be less than the"),
    ("pad", (1, 2, 3), ((4, 1), "circular"), RuntimeError, "wrapping around more than once"),
    ("pad", (1, 2, 3), ((1, 1), "reflect", 3), RuntimeError, "doesn't take in value argument"),
    ("pad", (1, 2, 3), ((1, 1), "mirror"), NotImplementedError, "Unrecognised padding mode mirror"),
    ("pad", (2, 3), ((1,) * 4, "reflect"), NotImplementedError, "Padding size 4 is not supported"),
    ("interpolate", (1, 2, 3), (), ValueError, "either size or scale_factor should be defined"),
    ("interpolate", (1, 2, 3), (4, 2), ValueError, "only one of size or scale_factor"),
    (
        "interpolate",
        (1, 2, 3),
        (4, None, "bilinear"),
        NotImplementedError,
        "Got 3D input, but bilinear",
    ),
    (
        "interpolate",
        (1, 2, 3, 3),
        (4, None, "linear"),
        NotImplementedError,
        "Got 4D input, but linear",
    ),
    ("interpolate", (1, 2, 3, 3), ((4, 4, 4),), ValueError, "must have the same number of spatial"),
    (
        "interpolate",
        (1, 2, 3),
        (4, None, "nearest", True),
        ValueError,
        "align_corners option can only",
    ),
    ("interpolate", (1, 2, 3), (4, None, "magic"), NotImplementedError, "Only 3D, 4D and 5D input"),
    ("interpolate", (1, 2), (4,), NotImplementedError, "Only 3D, 4D and 5D input"),
    ("interpolate", (1, 2, 3, 3), (0,), RuntimeError, "sizes should be greater than 0"),
    ("pixel_shuffle", (1, 3, 3, 3), (2,), RuntimeError, "input.size(-3)=3 is not divisible by 4"),
    ("pixel_shuffle", (3, 3), (2,), RuntimeError, "at least 3 dimensions"),
    (
        "pixel_shuffle",
        (1, 4, 3, 3),
        (0,),
        RuntimeError,
        "expects a positive upscale_factor, but got 0",
    ),
    (
        "pixel_unshuffle",
        (1, 4, 3, 3),
        (2,),
        RuntimeError,
        "height to be divisible by downscale_factor",
    ),
    (
        "unfold",
        (1, 3, 2, 2),
        (3,),
        RuntimeError,
        "calculated shape of the array of sliding blocks as",
    ),
    (
        "fold",
        (1, 12, 5),
        ((3, 3), 2),
        RuntimeError,
        "calculated number of sliding blocks 2 * 2 = 4",
    ),
    ("fold", (1, 11, 4), ((3, 3), 2), RuntimeError, "divisible by the product of kernel_size"),
    ("fold", (4,), ((3, 3), 2), RuntimeError, "Expected 2D or 3D (batch mode) tensor"),
]


@pytest.mark.parametrize(("name", "shape", "args", "kind", "text"), BAD_CALLS, ids=lambda v: str(v))
def test_call_errors(name, shape, args, kind, text):
    for lib in (mt, torch):
        with raises(kind, text):
            getattr(lib.nn.functional, name)(lib.zeros(shape), *args)


def test_unflatten_errors():
    for lib in (mt, torch):
        with raises(
            TypeError, "unflattened_size must be tuple of ints, but found element of type str"
        ):
            lib.nn.Unflatten(1, (2, "a"))
        with raises(TypeError, "found type int"):
            lib.nn.Unflatten(1, 4)


def test_errors_in_our_words():
    F = mt.nn.functional
    with raises(RuntimeError, "resulted in a negative output size, -1, for dimension 2"):
        F.pad(mt.zeros(1, 2, 3), (-2, -2))
    with raises(TypeError, "interpolate: expected a modtree.Tensor, got list"):
        F.interpolate([1.0], 2)
    with raises(ValueError, "recompute_scale_factor is not meaningful with an explicit size."):
        F.interpolate(mt.zeros(1, 1, 2, 2), 4, recompute_scale_factor=True)


def test_resizing_to_a_width_of_1_keeps_the_rows():
    x = mt.tensor([[[[1.0, 3.0], [5.0, 7.0]]]])
    y = mt.nn.functional.interpolate(x, (2, 1), mode="bilinear", antialias=True)
    assert y.flatten().tolist() == [2.0, 6.0]


@pytest.mark.parametrize("factor", [1.3, (2.3, 1.3), (1.1, 0.5)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_an_axis_that_keeps_its_size_is_not_smoothed(factor, mode):
    x = np.arange(12.0).reshape(1, 1, 3, 4) ** 2

    def program(lib):
        options = {"scale_factor": factor, "mode": mode, "antialias": True}
        return lib.nn.functional.interpolate(lib.from_numpy(x), **options)

    same_outcome(program)


def test_the_gradient_of_an_axis_that_keeps_its_size_is_that_of_the_value():
    x = mt.ones(1, 1, 2, 2, requires_grad=True)
    y = mt.nn.functional.interpolate(x, scale_factor=1.3, mode="bilinear", antialias=True)
    (y * mt.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [[[[1.0, 2.0], [3.0, 4.0]]]]


@pytest.mark.parametrize("factor", [1.3, 2.3])
def test_the_gradient_of_nearest_pixels_is_that_of_the_value(factor):
    x = mt.arange(30.0).reshape(1, 1, 2, 3, 5).requires_grad_()
    y = mt.nn.functional.interpolate(x, scale_factor=factor, mode="nearest")
    weights = mt.arange(float(y.numel())).reshape(y.shape)
    (y * weights).sum().backward()
    assert float((x * x.grad).sum()) == float((y * weights).sum())


@pytest.mark.parametrize(
    "line",
    [
        "f.interpolate(x[None, :1], None, 1.3, 'bilinear')",
        "f.interpolate(x[:, :2], None, 1.3, 'linear')",
        "f.interpolate(x[None].to(m.complex64), None, 1.1, 'bicubic', antialias=True)",
        "f.interpolate(x[0, 0], [3])",
        "f.interpolate(x[0, 0], [3], [2])",
        "f.interpolate(x[0, 0], align_corners=False)",
        "f.interpolate(x[0, 0])",
        "f.interpolate(x[0, 0], 3)",
        "f.interpolate(x, 3, mode='linear')",
        "f.interpolate(x, [3, 2], mode='linear', recompute_scale_factor=True)",
        "f.interpolate(x[0, 0], 3, mode='bilinear', antialias=True)",
        "f.interpolate(x[0, 0], 3, mode='reflect')",
        "f.pad(x[0, :, :1], (0, -1), 'reflect')",
        "f.pad(x.to(m.uint8), (1, 1), value=float('inf'))",
        "f.pad(x.to(m.uint8), (0, -1), value=float('inf'))",
        "f.unfold(x > 3, 2)",
        "f.unfold(x[0, 0], 2)",
        "f.unfold(x, [2], padding=1)",
        "f.fold(x.reshape(4, 6)[None, :, :6] > 3, (3, 4), 2)",
        "f.affine_grid(x[:, :2, :3], [3])",
        "f.grid_sample(x[0, 0, 0], x[0, 0, 0])",
        "f.adaptive_avg_pool2d(x[0], 1)",
        "f.adaptive_avg_pool2d(x[0, 0], 1)",
        "f.adaptive_avg_pool2d(x[0], (2, 2))",
        "f.avg_pool2d(x[0], 2)",
        "f.max_unpool1d(m.ones(2, 0), m.ones(2, 0).long(), 2)",
        "f.max_unpool1d(m.ones(3, 2), m.ones(3, 2).long(), 2, 2, 2)",
        "f.embedding(m.tensor(0), x[0, 0, 0])",
        "f.embedding(m.tensor(0), x[0, 0], padding_idx=3)",
        "m.embedding(m.tensor(0), x[0], 5)",
        "f.embedding_bag(m.tensor([[0]]), x[0, 0])",
        "f.embedding_bag(m.tensor([[0]]), x[0].long(), mode='mean')",
        "f.scaled_dot_product_attention(x, x, x, dropout_p=2.0)",
        "f.scaled_dot_product_attention(x, x, x, dropout_p=-2.0)",
        "f.scaled_dot_product_attention(x[0], x[0], x[0], enable_gqa=True)",
        "f.scaled_dot_product_attention(x, x, x, None, 0.0, False, 0.5)",
    ],
)
def test_arguments_and_what_is_refused(line):
    x = np.arange(24.0).reshape(2, 3, 4)
    same_outcome(lambda lib: eval(line, {"m": lib, "f": lib.nn.functional, "x": lib.from_numpy(x)}))


def test_the_largest_of_a_bag_with_nan():
    weight = np.array([[np.nan, 1], [2, 3]])
    same_outcome(
        differentiated(
            lambda lib, w: lib.nn.functional.embedding_bag(
                lib.tensor([[0, 0], [1, 1]]), w, mode="max"
            ),
            weight,
        )
    )
