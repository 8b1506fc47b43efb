# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers of jax arrays: one layer in one direction, by ``lax.scan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array
from modtree.jax_arrays.functions.linear import linear


def recurrence(
    mode: str,
    x: Array,
    states: Sequence[Array],
    weights: Sequence[Array | None],
    projection: Array | None = None,
    reverse: bool = False,
    sizes: tuple[int, ...] | None = None,
) -> tuple[Array, ...]:
    """As ``modtree.nn.functional.recurrent.recurrence``."""
    w_input, w_hidden, b_input, b_hidden = weights
    batch = jnp.arange(x.shape[1])[:, None]

    def step(now: tuple[Array, ...], given: Any) -> tuple[tuple[Array, ...], Array]:
        inner, size = given
        outer = linear(now[0], w_hidden, b_hidden)
        after = _STEPS[mode](inner, outer, now)
        if projection is not None:
            after = (linear(after[0], projection), *after[1:])
        if size is not None:  # sequences that are shorter have ended, or do not begin yet
            after = tuple(
                jnp.where(batch < size, new, old) for new, old in zip(after, now, strict=True)
            )
        return after, after[0]

    # The products with the inputs of all steps are one product.
    inputs = linear(x, w_input, b_input), None if sizes is None else jnp.asarray(sizes)
    last, outputs = jax.lax.scan(step, tuple(states), inputs, reverse=reverse)
    return (outputs, *last)


def _lstm(inner: Array, outer: Array, now: tuple[Array, ...]) -> tuple[Array, ...]:
    i, f, g, o = jnp.split(inner + outer, 4, -1)
    cell = jax.nn.sigmoid(f) * now[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def _gru(inner: Array, outer: Array, now: tuple[Array, ...]) -> tuple[Array, ...]:
    (r, z, n), (hr, hz, hn) = jnp.split(inner, 3, -1), jnp.split(outer, 3, -1)
    new = jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn)
    return ((now[0] - new) * jax.nn.sigmoid(z + hz) + new,)


_STEPS: dict[str, Any] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda inner, outer, now: (jnp.tanh(inner + outer),),
    "RNN_RELU": lambda inner, outer, now: (jax.nn.relu(inner + outer),),
}
