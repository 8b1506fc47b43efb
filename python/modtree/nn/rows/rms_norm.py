# SPDX-License-Identifier: BSD-3-Clause
"""Normalization by the root of the mean square."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._C import TensorBase
from ...ops.table import define, derive_jointly
from ._common import Array, Spec
from ._moments import summed
from ._windows import wide
from .layer_norm import check_normalized


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


def _gradients(
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
derive_jointly("rms_norm", _gradients, twice=True)
