# SPDX-License-Identifier: BSD-3-Clause
"""max_unpool: values put back where pooling found them."""

from __future__ import annotations

import math

import numpy as np

from modtree._C import own_index
from modtree._ops.generic import Array, Spec, need_arrays, need_floating, operation
from modtree._ops.registry import define, derive
from modtree._ops.windows import Sizes

_take = operation("take_planes")


def _max_unpool(values: Array, indices: Array, sizes: Sizes) -> Array:
    """Planes of ``sizes`` with each value where its index says, zero elsewhere; the last of several
    at one place.
    """
    need_arrays("max_unpool", values, indices)
    need_floating("max_unpool", values)
    plane, indices = math.prod(sizes), own_index(indices)
    if not plane:
        return np.zeros((*values.shape[: values.ndim - len(sizes)], *sizes), values.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= plane):
        wrong = int(indices.max() if indices.max() >= plane else indices.min())
        found = "x".join(map(str, sizes))
        raise RuntimeError(
            f"Found an invalid max index: {wrong} (output volumes are of size {found})"
        )
    lead = values.shape[: values.ndim - len(sizes)]
    planes = math.prod(lead)
    count = math.prod(values.shape[values.ndim - len(sizes) :])
    result = np.zeros((planes, plane), values.dtype)
    result[np.arange(planes)[:, None], indices.reshape(planes, count)] = values.reshape(
        planes, count
    )
    return result.reshape(*lead, *sizes)


def _max_unpool_meta(values: Array, indices: Array, sizes: Sizes) -> Spec:
    return (*values.shape[: values.ndim - len(sizes)], *sizes), values.dtype


max_unpool = define("max_unpool", _max_unpool, meta=_max_unpool_meta)
derive("max_unpool", lambda g, _out, _values, indices, sizes: _take(g, indices, sizes))
