# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of what C++ records itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.derivatives.both import zeros_of
from modtree.ops.table import derive, ops, unchanged


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
    result[index] = 0
    return result


derive("setitem", _setitem_kept, None, lambda g, _out, _x, index, _value: g[index])


def _nothing(g: Any, _out: Any, _values: Any, x_like: Any, *_rest: Any) -> Any:
    return zeros_of(x_like.shape, g)


def _nothing_either(g: Any, _out: Any, _values: Any, _x: Any, y_like: Any) -> Any:
    return zeros_of(y_like.shape, g)


derive("independent", unchanged, _nothing, _nothing_either)
derive("clone", unchanged)
derive("convert", unchanged)
derive("copy", _lost, unchanged)
derive("fill", _lost, lambda g, _out, _x, _value: np.sum(g))
