# SPDX-License-Identifier: BSD-3-Clause
"""Native grid_sample, distances and ctc, against loops and differences; values against torch's are
in tests/nn and tests/ops/test_gradients_special.py.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.kernels_common import TOLERANCE, dtypes, numeric_gradient, sample, strided

import modtree as mt
from modtree._C import kernels

# -- distances -------------------------------------------------------------------------------------

orders = pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
SIZES = [(1, 1, 1), (3, 2, 4), (5, 70, 3), (9, 33, 17), (0, 3, 2), (3, 0, 2), (3, 2, 0)]


def distances(x, y, p):
    d = np.abs(x[:, :, None].astype(float) - y[:, None].astype(float))
    if p == 0:
        return (d != 0).sum(-1).astype(float)
    if math.isinf(p):
        return d.max(-1, initial=0)
    return (d**p).sum(-1) ** (1 / p)


@dtypes
@orders
@pytest.mark.parametrize(("rows", "columns", "width"), SIZES)
def test_distance(rows, columns, width, p, dtype):
    x, y = sample(dtype, (2, rows, width)), sample(dtype, (2, columns, width), 1)
    expected = distances(x, y, p)
    for points, others in ((x, y.swapaxes(1, 2)), (strided(x), np.array(y.swapaxes(1, 2)))):
        got = kernels.distance(points, others, p)
        assert got.dtype == dtype
        tolerance = 20 * np.finfo(dtype).eps
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@orders
@pytest.mark.parametrize(("rows", "columns", "width"), [(3, 2, 4), (2, 67, 3)])
def test_gradients_of_distance(rows, columns, width, p):
    x, y = sample("float64", (1, rows, width)), sample("float64", (1, columns, width), 1)
    yt = np.ascontiguousarray(y.swapaxes(1, 2))
    g = sample("float64", (1, rows, columns), 2)
    dx, dyt = kernels.distance_backward(g, kernels.distance(x, yt, p), x, yt, p)
    np.testing.assert_allclose(
        dx, numeric_gradient(lambda v: distances(v, y, p), x, g) * (p > 0), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        dyt.swapaxes(1, 2),
        numeric_gradient(lambda v: distances(x, v, p), y, g) * (p > 0),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0])
def test_distances_of_points_that_are_not_finite(p, torch):
    values = [0.0, 1.0, math.inf, -math.inf, math.nan]
    points = np.array(list(itertools.product(values, repeat=2)), np.float32)
    points = np.concatenate([points, np.ones_like(points)], axis=1)
    mode = "donot_use_mm_for_euclid_dist"
    expected = torch.cdist(*[torch.tensor(points)] * 2, p, mode).numpy()
    np.testing.assert_array_equal(mt.cdist(*[mt.tensor(points)] * 2, p, mode), expected)


def test_cdist_keeps_nan_in_the_largest_difference():
    x = mt.tensor([[1.0, math.nan]])
    assert mt.cdist(x, x, math.inf).isnan().all()


@pytest.mark.parametrize("mode", [None, "use_mm_for_euclid_dist"])
def test_cdist_is_exact_for_points_that_lie_close_together(mode):
    x = mt.tensor(np.full((30, 3), 1000.0, np.float32))
    y = x + mt.tensor(np.float32([0.125, 0, 0]))
    assert (mt.cdist(x, y, compute_mode=mode) == 0.125).all()
    assert (mt.cdist(x, x) == 0).all()


def test_gradients_of_points_that_are_equal():
    x = mt.ones(3, 2, requires_grad=True)
    for p in (0.5, 1.0, 2.0, 3.0, math.inf):
        (slope,) = mt.autograd.grad(mt.cdist(x, x, p).sum(), x)
        assert (slope == 0).all()


def test_one_set_of_points_with_itself_has_second_derivatives():
    values = np.random.default_rng(0).normal(size=(4, 3))
    x = mt.tensor(values, requires_grad=True)
    assert mt.autograd.gradgradcheck(lambda x: mt.cdist(x, x.square() + 1), (x,))
    (both,) = mt.autograd.grad(mt.cdist(x, x).sum(), x, create_graph=True)
    (plain,) = mt.autograd.grad(mt.cdist(x, x).sum(), x)
    np.testing.assert_allclose(both.detach().numpy(), plain.numpy(), rtol=1e-12)


def test_arguments_of_cdist():
    x = mt.ones(2, 3)
    with pytest.raises(RuntimeError, match="non-negative p values"):
        mt.cdist(x, x, -1.0)
    with pytest.raises(ValueError, match="not a valid value for compute_mode"):
        mt.cdist(x, x, compute_mode="quick")


# -- grid_sample -----------------------------------------------------------------------------------

MODES = [
    (mode, padding, align)
    for mode, padding, align in itertools.product(
        ("nearest", "bilinear", "bicubic"), ("zeros", "border", "reflection"), (True, False)
    )
]


@pytest.mark.parametrize(("mode", "padding", "align"), MODES)
@pytest.mark.parametrize("spatial", [(4, 5), (1, 3), (3, 2, 4)], ids=str)
def test_gradients_of_grid_sample(spatial, mode, padding, align):
    if mode == "bicubic" and len(spatial) == 3:
        pytest.skip("there is none")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 2, *spatial))
    grid = rng.uniform(-1.7, 1.7, (2, 3, *spatial[1:], len(spatial)))
    options = (mode, padding, align)
    out = kernels.grid_sample(x, grid, *options)
    np.testing.assert_array_equal(kernels.grid_sample(strided(x), strided(grid), *options), out)
    g = rng.standard_normal(out.shape)
    dx, dgrid = kernels.grid_sample_backward(g, x, grid, *options)
    step = 1e-6
    np.testing.assert_allclose(
        dx, numeric_gradient(lambda v: kernels.grid_sample(v, grid, *options), x, g), atol=1e-8
    )
    np.testing.assert_allclose(
        dgrid,
        numeric_gradient(lambda v: kernels.grid_sample(x, v, *options), grid, g, step),
        atol=1e-6,
    )
    alone = kernels.grid_sample_backward(g, x, grid, *options, True, False)
    np.testing.assert_array_equal(alone[0], dx)
    assert alone[1] is None
    alone = kernels.grid_sample_backward(g, x, grid, *options, False, True)
    np.testing.assert_array_equal(alone[1], dgrid)
    assert alone[0] is None


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_that_are_no_numbers_read_nothing_outside(mode, padding):
    x = np.ones((1, 1, 3, 3))
    grid = np.array([math.nan, math.inf, -math.inf, 1e300, -1e300, 1e18]).repeat(2)
    out = kernels.grid_sample(x, grid.reshape(1, 1, 6, 2), mode, padding, False)
    assert out.shape == (1, 1, 1, 6)
    kernels.grid_sample_backward(out, x, grid.reshape(1, 1, 6, 2), mode, padding, False)


def test_pixels_outside_are_not_multiplied():
    x = np.full((1, 1, 2, 2), math.inf)
    grid = np.full((1, 1, 1, 2), -5.0)
    assert kernels.grid_sample(x, grid, "bilinear", "zeros", False).item() == 0


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("spatial", [(4, 5), (3, 2, 4)], ids=str)
@dtypes
def test_grid_sample_of_arrays_of_any_strides(spatial, mode, dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, *spatial)).astype(dtype)
    grid = rng.uniform(-1.2, 1.2, (2, 37, *spatial[1:], len(spatial))).astype(dtype)
    options = (mode, "zeros", False)
    out = kernels.grid_sample(x, grid, *options)

    def layouts(array):
        yield np.ascontiguousarray(array.T).T
        yield np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
        yield np.ascontiguousarray(array[::-1, ..., ::-1])[::-1, ..., ::-1]
        record = np.zeros(array.shape, np.dtype([("other", "i1"), ("value", dtype)]))
        record["value"] = array
        yield record["value"]

    for x_like, grid_like in itertools.product(layouts(x), layouts(grid)):
        np.testing.assert_array_equal(kernels.grid_sample(x_like, grid_like, *options), out)
    x_like, grid_like = np.broadcast_to(x[:1, :1], x.shape), np.broadcast_to(grid[:1], grid.shape)
    np.testing.assert_array_equal(
        kernels.grid_sample(x_like, grid_like, *options),
        kernels.grid_sample(x_like.copy(), grid_like.copy(), *options),
    )


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 0, 3, 3), (2, 2, 0, 3)], ids=str)
def test_empty_images(shape):
    x, grid = np.ones(shape), np.zeros((shape[0], 2, 2, 2))
    out = kernels.grid_sample(x, grid, "bilinear", "zeros", False)
    assert out.shape == (*shape[:2], 2, 2)


def test_arguments_of_grid_sample():
    x, grid = np.ones((1, 1, 3, 3)), np.zeros((1, 2, 2, 2))
    for wrong in (
        (x[0], grid, "bilinear", "zeros", False),
        (x, grid[..., :1], "bilinear", "zeros", False),
        (x, grid[0], "bilinear", "zeros", False),
        (x, grid, "cubic", "zeros", False),
        (x, grid, "bilinear", "zero", False),
        (x[:, :, None], np.zeros((1, 1, 2, 2, 3)), "bicubic", "zeros", False),
    ):
        with pytest.raises(ValueError, match="grid_sample"):
            kernels.grid_sample(*wrong)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_has_second_derivatives(mode):
    rng = np.random.default_rng(0)
    x = mt.tensor(rng.standard_normal((1, 2, 4, 5)), requires_grad=True)
    grid = mt.tensor(rng.uniform(-0.8, 0.8, (1, 2, 3, 2)), requires_grad=True)
    assert mt.autograd.gradgradcheck(
        lambda x, g: mt.nn.functional.grid_sample(x, g, mode=mode, align_corners=False), (x, grid)
    )


# -- ctc -------------------------------------------------------------------------------------------


def likelihood(probabilities, labels, blank):
    """The sum over all ways to write the labels: by trying all sequences of classes."""
    total = 0.0
    for path in itertools.product(range(probabilities.shape[1]), repeat=len(probabilities)):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c != blank] == list(labels):
            total += math.prod(probabilities[t, c] for t, c in enumerate(path))
    return total


@dtypes
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc(blank, dtype):
    rng = np.random.default_rng(0)
    other = 2 - blank
    targets = [[1, other], [1, 1], [], [other], [1, other, 1]]
    logits = rng.standard_normal((5, 5, 3))
    log_probs = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(dtype)
    used = np.array([5, 4, 3, 1, 5])
    lengths = np.array([len(t) for t in targets])
    arguments = (np.array(sum(targets, [])), np.cumsum(lengths) - lengths, lengths, used, blank)
    losses = kernels.ctc(log_probs, *arguments)

    def reference(x):
        return np.array(
            [
                -math.log(likelihood(np.exp(x[: used[i], i]), targets[i], blank))
                for i in range(len(targets))
            ]
        )

    tolerance = 4 * TOLERANCE[dtype]
    np.testing.assert_allclose(losses, reference(log_probs.astype(float)), rtol=tolerance)
    g = rng.standard_normal(5).astype(dtype)
    again, gradient = kernels.ctc(log_probs, *arguments, g)
    np.testing.assert_array_equal(again, losses)
    if dtype == "float64":
        np.testing.assert_allclose(
            gradient, numeric_gradient(reference, log_probs, g), rtol=1e-6, atol=1e-8
        )


def test_ctc_of_what_does_not_fit():
    log_probs = np.log(np.full((2, 3, 3), 1 / 3))
    arguments = (np.array([1, 1, 1]), np.array([0, 2, 3]), np.array([2, 1, 0]))
    losses, gradient = kernels.ctc(log_probs, *arguments, np.array([2, 0, 0]), 0, np.ones(3))
    np.testing.assert_array_equal(losses, [math.inf, math.inf, 0])
    assert not gradient.any()


def test_ctc_with_impossible_classes_and_nan():
    log_probs = np.log(np.full((3, 2, 3), 1 / 3))
    log_probs[:, 0, 2] = -math.inf
    log_probs[1, 1, 1] = math.nan
    arguments = (np.array([1, 1]), np.array([0, 1]), np.array([1, 1]), np.array([3, 3]), 0)
    losses, gradient = kernels.ctc(log_probs, *arguments, np.ones(2))
    assert np.isfinite(losses[0])
    assert np.isfinite(gradient[:, 0]).all()
    assert np.isnan(losses[1])
    assert np.isnan(gradient[:, 1]).any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", [1, 3]),
        ("labels", [1, -1]),
        ("starts", [0, 2]),
        ("starts", [-1, 1]),
        ("lengths", [1, 2]),
        ("lengths", [1, -1]),
        ("used", [3, 4]),
        ("used", [3, -1]),
        ("blank", 3),
    ],
)
def test_arguments_of_ctc(name, value):
    arguments = {
        "labels": np.array([1, 1]),
        "starts": np.array([0, 1]),
        "lengths": np.array([1, 1]),
        "used": np.array([3, 3]),
        "blank": 0,
    }
    arguments[name] = value if name == "blank" else np.array(value)
    with pytest.raises(IndexError, match="ctc"):
        kernels.ctc(np.zeros((3, 2, 3)), **arguments)


def test_ctc_has_second_derivatives():
    rng = np.random.default_rng(0)
    x = mt.tensor(rng.standard_normal((4, 2, 3)), requires_grad=True)

    def loss(x):
        log_probs = x.log_softmax(-1)
        targets = mt.tensor([[1, 2], [1, 1]])
        return mt.nn.functional.ctc_loss(log_probs, targets, (4, 4), (2, 1), reduction="none")

    assert mt.autograd.gradcheck(loss, (x,))
    assert mt.autograd.gradgradcheck(loss, (x,))


def test_many_samples_of_nothing():
    """So many that a loop over them would not end, or its memory not be had."""
    x, none = np.empty((1 << 57, 0, 0), np.float32), np.empty(0, np.int64)
    assert kernels.distance(x, x, 2.0).shape == x.shape
    assert [d.shape for d in kernels.distance_backward(x, x, x, x, 2.0)] == [x.shape, x.shape]
    images = np.empty((1 << 57, 0, 1, 1), np.float32)
    places = np.empty((1 << 57, 0, 0, 2), np.float32)
    how = ("bilinear", "zeros", False)
    g = kernels.grid_sample(images, places, *how)
    assert g.shape == (1 << 57, 0, 0, 0)
    dx, dplaces = kernels.grid_sample_backward(g, images, places, *how)
    assert (dx.shape, dplaces.shape) == (images.shape, places.shape)
    steps = np.empty((1 << 50, 0, 5), np.float32)
    assert kernels.ctc(steps, none, none, none, none, 0).shape == (0,)
