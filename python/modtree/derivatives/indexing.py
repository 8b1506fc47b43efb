# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of lookups and replacements by index and mask."""

from __future__ import annotations

from typing import Any

from modtree.derivatives.both import row
from modtree.ops.table import derive, not_differentiable

_gather, _gather_backward = row("gather"), row("gather_backward")
_pick, _pick_backward = row("index_select"), row("index_select_backward")
_getitem, _getitem_backward = row("getitem"), row("getitem_backward")
_scatter, _index_copy, _index_put = (row(n) for n in ("scatter", "index_copy", "index_put"))
_masked_select, _masked_put = row("masked_select"), row("masked_put")
_masked_fill, _expand, _pad = (row(n) for n in ("masked_fill", "expand", "pad"))


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape)


derive(
    "gather",
    lambda g, _out, x_like, axis, index: _gather_backward(g, _shape(x_like), axis, index),
)
derive("gather_backward", lambda g, _out, _x, shape, axis, index: _gather(g, axis, index))
derive(
    "index_select",
    lambda g, _out, x_like, axis, index: _pick_backward(g, _shape(x_like), axis, index),
)
derive(
    "index_select_backward",
    lambda g, _out, x_like, shape, axis, index: _pick(g, axis, index).reshape(_shape(x_like)),
)
derive(
    "take",
    lambda g, _out, x_like, index: _getitem_backward(g, (_size(x_like),), (index,)).reshape(
        _shape(x_like)
    ),
)


def _size(x: Any) -> int:
    size = 1
    for n in x.shape:
        size *= n
    return size


# -- replacing along one dimension -------------------------------------------------------------------------------------


def _refuse_product(mode: Any) -> None:
    if mode == "multiply":
        raise RuntimeError(
            "scatter(reduce='multiply') has no derivative: gather the factors and multiply, or call it under no_grad()"
        )


def _scatter_self(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, _source: Any, mode: Any
) -> Any:
    _refuse_product(mode)
    return g if mode == "add" else _scatter(g, axis, index, 0, None)


def _scatter_source(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, source_like: Any, mode: Any
) -> Any:
    _refuse_product(mode)
    if not hasattr(source_like, "shape"):
        return None
    picked = _gather(g, axis, index)
    if _shape(picked) == _shape(source_like) or not len(source_like.shape):
        return picked
    # Only the corner of source that index covers was used.
    widths = [(0, n - m) for n, m in zip(source_like.shape, picked.shape, strict=True)]
    return _pad(picked, widths, "constant", 0)


def _like_source(g: Any, axis: int, index: Any, source_like: Any) -> Any:
    if not hasattr(source_like, "shape"):
        return None
    picked = _pick(g, axis, index)
    return picked.reshape(_shape(source_like)) if _size(picked) == _size(source_like) else picked


def _index_add_source(
    g: Any, _out: Any, _x: Any, axis: int, index: Any, source_like: Any, alpha: Any
) -> Any:
    picked = _like_source(g, axis, index, source_like)
    return picked if alpha == 1 else picked * alpha


derive("scatter", _scatter_self, None, None, _scatter_source)
derive(
    "index_add",
    lambda g, _out, _x, axis, index, _source, alpha: g,
    None,
    None,
    _index_add_source,
)
derive(
    "index_copy",
    lambda g, _out, _x, axis, index, _source: _index_copy(g, axis, index, 0),
    None,
    None,
    lambda g, _out, _x, axis, index, source_like: _like_source(g, axis, index, source_like),
)

# -- indices of every kind and masks -----------------------------------------------------------------------------------

derive(
    "index_put",
    lambda g, _out, _x, index, _values, accumulate=False: (
        g if accumulate else _index_put(g, index, 0)
    ),
    None,
    lambda g, _out, _x, index, _values, accumulate=False: _getitem(g, index),
)


def _both_shapes(x_like: Any, mask: Any) -> Any:
    """The mask as it was broadcast against x."""
    shape = _broadcast(_shape(x_like), _shape(mask))
    return mask if _shape(mask) == shape else _expand(mask, shape)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    a, b = (1,) * (len(b) - len(a)) + a, (1,) * (len(a) - len(b)) + b
    return tuple(m if n == 1 else n for n, m in zip(a, b, strict=True))


def _masked_scatter_source(g: Any, _out: Any, _x: Any, mask: Any, source_like: Any) -> Any:
    picked = _masked_select(g, mask)
    rest = _size(source_like) - _size(picked)
    if rest:
        picked = _pad(picked, [(0, rest)], "constant", 0)
    return picked.reshape(_shape(source_like))


derive("masked_select", lambda g, _out, x_like, mask: _masked_put(g, _both_shapes(x_like, mask)))
derive("masked_put", lambda g, _out, _x, mask: _masked_select(g, mask))
derive(
    "masked_scatter",
    lambda g, _out, _x, mask, _source: _masked_fill(g, mask, 0),
    None,
    _masked_scatter_source,
)
not_differentiable("nonzero", "nonzero_tuple")
