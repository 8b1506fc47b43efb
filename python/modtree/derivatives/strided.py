# SPDX-License-Identifier: BSD-3-Clause
"""The derivative of as_strided(): gradients meet in the memory that the view and the tensor share."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.ops.strided import places_of
from modtree.ops.table import derive


def _as_strided_back(
    g: Any, _out: Any, x_like: Any, shape: Any, strides: Any, offset: int, layout: Any
) -> Any:
    own_strides, start = layout
    own = places_of(x_like.shape, own_strides, start)
    seen = places_of(shape, strides, offset)
    size = int(max(own.max(initial=-1), seen.max(initial=-1))) + 1
    memory = np.zeros(size, g.dtype)
    np.add.at(memory, seen, g)
    if 0 in own_strides:  # elements that are one in memory share its gradient
        count = np.zeros(size, g.dtype)
        np.add.at(count, own, 1)
        memory = memory / np.maximum(count, 1)
    return memory[own]


derive("as_strided", _as_strided_back, twice=False)
