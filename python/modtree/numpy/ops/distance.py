# SPDX-License-Identifier: BSD-3-Clause
"""cdist: the distances of all pairs of two sets of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.composed import gradients_of
from modtree.numpy.ops.generic import Spec, is_array, rows_of
from modtree.numpy.ops.independent import independent
from modtree.numpy.ops.reduce import norm
from modtree.numpy.ops.registry import define, derive_jointly, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


def _batches(x: Any, y: Any) -> tuple[tuple[int, ...], Any, Any]:
    """The batch dimensions, and the points as three dimensions: (batch, P, M) and (batch, M, R)."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    y = y.swapaxes(-1, -2)
    x, y = (
        rows_of(np.broadcast_to(a, batch + a.shape[-2:]) if batch != a.shape[:-2] else a, 2)
        for a in (x, y)
    )
    return batch, x, y


def _cdist(x: Any, y: Any, p: float) -> Any:
    if x.dtype == np.float16:
        return _cdist(x.astype(np.float32), y.astype(np.float32), p).astype(np.float16)
    batch, points, others = _batches(x, y)
    return kernels.distance(points, others, p).reshape(*batch, x.shape[-2], y.shape[-2])


def _cdist_meta(x: Any, y: Any, p: float) -> Spec:
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return (*batch, x.shape[-2], y.shape[-2]), x.dtype


def _composed(x: Any, y: Any, p: float) -> Any:
    return norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _cdist_gradients(needs: Any, g: Any, out: Any, x: Any, y: Any, p: float) -> Any:
    if not is_array(g):
        return (*gradients_of(lambda x, y: _composed(x, y, p), (x, y), needs, g), None)
    if x.dtype == np.float16:
        g, out, x, y = (a.astype(np.float32) for a in (g, out, x, y))
    batch, points, others = _batches(x, y)
    g, out = (rows_of(a, 2) for a in (g, out))
    dx, dy = kernels.distance_backward(g, out, points, others, p)
    dy = dy.swapaxes(-1, -2)
    return dx.reshape(batch + x.shape[-2:]), dy.reshape(batch + y.shape[-2:]), None


define("cdist", _cdist, promote="floating", operands=2, meta=_cdist_meta)
derive_jointly("cdist", _cdist_gradients, double_backward=True)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norm distance of every row of x1 to every row of x2, over leading batch dimensions.

    Args:
        x1: (..., P, M).
        x2: (..., R, M).
        p: The order of the norm.
        compute_mode: Accepted: distances are always sums of powers of differences, so that they
            are exact for points that lie close together.

    Shape:
        - output: (..., P, R), with the batch of both.
    """
    if compute_mode is not None and compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    if x1.ndim < 2 or x2.ndim < 2 or x1.size(-1) != x2.size(-1):
        raise RuntimeError(
            "cdist: X1 and X2 must have at least two dimensions and the same number of columns. "
            f"Got shapes {list(x1.shape)} and {list(x2.shape)}"
        )
    if not x1.dtype.is_floating_point or x1.dtype is not x2.dtype:
        raise RuntimeError(
            f"cdist only supports floating-point dtypes, and both of one dtype, but got {x1.dtype} "
            f"and {x2.dtype}"
        )
    if not p >= 0:
        raise RuntimeError(f"cdist only supports non-negative p values, got {p}")
    if p == 0:
        return independent(ops["cdist"](x1.detach(), x2.detach(), 0.0), x1, x2)
    return ops["cdist"](x1, x2, float(p))


export("cdist", cdist, method=False)
