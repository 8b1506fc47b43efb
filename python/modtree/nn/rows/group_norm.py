# SPDX-License-Identifier: BSD-3-Clause
"""Group normalization: mean and variance of each sample's groups of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._C import TensorBase, kernels
from ...ops.table import define, derive_jointly
from ._common import Array, Spec, need_arrays, need_floating
from ._moments import normalized, through_normalized
from ._windows import half_with_single, wide


def _check(x: Array, weight: Array | None, bias: Array | None, groups: int) -> None:
    need_arrays("group_norm", x, *(v for v in (weight, bias) if v is not None))
    if x.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {x.ndim}: group_norm takes (batch, channels, ...)"
        )
    if groups < 1 or x.shape[1] % groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(x.shape)} and num_groups={groups}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != (x.shape[1],):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                f"shape {list(value.shape)} and input of shape {list(x.shape)}"
            )
        if value is not None and value.dtype != x.dtype and not half_with_single(x, value):
            raise RuntimeError(
                f"group_norm: expected {name} to be of the dtype of the input, {x.dtype}, got {value.dtype}. Convert "
                "the input or the module with .to(dtype)"
            )
    need_floating("group_norm", x)


def _grouped(x: Any, groups: int) -> tuple[int, int, int]:
    """(samples, groups, elements of a group)"""
    return x.shape[0], groups, math.prod(x.shape[1:]) // groups


def _recorded(
    x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> tuple[Array, tuple[Array, Array]]:
    """The result, and mean and 1 / deviation of each group, (samples, groups)."""
    _check(x, weight, bias, groups)
    dtype = x.dtype
    x, weight, bias = wide(x, weight, bias)
    y, mean, rstd = kernels.group_norm(x, groups, weight, bias, eps)
    return y.astype(dtype, copy=False), (mean, rstd)


def _per_channel(values: Any, ndim: int) -> Any:
    return values.reshape(-1, *(1,) * (ndim - 2))


def _group_norm(*args: Any) -> Array:
    return _recorded(*args)[0]


def _group_norm_meta(
    x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> Spec:
    _check(x, weight, bias, groups)
    return x.shape, x.dtype


def _gradients(
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
            gx = through_normalized(gy.reshape(rows), y, rstd, (2,)).reshape(shape)
        if needs[1]:
            gw = np.sum(g * y.reshape(shape), axis=axes)
    if needs[2]:
        gb = np.sum(g, axis=axes)
    return gx, gw, gb


group_norm = define("group_norm", _group_norm, meta=_group_norm_meta, record=_recorded)
derive_jointly("group_norm", _gradients, twice=True)
