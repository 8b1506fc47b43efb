# SPDX-License-Identifier: BSD-3-Clause
"""Shapes of jax arrays, parts of them and new ones, with torch's names and arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from modtree.jax_arrays.functions._common import Array, dtype_of

# -- shapes ----------------------------------------------------------------------------------------


def cat(tensors: Sequence[Array], dim: int = 0, *, axis: int | None = None) -> Array:
    return jnp.concatenate(list(tensors), dim if axis is None else axis)


def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    return jnp.stack(list(tensors), dim)


def reshape(input: Array, shape: Any) -> Array:
    return input.reshape(shape)


def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    if input.ndim == 0:
        return input.reshape(1)
    start, end = start_dim % input.ndim, end_dim % input.ndim
    return input.reshape(*input.shape[:start], -1, *input.shape[end + 1 :])


def unflatten(input: Array, dim: int, sizes: Sequence[int]) -> Array:
    dim = dim % input.ndim
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


def transpose(input: Array, dim0: int, dim1: int) -> Array:
    return jnp.swapaxes(input, dim0, dim1)


swapaxes = transpose


def permute(input: Array, dims: Sequence[int]) -> Array:
    return jnp.transpose(input, tuple(dims))


def movedim(input: Array, source: Any, destination: Any) -> Array:
    return jnp.moveaxis(input, source, destination)


def squeeze(input: Array, dim: Any = None) -> Array:
    if dim is None:
        return jnp.squeeze(input)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return jnp.squeeze(input, tuple(d for d in dims if input.shape[d] == 1))


def unsqueeze(input: Array, dim: int) -> Array:
    return jnp.expand_dims(input, dim)


def broadcast_to(input: Array, size: Sequence[int]) -> Array:
    return jnp.broadcast_to(input, tuple(size))


def split(input: Array, split_size: Any, dim: int = 0) -> tuple[Array, ...]:
    size = input.shape[dim]
    if isinstance(split_size, int):
        ends = list(range(split_size, size, split_size))
    else:
        ends = np.cumsum(split_size)[:-1].tolist()
    return tuple(jnp.split(input, ends, dim))


def chunk(input: Array, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    return split(input, -(-input.shape[dim] // chunks), dim)


def unbind(input: Array, dim: int = 0) -> tuple[Array, ...]:
    return tuple(jnp.moveaxis(input, dim, 0))


def t(input: Array) -> Array:
    if input.ndim > 2:
        raise RuntimeError(
            f"t() expects at most 2 dimensions, got shape {tuple(input.shape)}: use transpose()"
        )
    return input.T


def ravel(input: Array) -> Array:
    return input.reshape(-1)


def tile(input: Array, dims: Sequence[int]) -> Array:
    return jnp.tile(input, tuple(dims))


def hstack(tensors: Sequence[Array]) -> Array:
    return jnp.hstack(list(tensors))


def vstack(tensors: Sequence[Array]) -> Array:
    return jnp.vstack(list(tensors))


def broadcast_tensors(*tensors: Array) -> tuple[Array, ...]:
    return tuple(jnp.broadcast_arrays(*tensors))


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Array, ...]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    return tuple(jnp.meshgrid(*given, indexing=indexing))


def flip(input: Array, dims: Any) -> Array:
    return jnp.flip(input, dims)


def roll(input: Array, shifts: Any, dims: Any = None) -> Array:
    return jnp.roll(input, shifts, dims)


def repeat_interleave(
    input: Array, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    return jnp.repeat(input, repeats, dim, total_repeat_length=output_size)


# -- questions -------------------------------------------------------------------------------------


def numel(input: Array) -> int:
    return int(input.size)


def is_floating_point(input: Array) -> bool:
    return bool(jnp.issubdtype(input.dtype, jnp.floating))


def is_complex(input: Array) -> bool:
    return bool(jnp.issubdtype(input.dtype, jnp.complexfloating))


# -- new arrays ------------------------------------------------------------------------------------


def _shape(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    return tuple(map(operator.index, given))


def asarray(obj: Any, *, dtype: Any = None, device: Any = None) -> Array:
    return jnp.asarray(obj, dtype_of(dtype), device=device)


def zeros(*size: Any, dtype: Any = None, device: Any = None) -> Array:
    return jnp.zeros(_shape(size), dtype_of(dtype), device=device)


def new_zeros(input: Array, size: Sequence[int]) -> Array:
    return jnp.zeros(tuple(size), input.dtype)


def ones(*size: Any, dtype: Any = None, device: Any = None) -> Array:
    return jnp.ones(_shape(size), dtype_of(dtype), device=device)


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    return jnp.full(_shape((size,)), fill_value, dtype_of(dtype), device=device)


def detach(input: Array) -> Array:
    return jax.lax.stop_gradient(input)


def clone(input: Array, *, memory_format: Any = None) -> Array:
    return jnp.copy(input)


def zeros_like(input: Array, *, dtype: Any = None, device: Any = None) -> Array:
    return jnp.zeros_like(input, dtype_of(dtype), device=device)


empty_like = zeros_like


def ones_like(input: Array, *, dtype: Any = None, device: Any = None) -> Array:
    return jnp.ones_like(input, dtype_of(dtype), device=device)


def full_like(input: Array, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    return jnp.full_like(input, fill_value, dtype_of(dtype), device=device)


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    start, end = (0, start) if end is None else (start, end)
    count = math.ceil((end - start) / step)
    if count < 0:
        raise RuntimeError(f"arange: expected a step towards {end}, got {step}")
    return jnp.arange(start, end, step, dtype_of(dtype), device=device)
