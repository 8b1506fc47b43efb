# SPDX-License-Identifier: BSD-3-Clause
"""Random jax arrays by the shapes and values of others. ``key`` is found as for dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array, dtype_of
from modtree.jax_arrays.functions.keys import key_for


def _no_generator(name: str, generator: Any) -> None:
    if generator is not None:
        raise NotImplementedError(f"{name}: jax draws from keys, leave generator away: key=")


def _like(name: str, draw: Callable[..., Array]) -> Callable[..., Array]:
    def like(
        input: Array,
        *,
        dtype: Any = None,
        device: Any = None,
        generator: Any = None,
        key: Any = None,
    ) -> Array:
        _no_generator(name, generator)
        key = key_for(name, input, key)
        drawn = draw(key, input.shape, dtype_of(dtype) or input.dtype)
        return drawn if device is None else jax.device_put(drawn, device)

    return like


rand_like = _like("rand_like", jax.random.uniform)
randn_like = _like("randn_like", jax.random.normal)


def bernoulli(
    input: Array, p: float | None = None, *, generator: Any = None, key: Any = None
) -> Array:
    _no_generator("bernoulli", generator)
    key = key_for("bernoulli", input, key)
    return jax.random.bernoulli(key, input if p is None else p, input.shape).astype(input.dtype)


def multinomial(
    input: Array,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
    key: Any = None,
) -> Array:
    _no_generator("multinomial", generator)
    key, logits = key_for("multinomial", input, key), jnp.log(input)
    if replacement:
        shape = (num_samples, *logits.shape[:-1])
        return jnp.moveaxis(jax.random.categorical(key, logits, -1, shape), 0, -1)
    # The largest of the logarithms with noise of Gumbel's are samples without replacement.
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    return jax.lax.top_k(logits + noise, num_samples)[1]
