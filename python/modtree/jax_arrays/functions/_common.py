# SPDX-License-Identifier: BSD-3-Clause
"""What the functions on jax arrays share: sizes for each axis, reductions, dtypes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # jax.Array, or a tracer
Ints = Any  # one int, or one for each axis
Flag = bool | None


def each(value: Ints, n: int) -> tuple[int, ...]:
    """A value for each of ``n`` axes."""
    sizes = tuple(int(v) for v in value) if isinstance(value, Iterable) else (int(value),) * n
    sizes = sizes * n if len(sizes) == 1 else sizes
    if len(sizes) != n:
        raise ValueError(f"expected one int or {n}, got {value!r}")
    return sizes


def batched(name: str, input: Array, n: int) -> tuple[Array, bool]:
    """(N, C, ...) over ``n`` axes, and whether the input had the first of them."""
    if input.ndim not in (n + 1, n + 2):
        raise ValueError(
            f"{name}: expected {n + 1} or {n + 2} dimensions, got shape {tuple(input.shape)}"
        )
    has_batch = input.ndim == n + 2
    return (input if has_batch else input[None]), has_batch


def dtype_of(dtype: Any) -> Any:
    """A dtype for jax: of jax, NumPy, modtree or torch, by its name; None for None."""
    if dtype is None:
        return None
    try:
        given = jnp.dtype(dtype)
    except TypeError:
        given = jnp.dtype(str(dtype).rpartition(".")[2])
    return jax.dtypes.canonicalize_dtype(given)


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """``reduction``, or what the two arguments that came before it say."""
    if size_average is not None or reduce is not None:
        whole = reduce is None or reduce
        reduction = "none" if not whole else "sum" if size_average is False else "mean"
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"{reduction} is not a valid value for reduction: use 'none', 'mean' or 'sum'"
        )
    return reduction


def reduced(loss: Array, reduction: str) -> Array:
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def gather_windows(input: Array, positions: list[np.ndarray]) -> Array:
    """(N, C, *sizes) as (N, C, *windows, elements): for each of the last axes the positions of the
    elements of each window, (windows, elements). A position below 0 is outside, and -inf or the
    smallest integer is there.
    """
    n = len(positions)
    small = -jnp.inf if jnp.issubdtype(input.dtype, jnp.floating) else jnp.iinfo(input.dtype).min
    x = input
    for axis, place in enumerate(positions):
        # The axes in front are those of windows and elements already.
        at = 2 + 2 * axis
        x = jnp.take(x, jnp.asarray(np.maximum(place, 0).reshape(-1)), axis=at)
        x = x.reshape(*x.shape[:at], *place.shape, *x.shape[at + 1 :])
        shape = [1] * x.ndim
        shape[at : at + 2] = place.shape
        x = jnp.where(jnp.asarray(place < 0).reshape(shape), small, x)
    order = (0, 1, *range(2, 2 + 2 * n, 2), *range(3, 2 + 2 * n, 2))
    x = x.transpose(order)
    return x.reshape(*x.shape[: 2 + n], -1)


def flat_places(positions: list[np.ndarray], sizes: tuple[int, ...]) -> np.ndarray:
    """The places of the same elements in the flattened plane of the input, (*windows, elements)."""
    n = len(positions)
    total = np.zeros((), np.int64)
    for axis, place in enumerate(positions):
        shape = [1] * (2 * n)
        shape[axis], shape[n + axis] = place.shape
        total = total * sizes[axis] + place.reshape(shape)
    return total.reshape(*total.shape[:n], -1)
