# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions over any number of axes.

Three operations, each linear in both of its arrays, and each the derivative of the others: the
convolution, the transposed convolution (its derivative by the input) and the convolution over the
batch (its derivative by the weight). So gradients can be derived again, as often as one likes.

A window is copied into a column, and the rest is matrix products (:mod:`._columns`); where each
channel has a window of its own, products of shifted images (:mod:`._depthwise`). What the native
kernels know goes to them (:mod:`._images`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from modtree.numpy.ops import conv_columns as _columns
from modtree.numpy.ops import conv_depthwise as _depthwise
from modtree.numpy.ops import conv_images as _images
from modtree.numpy.ops.generic import Array, Spec, need_arrays, zeros_of
from modtree.numpy.ops.registry import define, derive
from modtree.numpy.ops.windows import Sizes, conj, cropped, padded, run, wide, window_count

# -- shapes ----------------------------------------------------------------------------------------


def _text(sizes: Any) -> str:
    return "(" + " x ".join(map(str, sizes)) + ")"


def _check(
    name: str,
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    transposed: bool,
) -> None:
    need_arrays(name, x, weight, *(() if bias is None else (bias,)))
    if weight.ndim != x.ndim:
        raise RuntimeError(
            f"Expected {x.ndim}-dimensional weight for {x.ndim}-dimensional input {list(x.shape)}, "
            f"but got weight of size {list(weight.shape)} instead"
        )
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(dilation) <= 0:
        raise RuntimeError("non-positive dilation is not supported")
    if weight.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{list(weight.shape)}] instead"
        )
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.shape[1] != expected:
        given = f"transposed={int(transposed)}" if transposed else f"groups={groups}"
        raise RuntimeError(
            f"Given {given}, weight of size {list(weight.shape)}, expected input{list(x.shape)} to "
            f"have {expected} channels, but got {x.shape[1]} channels instead"
        )
    out = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (out,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{out} elements, but got bias of size {list(bias.shape)} instead"
        )
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != x.dtype):
        other = "weight" if x.dtype != weight.dtype else "bias"
        found = weight.dtype if other == "weight" or bias is None else bias.dtype
        raise RuntimeError(
            f"{name}: Input type ({x.dtype}) and {other} type ({found}) should be the same. "
            "Convert the input or the module with .to(dtype)"
        )


