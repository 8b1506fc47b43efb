# SPDX-License-Identifier: BSD-3-Clause
"""Layer normalization."""

from __future__ import annotations

from typing import Any

from ..._C import TensorBase, kernels
from ...ops.table import define, derive_jointly
from ._common import Array, Spec, in_kernel_dtype, need_arrays, need_floating
from ._moments import normalized, summed, through_normalized
from ._windows import half_with_single, wide


def check_normalized(
    what: str, x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...]
) -> None:
    """Do the sizes and dtypes fit a normalization over the last axes?"""
    need_arrays(what, x, *(v for v in (weight, bias) if v is not None))
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
        if value is not None and value.dtype != x.dtype and not half_with_single(x, value):
            raise RuntimeError(
                f"{what}: all inputs must share same datatype, got {x.dtype} and a {name} of {value.dtype}"
            )
    if x.shape[max(x.ndim - len(shape), 0) :] != shape:
        expected = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{expected}], "
            f"but got input of size{list(x.shape)}"
        )
    need_floating(what, x)


def _layer_norm(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Array:
    check_normalized("layer_norm", x, weight, bias, shape)
    axes = len(shape)
    return in_kernel_dtype(lambda v: kernels.layer_norm(v, axes, weight, bias, eps), x)


def _recorded(
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


layer_norm = define("layer_norm", _layer_norm, meta=_layer_norm_meta, record=_recorded)


def _gradients(
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


derive_jointly("layer_norm", _gradients, twice=True)
