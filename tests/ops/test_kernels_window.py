# SPDX-License-Identifier: BSD-3-Clause
"""Native max-pooling, im2col / col2im and convolutions, against loops over windows in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.kernels_common import check, dtypes, sample, strided

from modtree._C import kernels


def output_size(size, kernel, stride, padding, dilation):
    return tuple(
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    )


def places(size, out, kernel, stride, padding, dilation):
    """(window, element, row, column) of all elements of all windows inside the image."""
    ranges = [range(n) for n in (*out, *kernel)]
    for o_r, o_c, k_r, k_c in itertools.product(*ranges):
        r = o_r * stride[0] - padding[0] + k_r * dilation[0]
        c = o_c * stride[1] - padding[1] + k_c * dilation[1]
        if 0 <= r < size[0] and 0 <= c < size[1]:
            yield (o_r, o_c), (k_r, k_c), r, c


def max_pool(x, out, *window):
    best = np.full((*x.shape[:-2], *out), -np.inf)
    indices = np.full(best.shape, -1)
    for place in np.ndindex(*x.shape[:-2]):
        for o, _, r, c in places(x.shape[-2:], out, *window):
            v = x[(*place, r, c)]
            if indices[place + o] < 0 or v > best[place + o] or np.isnan(v):
                best[place + o], indices[place + o] = v, r * x.shape[-1] + c
    return best, indices


def im2col(x, out, kernel, *window):
    matrix = np.zeros((*x.shape[:2], *kernel, *out))
    for o, k, r, c in places(x.shape[-2:], out, kernel, *window):
        matrix[(slice(None), slice(None), *k, *o)] = x[:, :, r, c]
    return matrix.reshape(x.shape[0], x.shape[1] * kernel[0] * kernel[1], out[0] * out[1])


def col2im(matrix, shape, out, kernel, *window):
    matrix = matrix.reshape(*shape[:2], *kernel, *out)
    image = np.zeros(shape)
    for o, k, r, c in places(shape[-2:], out, kernel, *window):
        image[:, :, r, c] += matrix[(slice(None), slice(None), *k, *o)]
    return image


# size, kernel, stride, padding, dilation
WINDOWS = {
    "2x2": ((4, 6), (2, 2), (2, 2), (0, 0), (1, 1)),
    "overlapping": ((7, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    "stride 1": ((6, 21), (3, 5), (1, 1), (1, 2), (1, 1)),
    "dilated": ((9, 11), (3, 2), (1, 3), (1, 0), (2, 3)),
    "one axis": ((1, 13), (1, 3), (1, 3), (0, 1), (1, 1)),
    "whole image": ((5, 4), (5, 4), (1, 1), (0, 0), (1, 1)),
    "gaps": ((11, 12), (2, 1), (5, 4), (0, 0), (1, 1)),
    "wide padding": ((6, 4), (3, 3), (1, 2), (1, 1), (3, 2)),
    "as wide as the image": ((6, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
    "as wide, beside the image": ((2, 3), (5, 3), (1, 1), (3, 3), (1, 3)),
    "steps beyond the image": ((5, 7), (2, 3), (1 << 30, 20), (1, 0), (2, 1)),
}
windows = pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)


@windows
@dtypes
@pytest.mark.parametrize("leading", [(), (3,), (2, 2)], ids=str)
def test_max_pool(window, dtype, leading):
    size, *rest = window
    x = sample(dtype, (*leading, *size))
    out = output_size(*window)
    best, indices = max_pool(x, out, *rest)
    got, got_indices = kernels.max_pool(x, *rest)
    assert got_indices.dtype == np.int64
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, best)
    np.testing.assert_array_equal(got_indices, indices)
    for a, b in zip(kernels.max_pool(strided(x), *rest, output=out), (best, indices), strict=True):
        np.testing.assert_array_equal(a, b)

    g = sample(dtype, best.shape, 1)
    expected = np.zeros((*leading, size[0] * size[1]))
    for place in np.ndindex(*leading):
        np.add.at(expected[place], indices[place].ravel(), g[place].ravel())
    expected = expected.reshape(x.shape)
    check(kernels.max_pool_backward(g, indices, size), expected, dtype)
    check(kernels.max_pool_backward(strided(g), indices.astype("int32"), size), expected, dtype)


def test_max_pool_of_a_larger_output():
    """What ceil_mode needs: the last window reaches beyond the image."""
    x = np.arange(25.0).reshape(5, 5)
    got, indices = kernels.max_pool(x, (2, 2), output=(3, 3))
    np.testing.assert_array_equal(got, [[6, 8, 9], [16, 18, 19], [21, 23, 24]])
    np.testing.assert_array_equal(indices, got)
    with pytest.raises(ValueError, match="window 3 of an axis lies wholly in the padding"):
        kernels.max_pool(x, (2, 2), output=(3, 4))
    with pytest.raises(ValueError, match="window 0 of an axis lies wholly in the padding"):
        kernels.max_pool(x, (2, 2), padding=(2, 0))


@dtypes
def test_max_pool_of_special_values(dtype):
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, -inf, 1, nan, 2, 2, nan, nan, inf, nan]], dtype)
    got, indices = kernels.max_pool(x, (1, 2))
    np.testing.assert_array_equal(got, [[-inf, nan, 2, nan, nan]])
    np.testing.assert_array_equal(indices, [[0, 3, 4, 7, 9]])


def test_pool_arguments_are_checked():
    x = np.zeros((2, 4, 4))
    for bad in (16, -1, 2**40):
        with pytest.raises(
            IndexError, match=f"index {bad} is out of range: the image's size is 16"
        ):
            kernels.max_pool_backward(x[:, :1, :1], np.array([[[0]], [[bad]]]), (4, 4))
    with pytest.raises(ValueError, match="indices must have the shape of g"):
        kernels.max_pool_backward(x, np.zeros((2, 4), int), (4, 4))
    with pytest.raises(ValueError, match="larger than the padded image"):
        kernels.max_pool(x, (5, 1))
    with pytest.raises(ValueError, match="at least 2 axes"):
        kernels.max_pool(np.zeros(3), (1, 1))
    for name, arguments in {
        "kernel": ((0, 1),),
        "stride": ((1, 1), (1, 0)),
        "padding": ((1, 1), (1, 1), (-1, 0)),
        "dilation": ((1, 1), (1, 1), (0, 0), (0, 1)),
        "output": ((1, 1), (1, 1), (0, 0), (1, 1), (1, -1)),
    }.items():
        with pytest.raises(ValueError, match=f"{name} must be from"):
            kernels.max_pool(x, *arguments)
    with pytest.raises(ValueError, match="stride must be from 1 to"):
        kernels.max_pool(x, (1, 1), (2**62, 1))
    assert kernels.max_pool(np.zeros((0, 4, 4)), (2, 2))[0].shape == (0, 2, 2)


@windows
@dtypes
@pytest.mark.parametrize("batch_last", [False, True])
def test_columns(window, dtype, batch_last):
    size, *rest = window
    shape = (2, 3, *size)
    x = sample(dtype, shape)
    out = output_size(*window)
    expected = im2col(x, out, *rest)
    reverse = col2im(sample("float64", expected.shape, 1), shape, out, *rest)
    matrix = sample(dtype, expected.shape, 1)
    if batch_last:
        expected, matrix = (
            m.transpose(1, 0, 2).reshape(m.shape[1], -1) for m in (expected, matrix)
        )
    got = kernels.im2col(x, *rest, batch_last=batch_last)
    check(got, expected, dtype)
    np.testing.assert_array_equal(
        kernels.im2col(strided(x), *rest, output=out, batch_last=batch_last), got
    )
    into = np.full(got.shape, np.nan, dtype)
    assert kernels.im2col(x, *rest, batch_last=batch_last, out=into) is into
    np.testing.assert_array_equal(into, got)
    got = kernels.col2im(matrix, shape, *rest, batch_last=batch_last)
    check(got, reverse, dtype)
    into = np.full(shape, np.nan, dtype)
    assert kernels.col2im(matrix, shape, *rest, batch_last=batch_last, out=into) is into
    np.testing.assert_array_equal(into, got)
    np.testing.assert_array_equal(
        kernels.col2im(strided(matrix), shape, *rest, output=out, batch_last=batch_last), got
    )


@pytest.mark.parametrize("out", [(1, 1), (4, 2), (7, 9), (0, 3)], ids=str)
def test_columns_of_any_output(out):
    """Windows beyond the image are padding: what 'same' with an even kernel needs."""
    x = sample("float64", (2, 1, 5, 6))
    rest = ((2, 4), (1, 2), (0, 1), (1, 1))
    np.testing.assert_array_equal(kernels.im2col(x, *rest, output=out), im2col(x, out, *rest))
    matrix = sample("float64", (2, 8, out[0] * out[1]), 1)
    np.testing.assert_allclose(
        kernels.col2im(matrix, x.shape, *rest, output=out), col2im(matrix, x.shape, out, *rest)
    )


def test_column_arguments_are_checked():
    x = np.zeros((2, 3, 4, 4))
    with pytest.raises(
        ValueError, match=r"images must have shape \(N, C, height, width\), got \(3, 4, 4\)"
    ):
        kernels.im2col(x[0], (2, 2))
    with pytest.raises(ValueError, match=r"columns must have shape \(2, 12, 9\), got \(2, 12, 8\)"):
        kernels.col2im(np.zeros((2, 12, 8)), x.shape, (2, 2))
    with pytest.raises(ValueError, match="larger than the padded image"):
        kernels.im2col(x, (5, 5))
    with pytest.raises(ValueError, match="number of channels must be from 0"):
        kernels.col2im(np.zeros((2, 12, 9)), (2, -3, 4, 4), (2, 2))
    with pytest.raises(TypeError, match="float32 or float64"):
        kernels.im2col(x.astype("int32"), (2, 2))
    with pytest.raises(ValueError, match=r"out must have shape \(2, 12, 9\), got \(12, 2, 9\)"):
        kernels.im2col(x, (2, 2), out=np.zeros((12, 2, 9)))
    with pytest.raises(TypeError, match="out must be an array of float64"):
        kernels.im2col(x, (2, 2), out=np.zeros((2, 12, 9), "float32"))
    with pytest.raises(ValueError, match="out must be C-contiguous"):
        kernels.col2im(np.zeros((2, 12, 9)), x.shape, (2, 2), out=x[:, :, ::-1])


def convolution(x, weight, out, kernel, *window, groups=1):
    """By columns, in double precision."""
    n, elements = len(x), weight[0].size
    matrix = im2col(x, out, kernel, *window).reshape(n, groups, elements, out[0] * out[1])
    y = np.matmul(weight.astype("float64").reshape(groups, -1, elements), matrix)
    return y.reshape(n, len(weight), *out)


@windows
@dtypes
@pytest.mark.parametrize("groups", [1, 3])
def test_convolution(window, dtype, groups):
    size, kernel, *rest = window
    x = sample(dtype, (2, 6, *size))
    weight, bias = sample(dtype, (9, 6 // groups, *kernel), 1), sample(dtype, (9,), 2)
    out = output_size(*window)
    y = convolution(x, weight, out, kernel, *rest, groups=groups)
    tolerance = {"float32": 1e-5, "float64": 1e-12}
    got = kernels.convolution(x, weight, None, *rest, groups)
    check(got, y, dtype, tolerance)
    got = kernels.convolution(x, weight, bias, *rest, groups)
    check(got, y + bias[:, None, None], dtype, tolerance)
    again = kernels.convolution(strided(x), strided(weight), strided(bias), *rest, groups, out)
    np.testing.assert_array_equal(again, got)


# images, channels, height and width, output channels, kernel, stride, padding, groups
@pytest.mark.parametrize(
    "case",
    [
        (3, 70, (7, 7), 13, 3, 1, 1, 1),
        (2, 3, (40, 41), 17, 7, 2, 3, 1),
        (14, 64, (6, 5), 8, 3, 1, 1, 1),
        (3, 1030, (5, 7), 6, 1, 1, 0, 1),
        (2, 12, (61, 47), 10, 3, 3, 0, 2),
        # Whole vectors of windows in each row: they are read where they are.
        (3, 100, (16, 16), 9, 3, 1, 1, 1),
        (2, 5, (33, 48), 17, 3, 1, 1, 1),
        (2, 7, (31, 32), 12, 3, 2, 1, 1),
        (2, 30, (8, 8), 20, 1, 1, 0, 1),
        (2, 30, (8, 16), 20, 1, 2, 0, 2),
        (2, 9, (16, 16), 70, 3, 1, 1, 1),
        (5, 9, (1, 130), 7, 1, 2, 0, 1),
        # Windows of several rows in one vector, images that end within one, parts of a depth.
        (3, 5, (14, 14), 9, 3, 1, 1, 1),
        (20, 6, (4, 4), 10, 3, 1, 1, 2),
        (3, 6, (15, 13), 9, 3, 2, 1, 1),
        (2, 90, (8, 9), 11, 3, 1, 2, 1),
        # Strips of an image, whose first and last see zeros.
        (2, 40, (27, 60), 3, 3, 1, 1, 1),
        (1, 30, (41, 90), 3, 4, 2, 3, 1),
        (2, 60, (25, 66), 3, 3, 1, 0, 1),
    ],
    ids=str,
)
@dtypes
def test_convolution_of_many_channels_and_windows(case, dtype):
    """Panels that end in the middle of an image, and more rows than one panel takes."""
    images, channels, size, outputs, kernel, stride, padding, groups = case
    x = sample(dtype, (images, channels, *size))
    weight = sample(dtype, (outputs, channels // groups, kernel, kernel), 1)
    rest = ((kernel,) * 2, (stride,) * 2, (padding,) * 2, (1, 1))
    out = output_size(size, *rest)
    y = convolution(x, weight, out, *rest, groups=groups)
    got = kernels.convolution(x, weight, None, *rest[1:], groups)
    check(got, y, dtype, {"float32": 2e-4, "float64": 1e-11})


@pytest.mark.parametrize("out", [(1, 1), (4, 2), (7, 9), (0, 3)], ids=str)
@pytest.mark.parametrize("padding", [(0, 0), (0, 1), (9, 9)], ids=str)
def test_convolution_of_any_output(out, padding):
    x, weight = sample("float64", (2, 2, 5, 6)), sample("float64", (3, 2, 2, 4), 1)
    kernel, *rest = (2, 4), (1, 2), padding, (1, 1)
    np.testing.assert_allclose(
        kernels.convolution(x, weight, None, *rest, output=out),
        convolution(x, weight, out, kernel, *rest),
        atol=1e-12,
    )


def test_convolution_keeps_nan_to_its_windows():
    x = np.zeros((1, 1, 3, 40))
    x[0, 0, 1, 3] = np.nan
    got = kernels.convolution(x, np.ones((1, 1, 1, 2)), padding=(0, 1))
    np.testing.assert_array_equal(np.argwhere(np.isnan(got[0, 0])), [[1, 3], [1, 4]])


def test_convolution_without_channels_or_images():
    bias = np.arange(2.0)
    got = kernels.convolution(np.zeros((3, 0, 4, 4)), np.zeros((2, 0, 2, 2)), bias)
    np.testing.assert_array_equal(got, np.broadcast_to(bias[:, None, None], (3, 2, 3, 3)))
    x, weight = np.zeros((2, 3, 4, 4)), np.zeros((2, 3, 2, 2))
    assert kernels.convolution(x[:0], weight).shape == (0, 2, 3, 3)
    assert kernels.convolution(x, weight[:0]).shape == (2, 0, 3, 3)


def test_convolution_arguments_are_checked():
    x, weight = np.zeros((2, 4, 4, 4)), np.zeros((6, 2, 2, 2))
    with pytest.raises(ValueError, match="images must have shape"):
        kernels.convolution(x[0], weight)
    for groups, wrong in ((1, weight), (4, weight), (2, weight[:5]), (2, weight[0])):
        with pytest.raises(ValueError, match=f"does not fit images of shape .* in {groups} groups"):
            kernels.convolution(x, wrong, groups=groups)
    with pytest.raises(ValueError, match="groups must be from 1"):
        kernels.convolution(x, weight, groups=0)
    with pytest.raises(TypeError, match="weight must be of float64"):
        kernels.convolution(x, weight.astype("float32"), groups=2)
    with pytest.raises(ValueError, match=r"bias must have shape \(6,\), got \(5,\)"):
        kernels.convolution(x, weight, np.zeros(5), groups=2)
    with pytest.raises(ValueError, match="the padded image is too large"):
        kernels.convolution(x, weight, padding=(2**29 - 2, 2**29 - 2), groups=2)
    with pytest.raises(ValueError, match="larger than the padded image"):
        kernels.convolution(x, np.zeros((6, 4, 5, 5)))


def depthwise(x, weight, out, kernel, *window):
    """By columns: (N, G, elements of a window, windows) times (G, multiplier, elements)."""
    n, groups = x.shape[:2]
    matrix = im2col(x, out, kernel, *window).reshape(
        n, groups, kernel[0] * kernel[1], out[0] * out[1]
    )
    y = np.einsum("gmk,ngkl->ngml", weight.reshape(groups, -1, kernel[0] * kernel[1]), matrix)
    return y.reshape(n, len(weight), *out), matrix


@windows
@dtypes
@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise(window, dtype, multiplier):
    size, kernel, *rest = window
    x, weight = sample(dtype, (2, 3, *size)), sample(dtype, (3 * multiplier, 1, *kernel), 1)
    out = output_size(*window)
    y, columns = depthwise(*(a.astype("float64") for a in (x, weight)), out, kernel, *rest)
    got = kernels.depthwise(x, weight, *rest)
    check(got, y, dtype, {"float32": 1e-5, "float64": 1e-12})
    again = kernels.depthwise(strided(x), strided(weight), *rest, output=out)
    check(again, got, dtype)

    g = sample(dtype, y.shape, 2)
    parts = g.astype("float64").reshape(2, 3, multiplier, -1)
    matrices = weight.astype("float64").reshape(3, multiplier, -1)
    matrix = np.einsum("gmk,ngml->ngkl", matrices, parts)
    expected = col2im(matrix, x.shape, out, kernel, *rest)
    got = kernels.depthwise_transposed(g, weight, x.shape, *rest)
    check(got, expected, dtype, {"float32": 1e-5, "float64": 1e-12})
    again = kernels.depthwise_transposed(strided(g), strided(weight), x.shape, *rest)
    check(again, got, dtype)

    expected = np.einsum("ngkl,ngml->gmk", columns, parts).reshape(weight.shape)
    got = kernels.depthwise_weight(x, g, kernel, *rest)
    check(got, expected, dtype, {"float32": 2e-5, "float64": 1e-12})
    again = kernels.depthwise_weight(strided(x), strided(g), kernel, *rest)
    check(again, got, dtype, {"float32": 1e-5, "float64": 1e-12})


@pytest.mark.parametrize("out", [(1, 1), (4, 2), (7, 9), (0, 3)], ids=str)
def test_depthwise_of_any_output(out):
    x, weight = sample("float64", (2, 2, 5, 6)), sample("float64", (2, 1, 2, 4), 1)
    kernel, *rest = (2, 4), (1, 2), (0, 1), (1, 1)
    y, columns = depthwise(x, weight, out, kernel, *rest)
    np.testing.assert_allclose(kernels.depthwise(x, weight, *rest, output=out), y, atol=1e-12)
    g = sample("float64", y.shape, 2)
    matrix = np.einsum("gk,ngl->ngkl", weight.reshape(2, -1), g.reshape(2, 2, out[0] * out[1]))
    np.testing.assert_allclose(
        kernels.depthwise_transposed(g, weight, x.shape, *rest),
        col2im(matrix, x.shape, out, kernel, *rest),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        kernels.depthwise_weight(x, g, kernel, *rest).reshape(2, -1),
        np.einsum("ngkl,ngl->gk", columns, g.reshape(2, 2, out[0] * out[1])),
        atol=1e-12,
    )


def test_depthwise_keeps_nan_to_its_windows():
    x = np.zeros((1, 1, 3, 4))
    x[0, 0, 1, 3] = np.nan
    got = kernels.depthwise(x, np.ones((1, 1, 1, 2)), padding=(0, 1))
    np.testing.assert_array_equal(np.argwhere(np.isnan(got[0, 0])), [[1, 3], [1, 4]])


def test_depthwise_arguments_are_checked():
    x, weight = np.zeros((2, 3, 4, 4)), np.zeros((3, 1, 2, 2))
    with pytest.raises(ValueError, match=r"expected a weight \(O, 1, height, width\), got shape"):
        kernels.depthwise(x, np.zeros((3, 2, 2, 2)))
    with pytest.raises(ValueError, match="expected a multiple of 3 output channels"):
        kernels.depthwise(x, np.zeros((4, 1, 2, 2)))
    with pytest.raises(ValueError, match="images must have shape"):
        kernels.depthwise(x[0], weight)
    with pytest.raises(TypeError, match="weight must be of float64"):
        kernels.depthwise(x, weight.astype("float32"))
    with pytest.raises(ValueError, match="the padded image is too large"):
        kernels.depthwise(x, weight, padding=(2**29 - 2, 2**29 - 2))
    with pytest.raises(ValueError, match="larger than the padded image"):
        kernels.depthwise(x, np.zeros((3, 1, 5, 5)))
    with pytest.raises(ValueError, match=r"y must have shape \(2, 3, 3, 3\), got \(1, 3, 3, 3\)"):
        kernels.depthwise_weight(x, np.zeros((1, 3, 3, 3)), (2, 2))
    with pytest.raises(ValueError, match=r"y must have shape \(2, 3, 3, 3\), got \(2, 6, 3, 3\)"):
        kernels.depthwise_transposed(np.zeros((2, 6, 3, 3)), weight, x.shape)
    with pytest.raises(ValueError, match="number of channels must be from 1"):
        kernels.depthwise(x[:, :0], weight)
    assert kernels.depthwise(x[:0], weight).shape == (0, 3, 3, 3)
    assert not kernels.depthwise_weight(x[:0], np.zeros((0, 3, 3, 3)), (2, 2)).any()
