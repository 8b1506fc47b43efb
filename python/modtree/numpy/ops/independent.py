# SPDX-License-Identifier: BSD-3-Clause
"""Values that were made with tensors but do not change with them: their gradient is zero, which is
not the same as none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import TensorBase
from modtree.numpy.ops.generic import zeros_of
from modtree.numpy.ops.registry import define, derive, ops, unchanged

define(
    "independent",
    lambda values, *_of: np.copy(values),
    meta=lambda values, *_of: (values.shape, values.dtype),
)


def independent(values: Any, *of: Any) -> Any:
    """The values, with gradients of zero for those tensors of `of` (at most two) that need one."""
    needing = [t for t in of if isinstance(t, TensorBase) and t.requires_grad]
    return ops["independent"](values, *needing) if needing else values


# -- derivatives -----------------------------------------------------------------------------------


def _nothing(g: Any, _out: Any, _values: Any, x_like: Any, *_rest: Any) -> Any:
    return zeros_of(x_like.shape, g)


def _nothing_either(g: Any, _out: Any, _values: Any, _x: Any, y_like: Any) -> Any:
    return zeros_of(y_like.shape, g)


derive("independent", unchanged, _nothing, _nothing_either)
