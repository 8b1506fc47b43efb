# SPDX-License-Identifier: BSD-3-Clause
"""Elements added around a tensor, or taken away."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.table import define, derive
from ._common import Array, Spec, need_arrays
from ._windows import run

Pads = tuple[tuple[int, int], ...]


def _pad(x: Array, pads: Pads, value: Any = 0) -> Array:
    """``pads`` has for each axis how many elements of ``value`` come before and after; negative ones are taken away."""
    shape, dtype = _pad_meta(x, pads, value)
    result = np.zeros(shape, dtype) if value == 0 else np.full(shape, value, dtype)
    into = tuple(
        slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(shape, pads, strict=True)
    )
    out_of = tuple(
        slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pads, strict=True)
    )
    result[into] = x[out_of]
    return result


def _pad_meta(x: Array, pads: Pads, value: Any = 0) -> Spec:
    need_arrays("pad", x)
    shape = tuple(a + n + b for n, (a, b) in zip(x.shape, pads, strict=True))
    for axis, (size, (a, b)) in enumerate(zip(shape, pads, strict=True)):
        if size < 0:
            raise RuntimeError(
                f"pad: the input size {x.shape[axis]} plus the negative padding {a} and {b} resulted in a negative "
                f"output size, {size}, for dimension {axis}"
            )
    return shape, x.dtype


pad = define("pad", _pad, meta=_pad_meta)
derive("pad", lambda g, _out, _x, pads, value=0: run(pad, g, tuple((-a, -b) for a, b in pads)))
