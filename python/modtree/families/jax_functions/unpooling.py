# SPDX-License-Identifier: BSD-3-Clause
"""Jax arrays put back where pooling found them, and pooling in windows at random distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from modtree.families.jax_functions._common import Array, Ints, batched, each
from modtree.families.jax_functions.keys import key_for

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]


def _max_unpool(
    n: int,
    input: Array,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    output_size: Sequence[int] | None,
) -> Array:
    name = f"max_unpool{n}d"
    x, has_batch = batched(name, input, n)
    if indices.shape != input.shape:
        raise RuntimeError(
            f"{name}(): expected shape of indices to be that of the input ({list(input.shape)}) "
            f"but got {list(indices.shape)}"
        )
    kernel = each(kernel_size, n)
    steps = kernel if stride is None else each(stride, n)
    pads = each(padding, n)
    usual = [
        (size - 1) * s - 2 * p + k
        for size, s, p, k in zip(x.shape[2:], steps, pads, kernel, strict=True)
    ]
    sizes = usual if output_size is None else list(output_size)[-n:]
    for wanted, middle, s in zip(sizes, usual, steps, strict=True):
        if output_size is not None and not middle - s < wanted < middle + s:
            raise ValueError(
                f"{name}(): expected an output_size within a stride of {usual}, got {sizes}"
            )
    batch, channels = x.shape[:2]
    flat = jnp.zeros((batch, channels, math.prod(sizes)), x.dtype)
    places = jnp.asarray(indices).reshape(batch, channels, -1)
    index = (*jnp.ogrid[:batch, :channels, :1][:2], places)
    flat = flat.at[index].set(x.reshape(places.shape))
    result = flat.reshape(batch, channels, *sizes)
    return result if has_batch else result[0]


def _starts(sample: Array, size: int, count: int, kernel: int) -> Array:
    """Where windows begin, (N, C, count); the last one ends with the input."""
    if count < 2:
        return jnp.full((*sample.shape, count), size - kernel, jnp.int32)
    distance = (size - kernel) / (count - 1)
    number = jnp.arange(count - 1, dtype=sample.dtype)
    begins = jnp.floor((number + sample[..., None]) * distance)
    begins = (begins - jnp.floor(sample * distance)[..., None]).astype(jnp.int32)
    last = jnp.full((*sample.shape, 1), size - kernel, jnp.int32)
    return jnp.concatenate([begins, last], -1)


def _fractional(
    n: int,
    input: Array,
    kernel_size: Ints,
    output_size: Ints | None,
    output_ratio: Any,
    samples: Array | None,
    key: Any,
) -> tuple[Array, Array]:
    name = f"fractional_max_pool{n}d"
    x, has_batch = batched(name, input, n)
    kernel, sizes = each(kernel_size, n), x.shape[2:]
    if output_size is None:
        if output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        given = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
        output_size = [int(size * r) for size, r in zip(sizes, given, strict=True)]
    counts = each(output_size, n)
    for size, count, k in zip(sizes, counts, kernel, strict=True):
        if count + k - 1 > size:
            raise RuntimeError(
                f"{name}(): {count} windows of {k} are too large relative to an input of {size}"
            )
    lead = x.shape[:2]
    if samples is None:
        samples = jax.random.uniform(key_for(name, input, key), (*lead, n), x.dtype)
    samples = jnp.asarray(samples).reshape(*lead, n)
    # One sample for each axis; in two dimensions that of the width comes first.
    columns = range(n) if n == 3 else reversed(range(n))
    flat: Any = 0
    for i, column in enumerate(columns):
        begin = _starts(samples[..., column], sizes[i], counts[i], kernel[i])
        along = begin[..., None] + jnp.arange(kernel[i])
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = counts[i], kernel[i]
        flat = flat * sizes[i] + along.reshape(*lead, *shape)
    flat = flat.reshape(*lead, math.prod(counts), math.prod(kernel))
    planes = x.reshape(*lead, math.prod(sizes))
    values = jnp.take_along_axis(planes, flat.reshape(*lead, -1), -1).reshape(flat.shape)
    best = jnp.argmax(values, -1, keepdims=True)
    found, indices = (
        jnp.take_along_axis(part, best, -1).reshape(*lead, *counts) for part in (values, flat)
    )
    return (found, indices) if has_batch else (found[0], indices[0])


def _make_max_unpool(n: int) -> Any:
    def max_unpool(
        input: Array,
        indices: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Array:
        return _max_unpool(n, input, indices, kernel_size, stride, padding, output_size)

    return max_unpool


def _make_fractional(n: int, both: bool) -> Any:
    def fractional_max_pool(
        input: Array,
        kernel_size: Ints,
        output_size: Ints | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Array | None = None,
        *,
        key: Any = None,
    ) -> Any:
        found = _fractional(n, input, kernel_size, output_size, output_ratio, _random_samples, key)
        return found if both or return_indices else found[0]

    return fractional_max_pool


max_unpool1d, max_unpool2d, max_unpool3d = map(_make_max_unpool, (1, 2, 3))
fractional_max_pool2d, fractional_max_pool3d = (_make_fractional(n, False) for n in (2, 3))
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = (
    _make_fractional(n, True) for n in (2, 3)
)
