# SPDX-License-Identifier: BSD-3-Clause
"""Sums, extremes and orders of jax arrays, with torch's names and arguments."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array, dtype_of


class ValuesIndices(NamedTuple):
    """Values, and where they are along a dimension."""

    values: Array
    indices: Array


def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (tuple, list)) else dim


def _axes_or_all(dim: Any) -> Any:
    """Axes, where none of them means all."""
    return None if isinstance(dim, (tuple, list)) and not dim else _axes(dim)


def _sum_of(function: Callable[..., Any]) -> Callable[..., Array]:
    def reduce(
        input: Array,
        dim: Any = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
        axis: Any = None,
    ) -> Array:
        over = _axes_or_all(axis if dim is None else dim)
        return function(input, over, dtype_of(dtype), keepdims=keepdim)

    return reduce


def _choice_of(function: Callable[..., Any]) -> Callable[..., Array]:
    def reduce(input: Array, dim: Any = None, keepdim: bool = False, *, axis: Any = None) -> Array:
        return function(input, _axes_or_all(axis if dim is None else dim), keepdims=keepdim)

    return reduce


sum, mean, prod = _sum_of(jnp.sum), _sum_of(jnp.mean), _sum_of(jnp.prod)
amax, amin = _choice_of(jnp.max), _choice_of(jnp.min)
all, any = _choice_of(jnp.all), _choice_of(jnp.any)
argmax, argmin = _choice_of(jnp.argmax), _choice_of(jnp.argmin)
logsumexp = _choice_of(jax.nn.logsumexp)


def _ddof(unbiased: bool | None, correction: float | None) -> Any:
    if correction is not None:
        return correction
    return 1 if unbiased is None else int(unbiased)


def _moment(is_root: bool, with_mean: bool) -> Callable[..., Any]:
    def reduce(
        input: Array,
        dim: Any = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Any:
        if isinstance(dim, bool):  # var(input, unbiased)
            dim, unbiased = None, dim
        axes, ddof = _axes_or_all(dim), _ddof(unbiased, correction)
        spread = jnp.var(input, axes, ddof=ddof, keepdims=keepdim)
        spread = jnp.sqrt(spread) if is_root else spread
        return (spread, jnp.mean(input, axes, keepdims=keepdim)) if with_mean else spread

    return reduce


var, std = _moment(False, False), _moment(True, False)
var_mean, std_mean = _moment(False, True), _moment(True, True)


def _extreme(
    all_of: Any, place_of: Any, pairwise: Any, input: Array, dim: Any, keepdim: bool
) -> Any:
    if dim is None:
        return all_of(input)
    if not isinstance(dim, int):
        return pairwise(input, dim)
    return ValuesIndices(all_of(input, dim, keepdim), place_of(input, dim, keepdim))


def max(input: Array, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    return _extreme(amax, argmax, jnp.maximum, input, dim if other is None else other, keepdim)


def min(input: Array, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    return _extreme(amin, argmin, jnp.minimum, input, dim if other is None else other, keepdim)


def count_nonzero(input: Array, dim: Any = None) -> Array:
    return jnp.count_nonzero(input, _axes(dim))


def cumsum(input: Array, dim: int, *, dtype: Any = None) -> Array:
    return jnp.cumsum(input, dim, dtype_of(dtype))


def cumprod(input: Array, dim: int, *, dtype: Any = None) -> Array:
    return jnp.cumprod(input, dim, dtype_of(dtype))


def logcumsumexp(input: Array, dim: int) -> Array:
    return jax.lax.cumlogsumexp(input, dim % builtins.max(input.ndim, 1))


def norm(
    input: Array, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    x = input if dtype is None else input.astype(dtype_of(dtype))
    p = 2 if p in (None, "fro") else p
    if dim is None:
        return jnp.linalg.norm(x.reshape(-1), p)
    return jnp.linalg.norm(x, p, _axes(dim), keepdims=keepdim)


def trace(input: Array) -> Array:
    return jnp.trace(input)


def argsort(input: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    return jnp.argsort(input, dim, stable=True, descending=descending)


def sort(
    input: Array, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesIndices:
    order = argsort(input, dim, descending)
    return ValuesIndices(jnp.take_along_axis(input, order, dim), order)


def topk(
    input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    x = jnp.moveaxis(input, dim, -1)
    values, places = jax.lax.top_k(x if largest else -x, k)
    values = values if largest else -values
    return ValuesIndices(jnp.moveaxis(values, -1, dim), jnp.moveaxis(places, -1, dim))


def equal(input: Array, other: Array) -> bool:
    return bool(jnp.array_equal(input, other))


def allclose(
    input: Array, other: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    return bool(jnp.allclose(input, other, rtol, atol, equal_nan))
