# SPDX-License-Identifier: BSD-3-Clause
"""Normalization of jax arrays. Running statistics cannot change in place: the functions that end in
``_and_statistics`` return the new ones, and layers assign them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from modtree.jax_arrays.functions._common import Array


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """Per channel, the second axis."""
    shape = (1, -1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _normalized(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    # In two passes. The mean of the squares less the square of the mean is wrong by 0.4 % in
    # float32 where the mean is 100 standard deviations, and useless at 1000. On the CPU, gradients
    # of 24 layers that use it also compile in twice the time of these.
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps)


def _refuse_statistics(name: str, *statistics: Array | None) -> None:
    if any(s is not None for s in statistics):
        raise NotImplementedError(
            f"{name}: running statistics of jax cannot change in place while training: pass None "
            f"for them, or call {name}_and_statistics(), which returns the new ones"
        )


def batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    if not training:
        return _by_statistics(input, running_mean, running_var, weight, bias, eps)
    _refuse_statistics("batch_norm", running_mean, running_var)
    return batch_norm_and_statistics(input, None, None, weight, bias, momentum, eps)[0]


def _by_statistics(
    input: Array,
    mean: Array | None,
    variance: Array | None,
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> Array:
    if mean is None or variance is None:
        raise ValueError(
            "expected running_mean and running_var, without those of a batch, got None"
        )
    shape = (1, -1, *(1,) * (input.ndim - 2))
    y = (input - mean.reshape(shape)) * jax.lax.rsqrt(variance.reshape(shape) + eps)
    return _affine(y, weight, bias)


def batch_norm_and_statistics(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Array, Array | None, Array | None]:
    """:func:`batch_norm` while training, and the moved statistics (None where none were given)."""
    count = input.shape[0] * math.prod(input.shape[2:])
    if count == 1:
        raise ValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{list(input.shape)}"
        )
    axes = (0, *range(2, input.ndim))
    mean = input.mean(axes, keepdims=True)
    centred = input - mean
    variance = (centred * centred).mean(axes, keepdims=True)
    y = _affine(centred * jax.lax.rsqrt(variance + eps), weight, bias)
    unbiased = variance.reshape(-1) * (count / max(count - 1, 1))
    return (
        y,
        _moved(running_mean, mean.reshape(-1), momentum),
        _moved(running_var, unbiased, momentum),
    )


def _moved(running: Array | None, value: Array, momentum: float) -> Array | None:
    if running is None:
        return None
    value = jax.lax.stop_gradient(value)
    return (running * (1 - momentum) + value * momentum).astype(running.dtype)


def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    if not use_input_stats:
        return _by_statistics(input, running_mean, running_var, weight, bias, eps)
    _refuse_statistics("instance_norm", running_mean, running_var)
    return instance_norm_and_statistics(input, None, None, weight, bias, momentum, eps)[0]


def instance_norm_and_statistics(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Array, Array | None, Array | None]:
    """:func:`instance_norm` of the input's own statistics, and the moved ones."""
    count = math.prod(input.shape[2:])
    if count == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{list(input.shape)}"
        )
    axes = tuple(range(2, input.ndim))
    y = _affine(_normalized(input, axes, eps), weight, bias)
    if running_mean is None and running_var is None:
        return y, None, None
    return (
        y,
        _moved(running_mean, input.mean(axes).mean(0), momentum),
        _moved(running_var, input.var(axes, ddof=1).mean(0), momentum),
    )


def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    if input.shape[1] % num_groups:
        raise RuntimeError(
            f"group_norm: expected a multiple of {num_groups} channels, got {input.shape[1]}"
        )
    x = input.reshape(input.shape[0], num_groups, -1)
    return _affine(_normalized(x, (2,), eps).reshape(input.shape), weight, bias)


def _last_axes(name: str, input: Array, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(normalized_shape)
    if tuple(input.shape[input.ndim - len(shape) :]) != shape:
        raise RuntimeError(
            f"{name}: expected the last axes to be {list(shape)}, got shape {list(input.shape)}"
        )
    return tuple(range(-len(shape), 0))


def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    y = _normalized(input, _last_axes("layer_norm", input, normalized_shape), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    eps: float | None = None,
) -> Array:
    axes = _last_axes("rms_norm", input, normalized_shape)
    eps = float(jnp.finfo(input.dtype).eps) if eps is None else eps
    y = input * jax.lax.rsqrt((input * input).mean(axes, keepdims=True) + eps)
    return y if weight is None else y * weight


def local_response_norm(
    input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Array:
    rest = input.ndim - 2
    total = jax.lax.reduce_window(
        input * input,
        # Of NumPy: only then it is known as a sum, and derived.
        np.zeros((), input.dtype)[()],
        jax.lax.add,
        (1, size, *(1,) * rest),
        (1,) * input.ndim,
        ((0, 0), (size // 2, (size - 1) // 2), *((0, 0),) * rest),
    )
    return input / (total / size * alpha + k) ** beta
