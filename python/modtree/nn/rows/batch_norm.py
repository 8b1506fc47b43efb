# SPDX-License-Identifier: BSD-3-Clause
"""Batch normalization: mean and variance of each channel, over the batch and all places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._C import TensorBase, kernels
from ...ops.table import define, derive_jointly
from ._common import Array, Spec, need_arrays, need_floating
from ._moments import like, normalized, through_normalized
from ._windows import half_with_single, wide


def _check(
    x: Array, weight: Array | None, bias: Array | None, mean: Array | None, var: Array | None
) -> None:
    named = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    given = {name: v for name, v in named.items() if v is not None}
    need_arrays("batch_norm", x, *given.values())
    need_floating("batch_norm", x)
    if x.ndim < 2:
        raise RuntimeError(
            f"batch_norm: expected an input of at least 2 dimensions (batch, channels, ...), got shape {list(x.shape)}"
        )
    for name, value in given.items():
        if value.shape != (x.shape[1],):
            raise RuntimeError(f"{name} should contain {x.shape[1]} elements not {value.size}")
        if value.dtype != x.dtype and not half_with_single(x, value):
            raise RuntimeError(
                f"batch_norm: expected {name} to be of the dtype of the input, {x.dtype}, got {value.dtype}. Convert "
                "the input or the module with .to(dtype)"
            )


def _recorded(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, tuple[Array, Array]]:
    """The result, and mean and 1 / deviation of each channel. Training updates the running mean and variance in place."""
    _check(x, weight, bias, mean, var)
    dtype = x.dtype
    x, weight, bias = wide(x, weight, bias)
    if training:
        y, centre, spread, rstd = kernels.batch_norm(x, weight, bias, eps)
        _track(mean, var, centre, spread, momentum, math.prod(x.shape) // max(x.shape[1], 1))
    else:
        if mean is None or var is None:
            missing = "running_mean" if mean is None else "running_var"
            raise RuntimeError(f"{missing} must be defined in evaluation mode")
        # Copies: a later step of training may overwrite them before the derivative is taken.
        centre, spread = mean.astype(x.dtype), var.astype(x.dtype)
        y, rstd = kernels.batch_norm_inference(x, centre, spread, weight, bias, eps)
    return y.astype(dtype, copy=False), (centre, rstd)


def _track(
    mean: Array | None, var: Array | None, centre: Array, spread: Array, momentum: float, count: int
) -> None:
    """Moves the running mean and (unbiased) variance towards those of the batch."""
    if mean is not None:
        mean *= 1 - momentum
        mean += momentum * centre.astype(mean.dtype, copy=False)
    if var is not None:
        unbiased = spread * (count / (count - 1) if count > 1 else math.nan)
        var *= 1 - momentum
        var += momentum * unbiased.astype(var.dtype, copy=False)


def _batch_norm(*args: Any) -> Array:
    return _recorded(*args)[0]


def _batch_norm_meta(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Spec:
    _check(x, weight, bias, mean, var)
    return x.shape, x.dtype


def _gradients(
    needs: Any,
    g: Any,
    saved: Any,
    x: Any,
    weight: Any,
    _bias: Any,
    _mean: Any,
    _var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    if not isinstance(g, TensorBase):
        g, x, weight = wide(g, x, weight)
        wanted = (bool(needs[0]), bool(needs[1]), bool(needs[2]))
        centre, rstd = saved
        return kernels.batch_norm_backward(g, x, centre, rstd, weight, training, wanted)
    shape = (-1, *(1,) * (g.ndim - 2))
    axes = (0, *range(2, g.ndim))
    if training:
        y, rstd = normalized(x, axes, eps)
    else:
        centre, rstd = (like(v, g).reshape(shape) for v in saved)
        y = (x - centre) * rstd
    gx = gw = gb = None
    if needs[0]:
        gy = g if weight is None else g * weight.reshape(shape)
        gx = through_normalized(gy, y, rstd, axes) if training else gy * rstd
    if needs[1]:
        gw = np.sum(g * y, axis=axes)
    if needs[2]:
        gb = np.sum(g, axis=axes)
    return gx, gw, gb


batch_norm = define("batch_norm", _batch_norm, meta=_batch_norm_meta, record=_recorded)
derive_jointly("batch_norm", _gradients, twice=True)
