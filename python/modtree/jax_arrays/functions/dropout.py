# SPDX-License-Identifier: BSD-3-Clause
"""Dropout of jax arrays; :mod:`modtree.jax_arrays.functions.keys` says where keys are from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array
from modtree.jax_arrays.functions.keys import key_for


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _kept(name: str, input: Array, shape: tuple[int, ...], p: float, key: Any) -> Array:
    """True where values are kept."""
    if p == 1.0:
        return jnp.zeros(shape, bool)
    return jax.random.bernoulli(key_for(name, input, key), 1.0 - p, shape)


def dropout(
    input: Array, p: float = 0.5, training: bool = True, inplace: bool = False, *, key: Any = None
) -> Array:
    _check_probability(p)
    if not training or p == 0.0:
        return input
    kept = _kept("dropout", input, input.shape, p, key)
    return jnp.where(kept, input / max(1.0 - p, 1e-38), 0).astype(input.dtype)


def _channels(input: Array, n: int) -> tuple[int, ...]:
    """The shape of one draw for each channel of (N, C, ...) or (C, ...)."""
    front = input.ndim - n
    return (*input.shape[:front], *(1,) * n)


def _drop_channels(name: str, n: int, input: Array, p: float, training: bool, key: Any) -> Array:
    _check_probability(p)
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}: expected {n + 1} or {n + 2} dimensions, got shape {tuple(input.shape)}"
        )
    if not training or p == 0.0:
        return input
    kept = _kept(name, input, _channels(input, n), p, key)
    return jnp.where(kept, input / max(1.0 - p, 1e-38), 0).astype(input.dtype)


def dropout1d(
    input: Array, p: float = 0.5, training: bool = True, inplace: bool = False, *, key: Any = None
) -> Array:
    return _drop_channels("dropout1d", 1, input, p, training, key)


def dropout2d(
    input: Array, p: float = 0.5, training: bool = True, inplace: bool = False, *, key: Any = None
) -> Array:
    # Three dimensions are (N, C, L), as torch reads them.
    return _drop_channels("dropout2d", 1 if input.ndim == 3 else 2, input, p, training, key)


def dropout3d(
    input: Array, p: float = 0.5, training: bool = True, inplace: bool = False, *, key: Any = None
) -> Array:
    return _drop_channels("dropout3d", 3, input, p, training, key)


#: What SELU tends to for large negative values: dropped values take it.
_SELU_LIMIT = -1.7580993408473766


def _alpha_dropout(
    name: str, input: Array, shape: tuple[int, ...], p: float, training: bool, key: Any
) -> Array:
    _check_probability(p)
    if not training or p == 0.0:
        return input
    kept = _kept(name, input, shape, p, key).astype(input.dtype)
    if p == 1.0:
        return input * kept
    # Scale and shift bring mean and variance back to what they were before.
    scale = ((1.0 - p) * (1.0 + p * _SELU_LIMIT**2)) ** -0.5
    return input * (kept * scale) + ((1 - kept) * _SELU_LIMIT + p * -_SELU_LIMIT) * scale


def alpha_dropout(
    input: Array, p: float = 0.5, training: bool = False, inplace: bool = False, *, key: Any = None
) -> Array:
    return _alpha_dropout("alpha_dropout", input, input.shape, p, training, key)


def feature_alpha_dropout(
    input: Array, p: float = 0.5, training: bool = False, inplace: bool = False, *, key: Any = None
) -> Array:
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _alpha_dropout("feature_alpha_dropout", input, shape, p, training, key)
