# SPDX-License-Identifier: BSD-3-Clause
"""Group normalization: mean and variance of each sample's groups of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._C import TensorBase, kernels
from ...ops.table import define, derive_jointly
from ._common import Array, Spec, in_kernel_dtype, need_arrays, need_floating
from ._moments import normalized, through_normalized
from ._windows import wide


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
        if value is not None and value.dtype != x.dtype:
            raise RuntimeError(
                f"group_norm: expected {name} to be of the dtype of the input, {x.dtype}, got {value.dtype}. Convert "
                "the input or the module with .to(dtype)"
            )
    need_floating("group_norm", x)


def _grouped(x: Any, groups: int) -> tuple[int, int, int]:
    """(samples, groups, elements of a group)"""
    return x.shape[0], groups, math.prod(x.shape[1:]) // groups


def _group_norm(
    x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> Array:
    _check(x, weight, bias, groups)
    rows = np.ascontiguousarray(x).reshape(_grouped(x, groups))
    y = in_kernel_dtype(lambda v: kernels.layer_norm(v, 1, None, None, eps), rows).reshape(x.shape)
    shape = (-1, *(1,) * (x.ndim - 2))
    if weight is not None:
        y *= weight.reshape(shape)
    if bias is not None:
        y += bias.reshape(shape)
    return y


def _group_norm_meta(
    x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> Spec:
    _check(x, weight, bias, groups)
    return x.shape, x.dtype


def _gradients(
    needs: Any, g: Any, _out: Any, x: Any, weight: Any, _bias: Any, groups: int, eps: float
) -> tuple[Any, ...]:
    if not isinstance(g, TensorBase):
        g, x, weight = wide(g, x, weight)
    shape, rows = tuple(x.shape), _grouped(x, groups)
    axes = (0, *range(2, len(shape)))
    gx = gw = gb = None
    if needs[0] or needs[1]:
        y, rstd = normalized(x.reshape(rows), (2,), eps)
        if needs[0]:
            gy = g if weight is None else g * weight.reshape(-1, *(1,) * (len(shape) - 2))
            gx = through_normalized(gy.reshape(rows), y, rstd, (2,)).reshape(shape)
        if needs[1]:
            gw = np.sum(g * y.reshape(shape), axis=axes)
    if needs[2]:
        gb = np.sum(g, axis=axes)
    return gx, gw, gb


group_norm = define("group_norm", _group_norm, meta=_group_norm_meta)
derive_jointly("group_norm", _gradients, twice=True)
