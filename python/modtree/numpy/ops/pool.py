# SPDX-License-Identifier: BSD-3-Clause
"""max_pool, max_unpool, adaptive_max_pool, avg_pool.

Each operation has a transpose, and either is the derivative of the other, so that gradients can be
derived again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import kernels, own_index
from modtree.numpy.ops.generic import Array, Spec, need_arrays, need_floating
from modtree.numpy.ops.registry import define, derive
from modtree.numpy.ops.windows import (
    Sizes,
    add_windows,
    cropped,
    has_kernel,
    padded,
    run,
    window_count,
    windows,
)


def _counts(
    sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> Sizes:
    """Number of windows; with ``ceil`` also the last one that begins inside but ends outside."""
    counts = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        count = window_count(n + 2 * p + (s - 1 if ceil else 0), k, s, d)
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        counts.append(count)
    return tuple(counts)


def _check(x: Array, kernel: Sizes, counts: Sizes, name: str) -> None:
    need_arrays(name, x)
    if min(counts) < 1:
        lead = x.shape[-len(kernel) - 1]
        sizes = "x".join(map(str, x.shape[-len(kernel) :]))
        found = "x".join(map(str, (max(n, 0) for n in counts)))
        raise RuntimeError(
            f"{name}: Given input size: ({lead}x{sizes}). Calculated output size: "
            f"({lead}x{found}). Output size is too small: a kernel of size {kernel} needs a larger "
            "input or more padding"
        )


def _surrounded(
    x: Array,
    counts: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    value: Any,
) -> Array:
    """The input with its padding, and with what windows beyond the end (ceil_mode) reach."""
    sizes = x.shape[x.ndim - len(kernel) :]
    after = [
        max(p, (c - 1) * s + d * (k - 1) + 1 - n - p)
        for n, c, k, s, p, d in zip(sizes, counts, kernel, stride, padding, dilation, strict=True)
    ]
    return padded(x, padding, after, value)


# -- maximum ---------------------------------------------------------------------------------------


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _by_kernel(
    x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> tuple[Array, Array]:
    """Largest values and their indices, for one or two axes of floats."""
    sizes = x.shape[x.ndim - len(kernel) :]
    counts: Any = _counts(sizes, kernel, stride, padding, dilation, ceil)
    _check(x, kernel, counts, "max_pool")
    if len(kernel) == 2:
        return kernels.max_pool(x, kernel, stride, padding, dilation, counts)
    # One axis is an image of one row.
    pairs: Any = ((1, *kernel), (1, *stride), (0, *padding), (1, *dilation), (1, *counts))
    values, indices = kernels.max_pool(x[..., None, :], *pairs)
    return values[..., 0, :], indices[..., 0, :]


def _max_windows(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> Array:
    """The windows, (..., *kernel, *counts)."""
    sizes = x.shape[x.ndim - len(kernel) :]
    counts = _counts(sizes, kernel, stride, padding, dilation, ceil)
    _check(x, kernel, counts, "max_pool")
    if x.dtype.kind == "c":
        raise NotImplementedError(
            '"max_pool" not implemented for complex dtypes: they have no order'
        )
    whole = _surrounded(x, counts, kernel, stride, padding, dilation, _lowest(x.dtype))
    return windows(whole, kernel, stride, dilation)


def _max_pool(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> Array:
    """The largest value of each window over the last axes."""
    if len(kernel) < 3 and has_kernel(x):
        return _by_kernel(x, kernel, stride, padding, dilation, ceil)[0]
    view = _max_windows(x, kernel, stride, padding, dilation, ceil)
    lead = (slice(None),) * (x.ndim - len(kernel))
    best = None
    for place in np.ndindex(*kernel):
        candidate = view[lead + place]
        best = candidate.copy() if best is None else np.maximum(best, candidate, out=best)
    assert best is not None
    return best


def _max_pool_indices(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> tuple[Array, Array]:
    """The largest values, and where each stands in its (flattened) plane of the input; the first of
    several, the last NaN.
    """
    if len(kernel) < 3 and has_kernel(x):
        return _by_kernel(x, kernel, stride, padding, dilation, ceil)
    view = _max_windows(x, kernel, stride, padding, dilation, ceil)
    lead = (slice(None),) * (x.ndim - len(kernel))
    best = view[lead + (0,) * len(kernel)].copy()
    which = np.zeros(best.shape, np.min_scalar_type(math.prod(kernel)))
    has_nan = x.dtype.kind == "f" and x.size > 0 and bool(np.isnan(x.min()))
    for i, place in enumerate(np.ndindex(*kernel)):
        if i == 0:
            continue
        candidate = view[lead + place]
        larger = candidate > best
        if has_nan:
            larger |= np.isnan(candidate)
        np.copyto(which, i, where=larger)
        np.maximum(best, candidate, out=best)
    return best, _plane_indices(x, best, which, kernel, stride, padding, dilation)


def _plane_indices(
    x: Array,
    best: Array,
    which: Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> Array:
    """Turns the number of the element within a window into an index within the plane."""
    n = len(kernel)
    sizes, counts = x.shape[x.ndim - n :], best.shape[best.ndim - n :]
    starts: Any = 0
    first: Any = 0
    offsets: Any = 0
    for i in range(n):
        step = math.prod(sizes[i + 1 :])
        begin = np.arange(counts[i]) * stride[i] - padding[i]
        shape = (-1, *(1,) * (n - 1 - i))
        starts = starts + (begin * step).reshape(shape)
        inside = begin + -(np.minimum(begin, 0) // dilation[i]) * dilation[i]
        first = first + (np.minimum(inside, sizes[i] - 1) * step).reshape(shape)
        offsets = offsets + (np.arange(kernel[i]) * dilation[i] * step).reshape(shape)
    indices = offsets.reshape(-1)[which] + starts
    if any(padding):
        # Where all values are the lowest there are, the padding must not win.
        np.copyto(indices, first, where=best == _lowest(x.dtype))
    return indices


def _max_pool_meta(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> Spec:
    lead = x.ndim - len(kernel)
    counts = _counts(x.shape[lead:], kernel, stride, padding, dilation, ceil)
    _check(x, kernel, counts, "max_pool")
    return (*x.shape[:lead], *counts), x.dtype


def _with_index(meta: Any) -> Any:
    def specs(*args: Any) -> list[Spec]:
        shape, dtype = meta(*args)
        return [(shape, dtype), (shape, np.dtype(np.int64))]

    return specs


def _put_planes(values: Array, indices: Array, sizes: Sizes) -> Array:
    """Adds values into planes of ``sizes``, each where its index says; zero elsewhere."""
    lead = values.shape[: values.ndim - len(sizes)]
    planes, plane = math.prod(lead), math.prod(sizes)
    if has_kernel(values):
        flat = values.reshape(*lead, 1, -1) if values.size else values.reshape(*lead, 1, 0)
        total = kernels.max_pool_backward(flat, indices.reshape(flat.shape), (1, plane))
        return total.reshape(*lead, *sizes)
    inner = math.prod(indices.shape[len(lead) :])
    flat = indices.reshape(planes, inner) + np.arange(planes)[:, None] * plane
    total = np.bincount(flat.reshape(-1), values.reshape(-1), planes * plane)
    return total.astype(values.dtype, copy=False).reshape(*lead, *sizes)


def _take_planes(x: Array, indices: Array, sizes: Sizes) -> Array:
    """The values of planes of ``sizes`` at the indices."""
    lead = x.ndim - len(sizes)
    planes, inner = math.prod(x.shape[:lead]), math.prod(indices.shape[lead:])
    flat = x.reshape(planes, math.prod(sizes))
    index = own_index(indices.reshape(planes, inner))
    return np.take_along_axis(flat, index, 1).reshape(indices.shape)


max_pool = define("max_pool", _max_pool, meta=_max_pool_meta, record=_max_pool_indices)
max_pool_with_indices = define(
    "max_pool_with_indices", _max_pool_indices, meta=_with_index(_max_pool_meta)
)
_put = define(
    "put_planes",
    _put_planes,
    meta=lambda g, i, sizes: ((*g.shape[: g.ndim - len(sizes)], *sizes), g.dtype),
)
_take = define("take_planes", _take_planes, meta=lambda x, i, sizes: (i.shape, x.dtype))


def _max_pool_x(g: Any, saved: Any, x_like: Any, kernel: Any, *rest: Any) -> Any:
    return run(_put, g, saved, tuple(x_like.shape[-len(kernel) :]))


def _max_pool_with_indices_x(g: Any, out: Any, x_like: Any, kernel: Any, *rest: Any) -> Any:
    return run(_put, g[0], out[1], tuple(x_like.shape[-len(kernel) :]))


derive("max_pool", _max_pool_x)
derive("max_pool_with_indices", _max_pool_with_indices_x)
derive("put_planes", lambda g, _out, _values, indices, sizes: run(_take, g, indices, sizes))
derive("take_planes", lambda g, _out, _x, indices, sizes: run(_put, g, indices, sizes))


# -- maxima put back where they were ---------------------------------------------------------------


def _max_unpool(values: Array, indices: Array, sizes: Sizes) -> Array:
    """Planes of ``sizes`` with each value where its index says, zero elsewhere; the last of several
    at one place.
    """
    need_arrays("max_unpool", values, indices)
    need_floating("max_unpool", values)
    plane, indices = math.prod(sizes), own_index(indices)
    if not plane:
        return np.zeros((*values.shape[: values.ndim - len(sizes)], *sizes), values.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= plane):
        wrong = int(indices.max() if indices.max() >= plane else indices.min())
        found = "x".join(map(str, sizes))
        raise RuntimeError(
            f"Found an invalid max index: {wrong} (output volumes are of size {found})"
        )
    lead = values.shape[: values.ndim - len(sizes)]
    planes = math.prod(lead)
    count = math.prod(values.shape[values.ndim - len(sizes) :])
    result = np.zeros((planes, plane), values.dtype)
    result[np.arange(planes)[:, None], indices.reshape(planes, count)] = values.reshape(
        planes, count
    )
    return result.reshape(*lead, *sizes)


def _max_unpool_meta(values: Array, indices: Array, sizes: Sizes) -> Spec:
    return (*values.shape[: values.ndim - len(sizes)], *sizes), values.dtype


max_unpool = define("max_unpool", _max_unpool, meta=_max_unpool_meta)
derive("max_unpool", lambda g, _out, _values, indices, sizes: run(_take, g, indices, sizes))


# -- maximum over parts of any size ----------------------------------------------------------------


def _parts(size: int, count: int) -> tuple[Array, Array]:
    """Where the ``count`` parts of an axis begin and end; they overlap by one where they do not
    come out even.
    """
    i = np.arange(count)
    return i * size // count, -((i + 1) * size // -count)


def _adaptive_max(x: Array, counts: Sizes) -> tuple[Array, Array]:
    """Splits each of the last axes into so many parts: the largest values, and where they stand in
    their planes.
    """
    _check_adaptive(x, counts)
    n = len(counts)
    sizes = x.shape[x.ndim - n :]
    if 0 in counts:
        shape = (*x.shape[: x.ndim - n], *counts)
        return np.empty(shape, x.dtype), np.empty(shape, np.int64)
    flat: Any = 0
    for i, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        begin, end = _parts(size, count)
        # Shorter parts repeat their last element: the first of equal values is the one that counts.
        reach = np.arange((end - begin).max())
        along = np.minimum(begin[:, None] + reach, end[:, None] - 1) * math.prod(sizes[i + 1 :])
        after = n - 1 - i
        shape = (*(1,) * i, count, *(1,) * after, *(1,) * i, len(reach), *(1,) * after)
        flat = flat + along.reshape(shape)
    flat = flat.reshape(*counts, -1)
    planes = x.reshape(*x.shape[: x.ndim - n], math.prod(sizes))
    candidates = planes[..., flat]
    best = candidates.argmax(-1)[..., None]
    unknown = np.isnan(np.take_along_axis(candidates, best, -1))
    if unknown.any():  # of several NaN, the last
        last = candidates.shape[-1] - 1 - np.isnan(candidates[..., ::-1]).argmax(-1)[..., None]
        best = np.where(unknown, last, best)
    values = np.take_along_axis(candidates, best, -1)[..., 0]
    indices = np.take_along_axis(np.broadcast_to(flat, candidates.shape), best, -1)[..., 0]
    return values, indices


def _check_adaptive(x: Array, counts: Sizes) -> None:
    need_arrays("adaptive_max_pool", x)
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f'"adaptive_max_pool" not implemented for {x.dtype}: convert with .float()'
        )


def _adaptive_max_meta(x: Array, counts: Sizes) -> Spec:
    _check_adaptive(x, counts)
    return (*x.shape[: x.ndim - len(counts)], *counts), x.dtype


def _adaptive_max_x(g: Any, out: Any, x_like: Any, counts: Any) -> Any:
    return run(_put, g[0], out[1], tuple(x_like.shape[-len(counts) :]))


adaptive_max_pool = define("adaptive_max_pool", _adaptive_max, meta=_with_index(_adaptive_max_meta))
derive("adaptive_max_pool", _adaptive_max_x)


# -- mean ------------------------------------------------------------------------------------------


def _shares(
    sizes: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
    dtype: Any,
) -> Any:
    """What each window's sum is multiplied with: a number, or an array when windows at the borders
    count fewer elements.
    """
    if divisor is not None:
        return 1.0 / divisor
    counts = _counts(sizes, kernel, stride, padding, (1,) * len(sizes), ceil)
    lengths = []
    for n, c, k, s, p in zip(sizes, counts, kernel, stride, padding, strict=True):
        begin = np.arange(c) * s - p
        end = np.minimum(begin + k, n + p)
        if not count_padding:
            begin, end = np.maximum(begin, 0), np.minimum(end, n)
        lengths.append(end - begin)
    if all((a == k).all() for a, k in zip(lengths, kernel, strict=True)):
        return 1.0 / math.prod(kernel)
    total = lengths[0]
    for a in lengths[1:]:
        total = total[..., None] * a
    return (1.0 / total).astype(np.float32 if dtype == np.float16 else dtype)


def _avg_pool(
    x: Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Array:
    """The mean of each window over the last axes."""
    lead, ones = x.ndim - len(kernel), (1,) * len(kernel)
    sizes = x.shape[lead:]
    counts = _counts(sizes, kernel, stride, padding, ones, ceil)
    _check(x, kernel, counts, "avg_pool")
    if x.dtype.kind != "f" and x.dtype != np.int64:
        raise NotImplementedError(
            f'"avg_pool" not implemented for {x.dtype}: expected a floating dtype or int64'
        )
    whole = _surrounded(x, counts, kernel, stride, padding, ones, 0)
    view = windows(whole, kernel, stride, ones)
    kind = np.float32 if x.dtype == np.float16 else x.dtype
    total = np.zeros((*x.shape[:lead], *counts), kind)
    for place in np.ndindex(*kernel):
        total += view[(slice(None),) * lead + place]
    if x.dtype == np.int64:
        shares = _shares(
            sizes, kernel, stride, padding, ceil, count_padding, divisor, np.dtype(np.float64)
        )
        divisors = np.rint(1 / np.asarray(shares)).astype(np.int64)
        down: Array = total // divisors
        return down + ((total % divisors != 0) & ((total < 0) != (divisors < 0)))
    total *= _shares(sizes, kernel, stride, padding, ceil, count_padding, divisor, x.dtype)
    return total.astype(x.dtype, copy=False)


def _avg_pool_meta(
    x: Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Spec:
    lead = x.ndim - len(kernel)
    counts = _counts(x.shape[lead:], kernel, stride, padding, (1,) * len(kernel), ceil)
    _check(x, kernel, counts, "avg_pool")
    return (*x.shape[:lead], *counts), x.dtype


def _spread(
    g: Array,
    sizes: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Array:
    """The transpose of the mean over windows: each value goes in equal shares to the elements of
    its window.
    """
    n = len(kernel)
    lead, counts = g.shape[: g.ndim - n], g.shape[g.ndim - n :]
    share = g * _shares(sizes, kernel, stride, padding, ceil, count_padding, divisor, g.dtype)
    columns = np.broadcast_to(share.reshape(*lead, *(1,) * n, *counts), (*lead, *kernel, *counts))
    whole = tuple(
        max(a + 2 * p, (c - 1) * s + k)
        for a, p, c, s, k in zip(sizes, padding, counts, stride, kernel, strict=True)
    )
    x = add_windows(columns, whole, stride, (1,) * n)
    return np.ascontiguousarray(cropped(x, padding, sizes), dtype=g.dtype)


avg_pool = define("avg_pool", _avg_pool, meta=_avg_pool_meta)
_avg_spread = define(
    "avg_pool_spread",
    _spread,
    meta=lambda g, sizes, *rest: ((*g.shape[: g.ndim - len(sizes)], *sizes), g.dtype),
)
derive(
    "avg_pool",
    lambda g, _out, x_like, kernel, *rest: run(
        _avg_spread, g, tuple(x_like.shape[-len(kernel) :]), kernel, *rest
    ),
)
derive("avg_pool_spread", lambda g, _out, _g, sizes, *rest: run(avg_pool, g, *rest))