def _counts(x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    return _counts_of(x.shape[2:], kernel, stride, padding, dilation)


@lru_cache(maxsize=1024)
def _counts_of(
    sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Sizes:
    sizes = tuple(n + 2 * p for n, p in zip(sizes, padding, strict=True))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    if any(n < k for n, k in zip(sizes, reach, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: {_text(sizes)}. Kernel size: "
            f"{_text(reach)}. Kernel size can't be greater than actual input size"
        )
    return tuple(map(window_count, sizes, kernel, stride, dilation))


def _transposed_sizes(
    y: Array, kernel: Sizes, stride: Sizes, padding: Sizes, extra: Sizes, dilation: Sizes
) -> Sizes:
    """Spatial sizes of the result of a transposed convolution."""
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + e
        for n, k, s, p, e, d in zip(
            y.shape[2:], kernel, stride, padding, extra, dilation, strict=True
        )
    )


def _check_unusual(name: str, x: Array, weight: Array, dilation: Sizes, transposed: bool) -> None:
    """What there is no kernel for: bools, integers that are not int64 in some forms, nothing."""
    if 0 in weight.shape[2:]:
        raise RuntimeError(
            f"{name}: kernel size should be greater than zero, but got {list(weight.shape[2:])}"
        )
    if 0 in x.shape[2:] and x.shape[0] and x.shape[1]:
        raise RuntimeError(
            f"{name}: Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{list(x.shape)}"
        )
    is_narrow = x.dtype.kind in "iu" and x.dtype != np.int64
    if x.dtype.kind == "b" or (is_narrow and (transposed or max(dilation) > 1)):
        raise NotImplementedError(f'"{name}" not implemented for {x.dtype}: convert with .float()')


def _is_depthwise(weight: Array, groups: int) -> bool:
    """Whether every output channel sees one input channel only, of several."""
    return groups > 1 and weight.shape[1] == 1


# -- the convolution -------------------------------------------------------------------------------


def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """(N, C, *sizes) with a weight of (O, C / groups, *kernel) gives (N, O, *counts)."""
    _check("convolution", x, weight, bias, stride, padding, dilation, groups, False)
    if not x.size or not weight.size or x.dtype.kind in "biu":
        _check_unusual("convolution", x, weight, dilation, False)
    counts = _counts(x, weight.shape[2:], stride, padding, dilation)
    if _images.fits(x):
        return _images.convolution(x, weight, bias, stride, padding, dilation, groups, counts)
    dtype = x.dtype
    x, weight, bias = wide(x, weight, bias)
    if _images.fits(x):
        y = _images.convolution(x, weight, bias, stride, padding, dilation, groups, counts)
    else:
        way = _depthwise if _is_depthwise(weight, groups) else _columns
        y = way.convolution(padded(x, padding, padding), weight, stride, dilation, groups, counts)
        if bias is not None:
            y += bias.reshape(-1, *(1,) * len(counts))
    return y.astype(dtype, copy=False)


def _convolution_meta(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Spec:
    _check("convolution", x, weight, bias, stride, padding, dilation, groups, False)
    counts = _counts(x, weight.shape[2:], stride, padding, dilation)
    return (x.shape[0], weight.shape[0], *counts), x.dtype


# -- its derivative by the input -------------------------------------------------------------------


def _transposed(
    y: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    extra: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """(N, O, *counts) with a weight of (O, C / groups, *kernel) gives (N, C, *sizes)."""
    _check("conv_transpose", y, weight, bias, stride, padding, dilation, groups, True)
    if not y.size or not weight.size or y.dtype.kind in "biu":
        _check_unusual("conv_transpose", y, weight, dilation, True)
    sizes = _checked_sizes(y, weight, stride, padding, extra, dilation)
    dtype = y.dtype
    y, weight, bias = wide(y, weight, bias)
    if _images.fits(y):
        x = _images.transposed(y, weight, stride, padding, dilation, groups, sizes)
    else:
        whole = tuple(n + 2 * p for n, p in zip(sizes, padding, strict=True))
        way = _depthwise if _is_depthwise(weight, groups) else _columns
        x = way.transposed(y, weight, stride, dilation, groups, whole)
        if whole != sizes:
            x = np.ascontiguousarray(cropped(x, padding, sizes))
    if bias is not None:
        x += bias.reshape(-1, *(1,) * len(sizes))
    return x.astype(dtype, copy=False)


def _checked_sizes(
    y: Array, weight: Array, stride: Sizes, padding: Sizes, extra: Sizes, dilation: Sizes
) -> Sizes:
    if min(extra) < 0:
        raise RuntimeError(f"negative output_padding is not supported, got {extra}")
    sizes = _transposed_sizes(y, weight.shape[2:], stride, padding, extra, dilation)
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding: {extra} stride: {stride} dilation: {dilation}"
        )
    if min(sizes) <= 0:
        raise RuntimeError(
            f"Given input size per channel: {_text(y.shape[2:])}. Calculated output size per "
            f"channel: {_text(sizes)}. Output size is too small"
        )
    return sizes


def _transposed_meta(
    y: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    extra: Sizes,
    dilation: Sizes,
    groups: int,
) -> Spec:
    _check("conv_transpose", y, weight, bias, stride, padding, dilation, groups, True)
    sizes = _checked_sizes(y, weight, stride, padding, extra, dilation)
    return (y.shape[0], weight.shape[1] * groups, *sizes), y.dtype


# -- its derivative by the weight ------------------------------------------------------------------


def _over_batch(
    x: Array,
    y: Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """(N, C, *sizes) and (N, O, *counts) give (O, C / groups, *kernel)."""
    dtype = x.dtype
    x, y = wide(x, y)
    channels = x.shape[1] // groups
    if _images.fits(x):
        weight = _images.over_batch(x, y, kernel, stride, padding, dilation, groups)
    else:
        x = padded(x, padding, padding)
        way = _depthwise if groups > 1 and channels == 1 else _columns
        weight = way.over_batch(x, y, kernel, stride, dilation, groups)
    return weight.reshape(y.shape[1], channels, *kernel).astype(dtype, copy=False)


def _over_batch_meta(
    x: Array,
    y: Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Spec:
    return (y.shape[1], x.shape[1] // groups, *kernel), x.dtype


convolution = define("convolution", _convolution, meta=_convolution_meta)
conv_transpose = define("conv_transpose", _transposed, meta=_transposed_meta)
_conv_over_batch = define("conv_over_batch", _over_batch, meta=_over_batch_meta)


# -- the derivatives -------------------------------------------------------------------------------


def _scatter_to(
    sizes: Sizes,
    y: Any,
    weight: Any,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Any:
    """The transposed convolution whose result has the spatial ``sizes``."""
    smallest = _transposed_sizes(
        y, tuple(weight.shape[2:]), stride, padding, (0,) * len(sizes), dilation
    )
    extra = tuple(a - b for a, b in zip(sizes, smallest, strict=True))
    return run(conv_transpose, y, weight, None, stride, padding, extra, dilation, groups)


def _gather_to(
    counts: Sizes,
    x: Any,
    weight: Any,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Any:
    """The convolution cut to ``counts`` windows: output padding beyond the stride makes room for
    more.
    """
    y = run(convolution, x, weight, None, stride, padding, dilation, groups)
    return y if tuple(y.shape[2:]) == counts else cropped(y, (0,) * len(counts), counts)


def _convolution_x(g: Any, _out: Any, x_like: Any, weight: Any, _bias: Any, *options: Any) -> Any:
    if 0 in g.shape or 0 in x_like.shape:
        return zeros_of(tuple(x_like.shape), g)
    return _scatter_to(tuple(x_like.shape[2:]), g, conj(weight), *options)


def _convolution_weight(
    g: Any, _out: Any, x: Any, weight_like: Any, _bias: Any, *options: Any
) -> Any:
    if 0 in g.shape or 0 in x.shape:
        return zeros_of(tuple(weight_like.shape), g)
    return run(_conv_over_batch, conj(x), g, tuple(weight_like.shape[2:]), *options)


def _bias_gradient(g: Any, _out: Any, _x: Any, _weight: Any, _bias: Any, *options: Any) -> Any:
    return np.sum(g, axis=(0, *range(2, g.ndim)))


derive("convolution", _convolution_x, _convolution_weight, _bias_gradient)


def _transposed_y(
    g: Any,
    _out: Any,
    y_like: Any,
    weight: Any,
    _bias: Any,
    stride: Any,
    padding: Any,
    extra: Any,
    *options: Any,
) -> Any:
    if 0 in g.shape or 0 in y_like.shape:
        return zeros_of(tuple(y_like.shape), g)
    return _gather_to(tuple(y_like.shape[2:]), g, conj(weight), stride, padding, *options)


def _transposed_weight(
    g: Any,
    _out: Any,
    y: Any,
    weight_like: Any,
    _bias: Any,
    stride: Any,
    padding: Any,
    extra: Any,
    *options: Any,
) -> Any:
    if 0 in g.shape or 0 in y.shape:
        return zeros_of(tuple(weight_like.shape), g)
    kernel = tuple(weight_like.shape[2:])
    return run(_conv_over_batch, g, conj(y), kernel, stride, padding, *options)


derive("conv_transpose", _transposed_y, _transposed_weight, _bias_gradient)


def _over_batch_x(g: Any, _out: Any, x_like: Any, y: Any, kernel: Any, *options: Any) -> Any:
    return _scatter_to(tuple(x_like.shape[2:]), conj(y), g, *options)


def _over_batch_y(g: Any, _out: Any, x: Any, y_like: Any, kernel: Any, *options: Any) -> Any:
    return _gather_to(tuple(y_like.shape[2:]), conj(x), g, *options)


derive("conv_over_batch", _over_batch_x, _over_batch_y)
