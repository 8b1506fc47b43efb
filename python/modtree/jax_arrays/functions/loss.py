# SPDX-License-Identifier: BSD-3-Clause
"""Losses of jax arrays."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array, Flag, reduced, reduction_of


def _weighted(loss: Array, weight: Array | None, reduction: str) -> Array:
    """A weighted mean divides by the sum of the weights."""
    if weight is None:
        return reduced(loss, reduction)
    if reduction == "mean":
        return (loss * weight).sum() / weight.sum()
    return reduced(loss * weight, reduction)


def mse_loss(
    input: Array,
    target: Array,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    weight: Array | None = None,
) -> Array:
    return _weighted((input - target) ** 2, weight, reduction_of(size_average, reduce, reduction))


def l1_loss(
    input: Array,
    target: Array,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    weight: Array | None = None,
) -> Array:
    return _weighted(jnp.abs(input - target), weight, reduction_of(size_average, reduce, reduction))


def smooth_l1_loss(
    input: Array,
    target: Array,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Array:
    reduction = reduction_of(size_average, reduce, reduction)
    distance = jnp.abs(input - target)
    if beta == 0:
        return reduced(distance, reduction)
    near = 0.5 * distance**2 / beta
    return reduced(jnp.where(distance < beta, near, distance - 0.5 * beta), reduction)


def huber_loss(
    input: Array,
    target: Array,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Array | None = None,
) -> Array:
    distance = jnp.abs(input - target)
    far = delta * (distance - 0.5 * delta)
    loss = jnp.where(distance <= delta, 0.5 * distance**2, far)
    # Here the mean divides by the number of losses all the same.
    return reduced(loss if weight is None else loss * weight, reduction)


def kl_div(
    input: Array,
    target: Array,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Array:
    if log_target:
        loss = jnp.exp(target) * (target - input)
    else:
        loss = jax.scipy.special.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.ndim else loss
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def binary_cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    if input.shape != target.shape:
        raise ValueError(
            f"expected a target of the input's size {tuple(input.shape)}, got {tuple(target.shape)}"
        )
    # Logarithms end at -100.
    logs = (_cut_log(input), _cut_log(1 - input))
    loss = -(target * logs[0] + (1 - target) * logs[1])
    loss = loss if weight is None else loss * weight
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def _cut_log(x: Array) -> Array:
    is_small = x < math.exp(-100)
    return jnp.where(is_small, -100.0, jnp.log(jnp.where(is_small, 1, x)))


def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Flag = None,
    reduce: Flag = None,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    if input.shape != target.shape:
        raise ValueError(
            f"Target size ({tuple(target.shape)}) must be the same as input size "
            f"({tuple(input.shape)})"
        )
    positive = 1 if pos_weight is None else pos_weight
    negative = jax.nn.log_sigmoid(-input)
    loss = -(positive * target * jax.nn.log_sigmoid(input) + (1 - target) * negative)
    loss = loss if weight is None else loss * weight
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def _class_losses(
    logs: Array, target: Array, weight: Array | None, ignored: int
) -> tuple[Array, Array]:
    """Minus the logarithm at each target, and its weight, 0 where the target is ignored."""
    axis = 0 if logs.ndim == 1 else 1
    target = jnp.asarray(target)
    is_ignored = target == ignored
    chosen = jnp.where(is_ignored, 0, target)
    found = jnp.take_along_axis(logs, jnp.expand_dims(chosen, axis), axis).squeeze(axis)
    factor = jnp.ones_like(found) if weight is None else jnp.take(weight, chosen)
    factor = jnp.where(is_ignored, 0, factor).astype(logs.dtype)
    return -found * factor, factor


def nll_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Flag = None,
    ignore_index: int = -100,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    reduction = reduction_of(size_average, reduce, reduction)
    loss, factor = _class_losses(input, target, weight, ignore_index)
    return loss.sum() / factor.sum() if reduction == "mean" else reduced(loss, reduction)


def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Flag = None,
    ignore_index: int = -100,
    reduce: Flag = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    reduction = reduction_of(size_average, reduce, reduction)
    axis = 0 if input.ndim == 1 else 1
    logs = jax.nn.log_softmax(input, axis)
    if input.shape == target.shape:  # probabilities
        return _of_probabilities(logs, target, weight, reduction, label_smoothing, axis)
    loss, factor = _class_losses(logs, target, weight, ignore_index)
    if label_smoothing:
        spread = -(logs if weight is None else logs * _per_class(weight, logs, axis)).sum(axis)
        spread = jnp.where(target == ignore_index, 0, spread) / input.shape[axis]
        loss = (1 - label_smoothing) * loss + label_smoothing * spread
    return loss.sum() / factor.sum() if reduction == "mean" else reduced(loss, reduction)


def _per_class(weight: Array, logs: Array, axis: int) -> Array:
    return weight.reshape([-1 if i == axis else 1 for i in range(logs.ndim)])


def _of_probabilities(
    logs: Array,
    target: Array,
    weight: Array | None,
    reduction: str,
    smoothing: float,
    axis: int,
) -> Array:
    count = logs.shape[axis]
    target = target * (1 - smoothing) + smoothing / count if smoothing else target
    logs = logs if weight is None else logs * _per_class(weight, logs, axis)
    loss = -(logs * target).sum(axis)
    # The mean is over the batch, whatever the weights are.
    return loss.mean() if reduction == "mean" else reduced(loss, reduction)


def gaussian_nll_loss(
    input: Array,
    target: Array,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Array:
    var = jnp.asarray(var, input.dtype)
    if var.ndim and var.shape == input.shape[:-1] != input.shape:
        var = var[..., None]
    # At least eps, and yet with the gradient of the variance itself.
    bounded = var + jax.lax.stop_gradient(jnp.maximum(var, eps) - var)
    loss = 0.5 * (jnp.log(bounded) + (input - target) ** 2 / bounded)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    size_average: Flag = None,
    eps: float = 1e-8,
    reduce: Flag = None,
    reduction: str = "mean",
) -> Array:
    if log_input:
        loss = jnp.exp(input) - target * input
    else:
        loss = input - target * jnp.log(input + eps)
    if full:
        large = jnp.where(target > 1, target, 1)
        stirling = large * jnp.log(large) - large + 0.5 * jnp.log(2 * math.pi * large)
        loss = loss + jnp.where(target > 1, stirling, 0)
    return reduced(loss, reduction_of(size_average, reduce, reduction))
