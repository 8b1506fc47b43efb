# SPDX-License-Identifier: BSD-3-Clause
"""Rows that C++ records itself: what methods of the native tensor do, and assignment to elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.ops.table import define


def _setitem(x: Any, index: Any, value: Any) -> Any:
    result = x.copy()
    result[index] = value
    return result


def _shape_of_first(x: Any, *_: Any) -> Any:
    return x.shape, x.dtype


define("setitem", _setitem, meta=_shape_of_first)
define("clone", np.copy, meta=_shape_of_first)
define("convert", lambda x, dtype: x.astype(dtype), meta=lambda x, dtype: (x.shape, dtype))
define(
    "copy",
    lambda x, source: np.broadcast_to(source, x.shape).astype(x.dtype),
    meta=_shape_of_first,
)
define("fill", lambda x, value: np.full_like(x, value), meta=_shape_of_first)
