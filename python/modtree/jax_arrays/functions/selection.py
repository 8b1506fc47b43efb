# SPDX-License-Identifier: BSD-3-Clause
"""Parts of jax arrays that indices or masks choose, with torch's names and arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array


def gather(input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    dim = dim % input.ndim if input.ndim else 0
    # Only a part of the other axes may be wanted.
    part = tuple(slice(None if i == dim else n) for i, n in enumerate(index.shape))
    return jnp.take_along_axis(input[part], index, dim)


def _places(index: Array, dim: int) -> tuple[Array, ...]:
    """The indices of all axes, where one is given for each element along ``dim``."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim % index.ndim] = index
    return tuple(places)


def scatter(input: Array, dim: int, index: Array, src: Any = None, *, value: Any = None) -> Array:
    source = value if src is None else src
    if hasattr(source, "shape") and source.shape:
        source = source[tuple(slice(n) for n in index.shape)]
    return input.at[_places(index, dim)].set(source)


def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    return input.at[_places(index, dim)].add(src[tuple(slice(n) for n in index.shape)])


def index_add(input: Array, dim: int, index: Array, source: Array, *, alpha: float = 1) -> Array:
    place = (slice(None),) * (dim % input.ndim) + (index,)
    return input.at[place].add(source if alpha == 1 else alpha * source)


def index_select(input: Array, dim: int, index: Array) -> Array:
    return jnp.take(input, index, dim)


def take_along_dim(input: Array, indices: Array, dim: int | None = None) -> Array:
    return jnp.take_along_axis(input, indices, dim)


def select(input: Array, dim: int, index: int) -> Array:
    return jnp.take(input, index, dim)


def narrow(input: Array, dim: int, start: int, length: int) -> Array:
    return jax.lax.slice_in_dim(input, int(start), int(start) + length, axis=dim)


def where(condition: Array, input: Any = None, other: Any = None) -> Any:
    if input is None and other is None:
        return jnp.where(condition)
    return jnp.where(condition, input, other)


def nonzero(input: Array, *, as_tuple: bool = False) -> Any:
    places = jnp.nonzero(input)
    return places if as_tuple else jnp.stack(places, -1)


def masked_fill(input: Array, mask: Array, value: Any) -> Array:
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)


def masked_select(input: Array, mask: Array) -> Array:
    input, mask = jnp.broadcast_arrays(input, mask)
    return input[mask]


def tril(input: Array, diagonal: int = 0) -> Array:
    return jnp.tril(input, diagonal)


def triu(input: Array, diagonal: int = 0) -> Array:
    return jnp.triu(input, diagonal)


def diag(input: Array, diagonal: int = 0) -> Array:
    return jnp.diag(input, diagonal)


def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return jnp.diagonal(input, offset, dim1, dim2)
