# SPDX-License-Identifier: BSD-3-Clause
"""Products with weights, tables and distances of vectors, on jax arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    result = input @ weight.T
    return result if bias is None else result + bias


def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Array:
    result = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


def embedding(
    input: Array,
    weight: Array,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    rows = _rows(jnp.asarray(input), weight, max_norm, norm_type, scale_grad_by_freq)
    if padding_idx is None:
        return rows
    is_padding = (input == padding_idx % weight.shape[0])[..., None]
    return jnp.where(is_padding, jax.lax.stop_gradient(rows), rows)


def _with_value(x: Array, value: Array) -> Array:
    """Another value with the gradient of x."""
    return x + jax.lax.stop_gradient(value - x)


def _rows(
    input: Array, weight: Array, max_norm: float | None, norm_type: float, by_frequency: bool
) -> Array:
    """Rows of a table, none of which is longer than ``max_norm``. The table itself cannot change,
    and what is returned is the same as if it did.
    """
    rows = jnp.take(weight, input, axis=0)
    if max_norm is not None:
        norms = jnp.linalg.norm(rows, norm_type, axis=-1, keepdims=True)
        shorter = jnp.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
        rows = _with_value(rows, shorter)
    if by_frequency:
        counts = jnp.zeros(weight.shape[0], rows.dtype).at[input.reshape(-1)].add(1)
        rows = _with_value(rows / jnp.take(counts, input)[..., None], rows)
    return rows


def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    input = jnp.asarray(input)
    if input.ndim == 2:
        count = input.shape[0]
        bags = jnp.repeat(jnp.arange(count), input.shape[1])
        input = input.reshape(-1)
        factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    else:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None: a 1D input needs them")
        starts = jnp.asarray(offsets)
        starts = starts[:-1] if include_last_offset else starts
        count = starts.shape[0]
        bags = jnp.searchsorted(starts, jnp.arange(input.shape[0]), side="right") - 1
        factors = per_sample_weights
    rows = _rows(input, weight, max_norm, norm_type, scale_grad_by_freq)
    rows = rows if factors is None else rows * factors[:, None]
    counted = jnp.ones(input.shape, bool)
    if padding_idx is not None:
        counted = input != padding_idx % weight.shape[0]
    number = jax.ops.segment_sum(counted.astype(weight.dtype), bags, count)[:, None]
    if mode == "max":
        rows = jnp.where(counted[:, None], rows, -jnp.inf)
        found = jax.ops.segment_max(rows, bags, count)
        return jnp.where(number > 0, found, 0).astype(weight.dtype)
    total = jax.ops.segment_sum(jnp.where(counted[:, None], rows, 0), bags, count)
    return total / jnp.maximum(number, 1) if mode == "mean" else total


def one_hot(tensor: Array, num_classes: int = -1) -> Array:
    if num_classes == -1:
        if isinstance(tensor, jax.core.Tracer):
            raise ValueError("one_hot: a traced function needs num_classes, which shapes depend on")
        num_classes = int(tensor.max()) + 1
    return jax.nn.one_hot(tensor, num_classes, dtype=tensor.dtype)


def _norm(x: Array, p: float, dim: int, keepdim: bool) -> Array:
    """The norm, whose derivative at 0 is 0."""
    if p == 2:
        square = (x * x).sum(dim, keepdims=keepdim)
        is_zero = square == 0
        return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, square)))
    return jnp.linalg.norm(x, p, axis=dim, keepdims=keepdim)


def normalize(
    input: Array, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Array | None = None
) -> Array:
    if out is not None:
        raise NotImplementedError("normalize: jax arrays cannot change, leave out= away")
    return input / jnp.maximum(_norm(input, p, dim, True), eps)


def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    x1, x2 = jnp.broadcast_arrays(x1, x2)
    n1, n2 = (_norm(x, 2.0, dim, True) for x in (x1, x2))
    # The bound, which gradients do not see, keeps the quotient finite.
    n1, n2 = (n + jax.lax.stop_gradient(jnp.maximum(n, eps) - n) for n in (n1, n2))
    return ((x1 / n1) * (x2 / n2)).sum(dim)


def pairwise_distance(
    x1: Array, x2: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Array:
    return _norm(x1 - x2 + eps, p, -1, keepdim)
