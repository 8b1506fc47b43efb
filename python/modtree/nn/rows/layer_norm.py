# SPDX-License-Identifier: BSD-3-Clause
"""Layer normalization."""

from __future__ import annotations

from ..._C import kernels
from ...ops.table import define
from ._common import Array, Spec, in_kernel_dtype, need_arrays, need_floating


def _check_layer_norm(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...]
) -> None:
    need_arrays("layer_norm", x, *(v for v in (weight, bias) if v is not None))
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
        if value is not None and value.dtype != x.dtype:
            raise RuntimeError(
                f"layer_norm: all inputs must share same datatype, got {x.dtype} and a {name} of {value.dtype}"
            )
    if x.shape[max(x.ndim - len(shape), 0) :] != shape:
        expected = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{expected}], "
            f"but got input of size{list(x.shape)}"
        )
    need_floating("layer_norm", x)


def _layer_norm(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Array:
    _check_layer_norm(x, weight, bias, shape)
    axes = len(shape)
    return in_kernel_dtype(lambda v: kernels.layer_norm(v, axes, weight, bias, eps), x)


def _layer_norm_meta(
    x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...], eps: float
) -> Spec:
    _check_layer_norm(x, weight, bias, shape)
    return x.shape, x.dtype


layer_norm = define("layer_norm", _layer_norm, meta=_layer_norm_meta)
