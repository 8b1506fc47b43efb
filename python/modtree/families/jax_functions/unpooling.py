# SPDX-License-Identifier: BSD-3-Clause
"""Jax arrays put back where pooling found them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from modtree.families.jax_functions._common import Array, Ints, batched, each

__all__ = [
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


max_unpool1d, max_unpool2d, max_unpool3d = map(_make_max_unpool, (1, 2, 3))
