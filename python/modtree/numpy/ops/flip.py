# SPDX-License-Identifier: BSD-3-Clause
"""flip, roll."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.generic import as_ints, like_first, of_sequence, operation, wrap_dim
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Ints, Sizes, Tensor


def _roll(x: Any, shifts: Any, axis: Any) -> Any:
    return np.roll(x, shifts, axis).astype(x.dtype, copy=False)


def _flip(x: Any, axis: Any) -> Any:
    if len({wrap_dim(a, x.ndim) for a in axis}) < len(axis):
        raise RuntimeError(f"a dim appears multiple times in the list of dims {list(axis)}")
    return np.flip(x, axis).copy() if x.ndim else x.copy()


define("roll", _roll, meta=like_first)
define("flip", _flip, meta=like_first)


def flip(input: Tensor, *sizes: int | Sizes, dims: Ints | None = None) -> Tensor:
    """A copy with dimensions reversed; they are given one by one, as a sequence, or as
    ``dims=``.

    Args:
        sizes: The dimensions.
        dims: The dimensions, as a sequence.
    """
    return ops["flip"](input, as_ints(sizes if dims is None else (dims,)))


def roll(input: Tensor, shifts: Ints, dims: Ints | None = None) -> Tensor:
    """Elements moved along dimensions, those beyond the end coming in at the start.

    Args:
        shifts: How far, for each dimension.
        dims: The dimensions; the flattened input without.
    """
    moves = as_ints((shifts,))
    axes = () if dims is None else as_ints((dims,))
    if not moves:
        raise RuntimeError("`shifts` required")
    if not axes and len(moves) == 1:
        return ops["roll"](input, moves[0], None)
    if len(moves) != len(axes):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}"
        )
    return ops["roll"](input, moves, tuple(wrap_dim(axis, input.ndim) for axis in axes))


export("flip", flip, function=False)
export("flip", of_sequence("flip", flip), method=False)
export("roll", roll)


# -- derivatives -----------------------------------------------------------------------------------

_flip_op = operation("flip")
_roll_op = operation("roll")


def _negated(shifts: Any) -> Any:
    return tuple(-s for s in shifts) if isinstance(shifts, (tuple, list)) else -shifts


derive("roll", lambda g, _out, _x, shifts, axis: _roll_op(g, _negated(shifts), axis))
derive("flip", lambda g, _out, _x, axis: _flip_op(g, axis))
