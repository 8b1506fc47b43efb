# SPDX-License-Identifier: BSD-3-Clause
"""layer_norm, rms_norm, group_norm, batch_norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import TensorBase, from_array, kernels
from modtree.numpy.ops.generic import Array, Spec, in_kernel_dtype, need_arrays, need_floating
from modtree.numpy.ops.registry import define, derive_jointly
from modtree.numpy.ops.windows import half_with_single, wide

Axes = tuple[int, ...]


def normalized(x: Any, axes: Axes, eps: float) -> tuple[Any, Any]:
    """``(x - mean) * rstd`` over the axes, and ``rstd = 1 / sqrt(variance + eps)``."""
    centred = x - np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(centred * centred, axis=axes, keepdims=True)
    rstd = 1.0 / np.sqrt(variance + eps)
    return centred * rstd, rstd


def through_normalized(g: Any, y: Any, rstd: Any, axes: Axes) -> Any:
    """The gradient of x, from the gradient of ``y, rstd = normalized(x)``: what changes mean and
    variance is taken out.
    """
    mean = np.mean(g, axis=axes, keepdims=True)
    along = np.mean(g * y, axis=axes, keepdims=True)
    return rstd * (g - mean - y * along)


def summed(g: Any, axes: Axes) -> Any:
    """The sum over the axes; itself when there are none, which to tensors would mean all."""
    return np.sum(g, axis=axes) if axes else g


def like(value: Any, g: Any) -> Any:
    """A saved array as a constant tensor where the gradient is a tensor."""
    return (
        from_array(value) if isinstance(g, TensorBase) and isinstance(value, np.ndarray) else value
    )


def check_normalized(
    what: str, x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...]
) -> None:
    """Whether the sizes and dtypes fit a normalization over the last axes."""
    need_arrays(what, x, *(v for v in (weight, bias) if v is not None))
    check_normalized_sizes(x, weight, bias, shape)
    need_floating(what, x)
    dtype = x.dtype
    if (weight is not None and weight.dtype != dtype) or (bias is not None and bias.dtype != dtype):
        _check_dtypes(what, x, weight, bias)


def _check_dtypes(what: str, x: Array, weight: Array | None, bias: Array | None) -> None:
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.dtype != x.dtype and not half_with_single(x, value):
            raise RuntimeError(
                f"{what}: all inputs must share same datatype, got {x.dtype} and a {name} of "
                f"{value.dtype}"
            )


def check_normalized_sizes(x: Any, weight: Any, bias: Any, shape: tuple[int, ...]) -> None:
    """The part of :func:`check_normalized` that is about sizes; for tensors too."""
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            "one element, but got normalized_shape = []"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of "
                f"shape {list(value.shape)} and normalized_shape = {list(shape)}"
            )
    if x.shape[max(x.ndim - len(shape), 0) :] != shape:
        expected = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{expected}], "
            f"but got input of size{list(x.shape)}"
        )


def _layer_norm(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Array:
    check_normalized("layer_norm", x, weight, bias, shape)
    axes = len(shape)
    return in_kernel_dtype(lambda v: kernels.layer_norm(v, axes, weight, bias, eps), x)


def _layer_norm_recorded(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> tuple[Array, tuple[Array, Array]]:
    """The result, and mean and 1 / deviation of each row."""
    check_normalized("layer_norm", x, weight, bias, shape)
    dtype = x.dtype
    x, weight, bias = wide(x, weight, bias)
    y, mean, rstd = kernels.layer_norm_stats(x, len(shape), weight, bias, eps)
    return y.astype(dtype, copy=False), (mean, rstd)


def _layer_norm_meta(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Spec:
    check_normalized("layer_norm", x, weight, bias, shape)
    return x.shape, x.dtype


layer_norm = define("layer_norm", _layer_norm, meta=_layer_norm_meta, record=_layer_norm_recorded)


def _layer_norm_vjp(
    needs: Any,
    g: Any,
    saved: Any,
    x: Any,
    weight: Any,
    _bias: Any,
    shape: tuple[int, ...],
    eps: float,
) -> tuple[Any, ...]:
    if not isinstance(g, TensorBase):
        g, x, weight = wide(g, x, weight)
        wanted = (bool(needs[0]), bool(needs[1]), bool(needs[2]))
        mean, rstd = saved
        return kernels.layer_norm_backward(g, x, mean, rstd, len(shape), weight, wanted)
    lead = g.ndim - len(shape)
    axes = tuple(range(lead, g.ndim))
    gx = gw = gb = None
    if needs[0] or needs[1]:
        y, rstd = normalized(x, axes, eps)
        if needs[0]:
            gx = through_normalized(g if weight is None else g * weight, y, rstd, axes)
        if needs[1]:
            gw = summed(g * y, tuple(range(lead)))
    if needs[2]:
        gb = summed(g, tuple(range(lead)))
    return gx, gw, gb


derive_jointly("layer_norm", _layer_norm_vjp, double_backward=True)


def _axes(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(shape), x.ndim))


def _scaled(x: Any, shape: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    """``x / sqrt(mean(x^2) + eps)``, and what x was multiplied with."""
    rstd = 1.0 / np.sqrt(np.mean(x * x, axis=_axes(x, shape), keepdims=True) + eps)
    return x * rstd, rstd


def _rms_norm(x: Array, weight: Array | None, shape: tuple[int, ...], eps: float) -> Array:
    check_normalized("rms_norm", x, weight, None, shape)
    x_wide, w = wide(x, weight)
    y = _scaled(x_wide, shape, eps)[0]
    if w is not None:
        y *= w
    return y.astype(x.dtype, copy=False)


def _rms_norm_meta(x: Array, weight: Array | None, shape: tuple[int, ...], eps: float) -> Spec:
    check_normalized("rms_norm", x, weight, None, shape)
    return x.shape, x.dtype


def _rms_norm_vjp(
    needs: Any, g: Any, _out: Any, x: Any, weight: Any, shape: tuple[int, ...], eps: float
) -> tuple[Any, ...]:
    if not isinstance(g, TensorBase):
        g, x, weight = wide(g, x, weight)
    y, rstd = _scaled(x, shape, eps)
    gx = gw = None
    if needs[0]:
        gy = g if weight is None else g * weight
        gx = rstd * (gy - y * np.mean(gy * y, axis=_axes(x, shape), keepdims=True))
    if needs[1]:
        gw = summed(g * y, tuple(range(g.ndim - len(shape))))
    return gx, gw


rms_norm = define("rms_norm", _rms_norm, meta=_rms_norm_meta)
derive_jointly("rms_norm", _rms_norm_vjp, double_backward=True)


def _check_groups(x: Array, weight: Array | None, bias: Array | None, groups: int) -> None:
    need_arrays("group_norm", x, *(v for v in (weight, bias) if v is not None))
    if x.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {x.ndim}: group_norm "
            f"takes (batch, channels, ...)"
        )
    if groups < 1 or x.shape[1] % groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(x.shape)} and num_groups={groups}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != (x.shape[1],):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(value.shape)} and input of shape {list(x.shape)}"
            )
        if value is not None and value.dtype != x.dtype and not half_with_single(x, value):
            raise RuntimeError(
                f"group_norm: expected {name} to be of the dtype of the input, {x.dtype}, got "
                f"{value.dtype}. Convert the input or the module with .to(dtype)"
            )
    need_floating("group_norm", x)


def _grouped(x: Any, groups: int) -> tuple[int, int, int]:
    """(samples, groups, elements of a group)"""
    return x.shape[0], groups, math.prod(x.shape[1:]) // groups


def _group_norm_recorded(
    x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> tuple[Array, tuple[Array, Array]]:
    """The result, and mean and 1 / deviation of each group, (samples, groups)."""
    _check_groups(x, weight, bias, groups)
    dtype = x.dtype
    x, weight, bias = wide(x, weight, bias)
    y, mean, rstd = kernels.group_norm(x, groups, weight, bias, eps)
    return y.astype(dtype, copy=False), (mean, rstd)


def _per_channel(values: Any, ndim: int) -> Any:
    return values.reshape(-1, *(1,) * (ndim - 2))


def _group_norm(*args: Any) -> Array:
    return _group_norm_recorded(*args)[0]


def _group_norm_meta(
    x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> Spec:
    _check_groups(x, weight, bias, groups)
    return x.shape, x.dtype


def _group_norm_vjp(
    needs: Any, g: Any, saved: Any, x: Any, weight: Any, _bias: Any, groups: int, eps: float
) -> tuple[Any, ...]:
    if not isinstance(g, TensorBase):
        g, x, weight = wide(g, x, weight)
        mean, rstd = saved
        return kernels.group_norm_backward(g, x, mean, rstd, weight, tuple(needs[:3]))
    shape, rows = tuple(x.shape), _grouped(x, groups)
    axes = (0, *range(2, len(shape)))
    gx = gw = gb = None
    if needs[0] or needs[1]:
        y, rstd = normalized(x.reshape(rows), (2,), eps)
        if needs[0]:
            gy = g if weight is None else g * _per_channel(weight, len(shape))
            rows_of_g = gy.reshape(rows)  # type: ignore[union-attr]
            gx = through_normalized(rows_of_g, y, rstd, (2,)).reshape(shape)
        if needs[1]:
            gw = np.sum(g * y.reshape(shape), axis=axes)
    if needs[2]:
        gb = np.sum(g, axis=axes)
    return gx, gw, gb


group_norm = define("group_norm", _group_norm, meta=_group_norm_meta, record=_group_norm_recorded)
derive_jointly("group_norm", _group_norm_vjp, double_backward=True)


def _check_batch(
    x: Array, weight: Array | None, bias: Array | None, mean: Array | None, var: Array | None
) -> None:
    named = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    given = {name: v for name, v in named.items() if v is not None}
    need_arrays("batch_norm", x, *given.values())
    need_floating("batch_norm", x)
    if x.ndim < 2:
        raise RuntimeError(
            f"batch_norm: expected an input of at least 2 dimensions (batch, channels, ...), got "
            f"shape {list(x.shape)}"
        )
    for name, value in given.items():
        if value.shape != (x.shape[1],):
            raise RuntimeError(f"{name} should contain {x.shape[1]} elements not {value.size}")
        if value.dtype != x.dtype and not half_with_single(x, value):
            raise RuntimeError(
                f"batch_norm: expected {name} to be of the dtype of the input, {x.dtype}, got "
                f"{value.dtype}. Convert the input or the module with .to(dtype)"
            )


def _batch_norm_recorded(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, tuple[Array, Array]]:
    """The result, and mean and 1 / deviation of each channel. Training updates the running mean and
    variance in place.
    """
    _check_batch(x, weight, bias, mean, var)
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
    """Moves the running mean and (unbiased) variance towards those of the batch, if it has any."""
    if not count:
        return
    if mean is not None:
        mean *= 1 - momentum
        mean += momentum * centre.astype(mean.dtype, copy=False)
    if var is not None:
        unbiased = spread * (count / (count - 1) if count > 1 else math.nan)
        var *= 1 - momentum
        var += momentum * unbiased.astype(var.dtype, copy=False)


def _batch_norm(*args: Any) -> Array:
    return _batch_norm_recorded(*args)[0]


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
    _check_batch(x, weight, bias, mean, var)
    return x.shape, x.dtype


def _batch_norm_vjp(
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
        if not x.size:
            zeros = np.zeros(x.shape[1], g.dtype)
            return np.zeros_like(x), zeros, zeros
        g, x, weight = wide(g, x, weight)
        wanted = (bool(needs[0]), bool(needs[1]), bool(needs[2]))
        centre, rstd = saved
        if training or not wanted[0]:
            return kernels.batch_norm_backward(g, x, centre, rstd, weight, training, wanted)
        # The kernel's terms of mean and variance are 0 here, and NaN for an infinite x.
        scale = rstd if weight is None else rstd * weight
        gx = g * scale.reshape(-1, *(1,) * (g.ndim - 2))
        if not any(wanted[1:]):
            return gx, None, None
        rest = (False, *wanted[1:])
        return gx, *kernels.batch_norm_backward(g, x, centre, rstd, weight, training, rest)[1:]
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


batch_norm = define("batch_norm", _batch_norm, meta=_batch_norm_meta, record=_batch_norm_recorded)
derive_jointly("batch_norm", _batch_norm_vjp, double_backward=True)
