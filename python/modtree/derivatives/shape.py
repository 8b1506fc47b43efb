# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of views, joins and copies of parts: each sends the gradient back to where the elements came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.derivatives.both import row, row_of_many, zeros_of
from modtree.ops.joining import inner, padded_index
from modtree.ops.table import derive, not_differentiable, unchanged

_cat, _stack = row_of_many("cat"), row_of_many("stack")
_split, _unbind, _sum = row("split"), row("unbind"), row("sum")
_permute, _movedim, _unfold = row("permute"), row("movedim"), row("unfold")
_getitem, _diagonal = row("getitem"), row("diagonal")
_getitem_backward, _diagonal_backward = row("getitem_backward"), row("diagonal_backward")
_unfold_backward, _pick_backward = row("unfold_backward"), row("index_select_backward")
_pick, _roll, _flip, _pad = (row(n) for n in ("index_select", "roll", "flip", "pad"))
_tril, _triu = row("tril"), row("triu")

_contiguous = row("contiguous")
_as_complex, _as_real = row("view_as_complex"), row("view_as_real")

# -- views -------------------------------------------------------------------------------------------------------------


def _reshape_back(g: Any, _out: Any, x_like: Any, *_: Any) -> Any:
    return g.reshape(tuple(x_like.shape))


def _permute_back(g: Any, _out: Any, x_like: Any, order: Any = None) -> Any:
    if order is None:
        return _permute(g)
    ndim = len(x_like.shape)
    inverse = [0] * ndim
    for place, axis in enumerate(order):
        inverse[axis % ndim] = place
    return _permute(g, tuple(inverse))


derive("view", _reshape_back)
derive("reshape", _reshape_back)
derive("squeeze", _reshape_back)
derive("unsqueeze", _reshape_back)
derive("permute", _permute_back)
derive("swapaxes", lambda g, _out, _x, a, b: g.swapaxes(a, b))
derive("movedim", lambda g, _out, _x, source, target: _movedim(g, target, source))
derive("expand", unchanged)
derive("contiguous", unchanged)
derive("real", unchanged)
# Of a complex number two real ones are as much as one complex one: the gradient is the pair.
derive("view_as_real", lambda g, _out, _x: _as_complex(_contiguous(g)))
derive("view_as_complex", lambda g, _out, _x: _as_real(g))
derive("imag", lambda g, _out, _x: g * 1j)
derive(
    "getitem",
    lambda g, _out, x_like, index: _getitem_backward(g, tuple(x_like.shape), index),
)
derive("getitem_backward", lambda g, _out, _x, shape, index: _getitem(g, index))
derive(
    "diagonal",
    lambda g, _out, x_like, offset=0, a=0, b=1: _diagonal_backward(
        g, tuple(x_like.shape), offset, a, b
    ),
)
derive("diagonal_backward", lambda g, _out, _x, shape, offset, a, b: _diagonal(g, offset, a, b))
derive(
    "unfold",
    lambda g, _out, x_like, axis, size, step: _unfold_backward(
        g, tuple(x_like.shape), axis, size, step
    ),
)
derive(
    "unfold_backward",
    lambda g, _out, _x, shape, axis, size, step: _unfold(g, axis, size, step),
)
# The bits of a number say nothing of its neighbours.
not_differentiable("view_dtype")


def _pieces(g: Any) -> Any:
    """The gradients of the pieces; that of a single piece comes without a tuple."""
    return g if isinstance(g, tuple) else (g,)


def _split_back(g: Any, _out: Any, x_like: Any, sizes: Any, axis: int) -> Any:
    g = _pieces(g)
    one = next(piece for piece in g if piece is not None)
    shape = list(x_like.shape)
    pieces = []
    for piece, size in zip(g, sizes, strict=True):
        shape[axis] = size
        pieces.append(zeros_of(shape, one) if piece is None else piece)
    return _cat(pieces, axis)


def _unbind_back(g: Any, _out: Any, _x: Any, axis: int) -> Any:
    g = _pieces(g)
    one = next(piece for piece in g if piece is not None)
    return _stack([zeros_of(one.shape, one) if piece is None else piece for piece in g], axis)


derive("split", _split_back)
derive("unbind", _unbind_back)

# -- joins -------------------------------------------------------------------------------------------------------------


def _cat_back(g: Any, _out: Any, items_like: Any, axis: int) -> Any:
    # Those that cat() skips are empty, and so are their gradients.
    skipped = [tuple(x.shape) == (0,) and len(g.shape) > 1 for x in items_like]
    sizes = [0 if skip else x.shape[axis] for x, skip in zip(items_like, skipped, strict=True)]
    pieces = _split(g, sizes, axis)
    return [
        zeros_of((0,), g) if skip else piece for piece, skip in zip(pieces, skipped, strict=True)
    ]


derive("cat", _cat_back)
derive("stack", lambda g, _out, _items, axis: list(_unbind(g, axis)))

# -- copies ------------------------------------------------------------------------------------------------------------


def _repeat_back(g: Any, _out: Any, x_like: Any, counts: Any) -> Any:
    shape = (1,) * (len(counts) - len(x_like.shape)) + tuple(x_like.shape)
    apart = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    summed = _sum(g.reshape(apart), axis=tuple(range(0, len(apart), 2))) if apart else g
    return summed.reshape(tuple(x_like.shape))


def _repeat_interleave_back(g: Any, _out: Any, x_like: Any, repeats: Any, axis: Any) -> Any:
    shape = tuple(x_like.shape)
    along = (int(np.prod(shape)),) if axis is None else shape
    size = along[axis or 0] if along else 1
    counts = getattr(repeats, "_array", repeats)
    index = np.repeat(np.arange(size), counts)
    return _pick_backward(g, along, axis or 0, index).reshape(shape)


def _negated(shifts: Any) -> Any:
    return tuple(-s for s in shifts) if isinstance(shifts, (tuple, list)) else -shifts


def _pad_back(
    g: Any, _out: Any, x_like: Any, widths: Any, mode: str = "constant", value: Any = 0
) -> Any:
    shape = tuple(x_like.shape)
    if mode == "constant":
        return _getitem(g, inner(shape, widths))
    for axis, (size, (before, after)) in enumerate(zip(shape, widths, strict=True)):
        if before or after:
            target = (*g.shape[:axis], size, *g.shape[axis + 1 :])
            g = _pick_backward(g, target, axis, padded_index(size, (before, after), mode))
    return g


def _diag_back(g: Any, _out: Any, x_like: Any, k: int) -> Any:
    if len(x_like.shape) == 1:
        return _diagonal(g, k, 0, 1)
    return _diagonal_backward(g, tuple(x_like.shape), k, 0, 1)


derive("repeat", _repeat_back)
derive("repeat_interleave", _repeat_interleave_back)
derive("roll", lambda g, _out, _x, shifts, axis: _roll(g, _negated(shifts), axis))
derive("flip", lambda g, _out, _x, axis: _flip(g, axis))
derive("tril", lambda g, _out, _x, k: _tril(g, k))
derive("triu", lambda g, _out, _x, k: _triu(g, k))
derive("diag", _diag_back)
derive("pad", _pad_back)
