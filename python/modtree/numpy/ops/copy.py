# SPDX-License-Identifier: BSD-3-Clause
"""Operations that C++ records itself: clone, copy_, fill_, conversion of dtypes, assignment to
elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import own_index
from modtree.numpy.ops.registry import define, derive, ops, unchanged


def _setitem(x: Any, index: Any, value: Any) -> Any:
    result = x.copy()
    result[own_index(index)] = value
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


# -- derivatives -----------------------------------------------------------------------------------


def _setitem_kept(g: Any, _out: Any, _x: Any, index: Any, _value: Any) -> Any:
    """The old values live on where nothing was assigned."""
    return ops["setitem"](g, index, 0) if not isinstance(g, np.ndarray) else _without(g, index)


def _lost(g: Any, _out: Any, _x: Any, _value: Any) -> Any:
    """Nothing of the old values is left: the gradient is zero, but there is one."""
    if isinstance(g, np.ndarray):
        return np.zeros(g.shape, g.dtype)
    return g.new_zeros(g.shape)


def _without(g: Any, index: Any) -> Any:
    result = g.copy()
    result[own_index(index)] = 0
    return result


derive("setitem", _setitem_kept, None, lambda g, _out, _x, index, _value: g[own_index(index)])


derive("clone", unchanged)
derive("convert", unchanged)
derive("copy", _lost, unchanged)
derive("fill", _lost, lambda g, _out, _x, _value: np.sum(g))
