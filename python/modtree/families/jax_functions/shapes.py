# SPDX-License-Identifier: BSD-3-Clause
"""Functions of shapes, sums and choices on jax arrays, with torch's names and arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from modtree.families.jax_functions._common import Array, dtype_of
from modtree.families.jax_functions.keys import key_for

__all__ = [
    "amax",
    "amin",
    "arange",
    "argmax",
    "argmin",
    "bmm",
    "broadcast_to",
    "cat",
    "chunk",
    "clamp",
    "cumsum",
    "detach",
    "einsum",
    "empty_like",
    "flatten",
    "flip",
    "full",
    "full_like",
    "gather",
    "index_select",
    "logsumexp",
    "masked_fill",
    "max",
    "mean",
    "min",
    "movedim",
    "multinomial",
    "new_zeros",
    "norm",
    "ones",
    "ones_like",
    "permute",
    "repeat_interleave",
    "reshape",
    "roll",
    "sort",
    "split",
    "squeeze",
    "stack",
    "std",
    "sum",
    "swapaxes",
    "topk",
    "transpose",
    "tril",
    "triu",
    "unbind",
    "unflatten",
    "unsqueeze",
    "var",
    "where",
    "zeros",
    "zeros_like",
]


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


def flip(input: Array, dims: Any) -> Array:
    return jnp.flip(input, dims)


def roll(input: Array, shifts: Any, dims: Any = None) -> Array:
    return jnp.roll(input, shifts, dims)


def repeat_interleave(
    input: Array, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    return jnp.repeat(input, repeats, dim, total_repeat_length=output_size)


# -- sums and choices ------------------------------------------------------------------------------


def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (tuple, list)) else dim


def sum(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    return jnp.sum(input, _axes(dim), dtype_of(dtype), keepdims=keepdim)


def mean(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    return jnp.mean(input, _axes(dim), dtype_of(dtype), keepdims=keepdim)


def var(
    input: Array,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Array:
    correction = int(unbiased) if correction is None else correction
    return jnp.var(input, _axes(dim), ddof=correction, keepdims=keepdim)  # type: ignore[arg-type]


def std(
    input: Array,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Array:
    return jnp.sqrt(var(input, dim, unbiased, keepdim, correction=correction))


def amax(input: Array, dim: Any = (), keepdim: bool = False) -> Array:
    return jnp.max(input, _axes(dim) if dim != () else None, keepdims=keepdim)


def amin(input: Array, dim: Any = (), keepdim: bool = False) -> Array:
    return jnp.min(input, _axes(dim) if dim != () else None, keepdims=keepdim)


def max(input: Array, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    dim = dim if other is None else other
    if dim is None:
        return jnp.max(input)
    if not isinstance(dim, int):
        return jnp.maximum(input, dim)
    return amax(input, dim, keepdim), argmax(input, dim, keepdim)


def min(input: Array, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    dim = dim if other is None else other
    if dim is None:
        return jnp.min(input)
    if not isinstance(dim, int):
        return jnp.minimum(input, dim)
    return amin(input, dim, keepdim), argmin(input, dim, keepdim)


def argmax(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return jnp.argmax(input, dim, keepdims=keepdim)


def argmin(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return jnp.argmin(input, dim, keepdims=keepdim)


def cumsum(input: Array, dim: int, *, dtype: Any = None) -> Array:
    return jnp.cumsum(input, dim, dtype_of(dtype))


def logsumexp(input: Array, dim: Any, keepdim: bool = False) -> Array:
    return jax.nn.logsumexp(input, _axes(dim), keepdims=keepdim)


def norm(
    input: Array, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    x = input if dtype is None else input.astype(dtype_of(dtype))
    p = 2 if p in (None, "fro") else p
    if dim is None:
        return jnp.linalg.norm(x.reshape(-1), p)
    return jnp.linalg.norm(x, p, _axes(dim), keepdims=keepdim)


def sort(
    input: Array, dim: int = -1, descending: bool = False, stable: bool = False
) -> tuple[Array, Array]:
    order = jnp.argsort(input, dim, stable=True, descending=descending)
    return jnp.take_along_axis(input, order, dim), order


def topk(
    input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    x = jnp.moveaxis(input, dim, -1)
    values, places = jax.lax.top_k(x if largest else -x, k)
    values = values if largest else -values
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(places, -1, dim)


def gather(input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    dim = dim % input.ndim if input.ndim else 0
    # Only a part of the other axes may be wanted.
    part = tuple(slice(None if i == dim else n) for i, n in enumerate(index.shape))
    return jnp.take_along_axis(input[part], index, dim)


def index_select(input: Array, dim: int, index: Array) -> Array:
    return jnp.take(input, index, dim)


def where(condition: Array, input: Any = None, other: Any = None) -> Any:
    if input is None and other is None:
        return jnp.where(condition)
    return jnp.where(condition, input, other)


def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
    return jnp.clip(input, min, max)


def masked_fill(input: Array, mask: Array, value: Any) -> Array:
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)


def tril(input: Array, diagonal: int = 0) -> Array:
    return jnp.tril(input, diagonal)


def triu(input: Array, diagonal: int = 0) -> Array:
    return jnp.triu(input, diagonal)


def einsum(equation: str, *operands: Any) -> Array:
    parts = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    )
    return jnp.einsum(equation, *parts)


def bmm(input: Array, mat2: Array) -> Array:
    return input @ mat2


def multinomial(
    input: Array,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
    key: Any = None,
) -> Array:
    if generator is not None:
        raise NotImplementedError("multinomial: jax draws from keys, leave generator away: key=")
    key, logits = key_for("multinomial", input, key), jnp.log(input)
    if replacement:
        shape = (num_samples, *logits.shape[:-1])
        return jnp.moveaxis(jax.random.categorical(key, logits, -1, shape), 0, -1)
    # The largest of the logarithms with noise of Gumbel's are samples without replacement.
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    return jax.lax.top_k(logits + noise, num_samples)[1]


# -- new arrays ------------------------------------------------------------------------------------


def _shape(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    return tuple(map(operator.index, given))


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
