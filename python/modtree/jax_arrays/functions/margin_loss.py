# SPDX-License-Identifier: BSD-3-Clause
"""Losses of jax arrays by distances between vectors, and by margins between scores."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array, Flag, reduced, reduction_of
from modtree.jax_arrays.functions.linear import cosine_similarity, pairwise_distance


def margin_ranking_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    loss = jax.nn.relu(-target * (input1 - input2) + margin)
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def hinge_embedding_loss(
    input: Array,
    target: Array,
    margin: float = 1.0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    loss = jnp.where(target == 1, input, jax.nn.relu(margin - input))
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def soft_margin_loss(
    input: Array,
    target: Array,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    return reduced(jax.nn.softplus(-target * input), reduction_of(size_average, reduce, reduction))


def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    rows = input if input.ndim == 2 else input[None]
    labels = jnp.asarray(target).reshape(-1)
    own = jnp.take_along_axis(rows, labels[:, None], 1)
    loss = jax.nn.relu(margin - own + rows) ** p
    loss = loss if weight is None else loss * jnp.take(weight, labels)[:, None]
    is_other = jnp.arange(rows.shape[1]) != labels[:, None]
    loss = jnp.where(is_other, loss, 0).sum(1) / rows.shape[1]
    loss = loss if input.ndim == 2 else loss[0]
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def cosine_embedding_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    cosine = cosine_similarity(input1, input2, -1)
    loss = jnp.where(target == 1, 1 - cosine, jax.nn.relu(cosine - margin))
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def _triplet(
    distance: Callable[[Array, Array], Array],
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float,
    swap: bool,
    reduction: str,
) -> Array:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    far = distance(anchor, negative)
    far = jnp.minimum(far, distance(positive, negative)) if swap else far
    return reduced(jax.nn.relu(margin + distance(anchor, positive) - far), reduction)


def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    def distance(a: Array, b: Array) -> Array:
        return pairwise_distance(a, b, p, eps)

    reduction = reduction_of(size_average, reduce, reduction)
    return _triplet(distance, anchor, positive, negative, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    *,
    distance_function: Callable[[Array, Array], Array] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    distance = distance_function or pairwise_distance
    return _triplet(distance, anchor, positive, negative, margin, swap, reduction)
