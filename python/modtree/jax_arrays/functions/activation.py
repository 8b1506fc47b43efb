# SPDX-License-Identifier: BSD-3-Clause
"""Activations of jax arrays. ``inplace`` has no effect: arrays cannot change."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array, dtype_of
from modtree.jax_arrays.functions.keys import key_for


def relu(input: Array, inplace: bool = False) -> Array:
    return jax.nn.relu(input)


def relu6(input: Array, inplace: bool = False) -> Array:
    return hardtanh(input, 0.0, 6.0)


def hardtanh(
    input: Array, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Array:
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    # The gradient at the bounds is 0.
    inside = (input > min_val) & (input < max_val)
    return jnp.where(inside, input, jax.lax.stop_gradient(jnp.clip(input, min_val, max_val)))


hardtanh_ = hardtanh


def leaky_relu(input: Array, negative_slope: float = 0.01, inplace: bool = False) -> Array:
    return jnp.where(input > 0, input, input * negative_slope)


def rrelu(
    input: Array,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    key: Any = None,
) -> Array:
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slopes = jax.random.uniform(
        key_for("rrelu", input, key), input.shape, input.dtype, lower, upper
    )
    return jnp.where(input > 0, input, input * slopes)


def elu(input: Array, alpha: float = 1.0, inplace: bool = False) -> Array:
    return _elu(input, alpha, 1.0, 1.0)


def _elu(input: Array, alpha: float, scale: float, inner: float) -> Array:
    # The branch that is not taken sees no large numbers, whose derivative would be nan.
    below = jnp.where(input > 0, 0, input)
    return jnp.where(input > 0, input * scale, jnp.expm1(below * inner) * (alpha * scale))


def selu(input: Array, inplace: bool = False) -> Array:
    return _elu(input, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


def celu(input: Array, alpha: float = 1.0, inplace: bool = False) -> Array:
    return _elu(input, alpha, 1.0, 1.0 / alpha)


def gelu(input: Array, *, approximate: str = "none") -> Array:
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}")
    if approximate == "tanh":
        return jax.nn.gelu(input, approximate=True)
    return input * 0.5 * (1 + jax.lax.erf(input * math.sqrt(0.5)))


def silu(input: Array, inplace: bool = False) -> Array:
    return jax.nn.silu(input)


def mish(input: Array, inplace: bool = False) -> Array:
    return input * jnp.tanh(jax.nn.softplus(input))


def sigmoid(input: Array) -> Array:
    return jax.nn.sigmoid(input)


def tanh(input: Array) -> Array:
    return jnp.tanh(input)


def tanhshrink(input: Array) -> Array:
    return input - jnp.tanh(input)


def softplus(input: Array, beta: float = 1, threshold: float = 20) -> Array:
    scaled = input * beta
    below = jnp.where(scaled > threshold, 0, scaled)
    return jnp.where(scaled > threshold, input, jax.nn.softplus(below) / beta)


def softsign(input: Array) -> Array:
    return input / (1 + jnp.abs(input))


def logsigmoid(input: Array) -> Array:
    return jax.nn.log_sigmoid(input)


def hardswish(input: Array, inplace: bool = False) -> Array:
    middle = input * (input + 3) / 6
    return jnp.where(input <= -3, 0, jnp.where(input < 3, middle, input)).astype(input.dtype)


def hardsigmoid(input: Array, inplace: bool = False) -> Array:
    return hardtanh(input + 3, 0.0, 6.0) / 6


def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    return jnp.where((input >= -lambd) & (input <= lambd), 0, input).astype(input.dtype)


def softshrink(input: Array, lambd: float = 0.5) -> Array:
    moved = jnp.where(input > lambd, input - lambd, input + lambd)
    return jnp.where(jnp.abs(input) <= lambd, 0, moved).astype(input.dtype)


def threshold(input: Array, threshold: float, value: float, inplace: bool = False) -> Array:
    return jnp.where(input > threshold, input, value).astype(input.dtype)


def prelu(input: Array, weight: Array) -> Array:
    if weight.size != 1 and input.ndim > 1:
        weight = weight.reshape(1, -1, *(1,) * (input.ndim - 2))
    return jnp.where(input > 0, input, input * weight)


def glu(input: Array, dim: int = -1) -> Array:
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}"
        )
    a, b = jnp.split(input, 2, axis=dim)
    return a * jax.nn.sigmoid(b)


def _axis(input: Array, dim: int | None) -> int:
    return (0 if input.ndim in (0, 1, 3) else 1) if dim is None else dim


def _of_dtype(input: Array, third: Any, dtype: Any) -> Array:
    # The third argument of modtree.softmax() is the dtype.
    dtype = third if dtype is None and not isinstance(third, int) else dtype
    return input if dtype is None else input.astype(dtype_of(dtype))


def softmax(input: Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Array:
    input = _of_dtype(input, _stacklevel, dtype)
    return jax.nn.softmax(input, axis=_axis(input, dim))


def softmin(input: Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Array:
    return softmax(-input, dim, dtype=dtype)


def log_softmax(
    input: Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Array:
    input = _of_dtype(input, _stacklevel, dtype)
    return jax.nn.log_softmax(input, axis=_axis(input, dim))


def gumbel_softmax(
    logits: Array,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    key: Any = None,
) -> Array:
    noise = jax.random.gumbel(key_for("gumbel_softmax", logits, key), logits.shape, logits.dtype)
    soft = jax.nn.softmax((logits + noise) / tau, axis=dim)
    if not hard:
        return soft
    chosen = jnp.argmax(soft, axis=dim)
    sample = jax.nn.one_hot(chosen, soft.shape[dim], axis=dim, dtype=soft.dtype)
    return sample - jax.lax.stop_gradient(soft) + soft


# They return new arrays too.
relu_, leaky_relu_, rrelu_, elu_, selu_, celu_ = relu, leaky_relu, rrelu, elu, selu, celu
threshold_ = threshold
