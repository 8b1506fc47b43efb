# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of scatter_reduce(): each value gets its element's gradient times its share of the element."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import TensorBase, from_array
from modtree.derivatives.both import row
from modtree.ops.scattering import corner, counts, places_of
from modtree.ops.table import derive

_gather, _getitem, _pad = row("gather"), row("getitem"), row("pad")


def _array(x: Any) -> Any:
    return x._array if isinstance(x, TensorBase) else x


def _check_factors(*factors: Any) -> None:
    if any((_array(f) == 0).any() for f in factors):
        raise RuntimeError(
            "scatter_reduce(reduce='prod') has no second derivative where a factor is zero: gather the factors and use "
            "prod()"
        )


def _shares(
    out: Any, x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> tuple[Any, Any]:
    """d result / d x, in the shape of x, and d result / d value, in the shape of index."""
    out, x, index, source = (_array(v) for v in (out, x, index, source))
    shape, size = x.shape, x.size
    places = places_of(shape, axis, index)
    touched = counts(size, places) > 0
    # Where x does not count, it still is the result of elements that nothing comes to.
    counted = np.ones(size, bool) if include_self else ~touched
    own, values, result = x.reshape(-1), corner(source, index), out.reshape(-1)
    if mode == "sum":
        of_x, of_values = counted, np.ones(values.size)
    elif mode == "mean":
        share = 1 / np.maximum(counts(size, places) + counted, 1)
        of_x, of_values = counted * share, share[places]
    elif mode == "prod":
        of_x, of_values = _of_factors(own, values, places, counted)
    else:
        hit_x, hit = (own == result) & counted, values == result[places]
        share = 1 / np.maximum(hit_x + np.bincount(places, hit, size), 1)
        of_x, of_values = hit_x * share, hit * share[places]
    return (
        of_x.astype(x.dtype, copy=False).reshape(shape),
        of_values.astype(x.dtype, copy=False).reshape(index.shape),
    )


def _of_factors(own: Any, values: Any, places: Any, counted: Any) -> tuple[Any, Any]:
    """For each factor the product of the others; zeros among them are counted, not divided by."""
    one = own.dtype.type(1)
    zeros = np.bincount(places, values == 0, own.size) + ((own == 0) & counted)
    product = np.where((own == 0) | ~counted, one, own)
    np.multiply.at(product, places, np.where(values == 0, one, values))

    def without(factor: Any, total: Any, others_zero: Any) -> Any:
        rest = total / np.where(factor == 0, one, factor)
        return np.where(others_zero == (factor == 0), rest, 0)

    of_x = np.where(counted, without(np.where(counted, own, one), product, zeros), 0)
    return of_x, without(values, product[places], zeros[places])


def _same_kind(g: Any, share: Any) -> Any:
    return from_array(share) if isinstance(g, TensorBase) else share


def _to_self(
    g: Any, out: Any, x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> Any:
    if mode == "prod" and include_self and isinstance(g, TensorBase):
        _check_factors(x)
        return g * out / x
    share, _ = _shares(out, x, axis, index, source, mode, include_self)
    return g * _same_kind(g, share)


def _to_source(
    g: Any, out: Any, x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> Any:
    if mode == "prod" and isinstance(g, TensorBase):
        _check_factors(source)
        used = tuple(slice(n) for n in index.shape)
        result = _gather(g * out, axis, index) / _getitem(source, used)
    else:
        _, share = _shares(out, x, axis, index, source, mode, include_self)
        result = _gather(g, axis, index) * _same_kind(g, share)
    if tuple(result.shape) == tuple(source.shape):
        return result
    widths = [(0, n - m) for n, m in zip(source.shape, result.shape, strict=True)]
    return _pad(result, widths, "constant", 0)


derive("scatter_reduce", _to_self, None, None, _to_source)
