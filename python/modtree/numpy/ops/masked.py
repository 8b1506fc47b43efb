# SPDX-License-Identifier: BSD-3-Clause
"""masked_fill, masked_select, masked_scatter, nonzero."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from modtree._C import TensorBase, as_dtype, fitted_number, own_index
from modtree.numpy.ops import masks
from modtree.numpy.ops.generic import operation, select
from modtree.numpy.ops.registry import define, derive, export, not_differentiable, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Tensor

_BOOL = {np.dtype(bool), as_dtype(bool)}


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    if mask.dtype.kind != "b":
        raise RuntimeError(
            f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}"
        )
    if isinstance(value, np.ndarray):
        if value.ndim:
            raise RuntimeError(
                f"masked_fill only supports a 0-dimensional value tensor, but got one with "
                f"{value.ndim} dimension(s)"
            )
        if value.dtype.kind == "c" and x.dtype.kind not in "bc":
            raise RuntimeError(f"masked_fill: a complex value does not fit {x.dtype}")
        value = value.item()
    value = fitted_number(value, x.dtype)
    return masks.where(mask, np.asarray(value).astype(x.dtype), x)


def _check_mask(mask: Any, name: str) -> None:
    if mask.dtype.kind != "b":
        raise RuntimeError(f"{name}: expected BoolTensor for mask, got {mask.dtype}")


def _masked_select(x: Any, mask: Any) -> Any:
    _check_mask(mask, "masked_select")
    x, mask = np.broadcast_arrays(x, mask)
    mask = own_index(mask)
    return x[mask].reshape(-1)


def _masked_put(g: Any, mask: Any) -> Any:
    """Zeros of the mask's shape with the elements of g, in order, where the mask holds."""
    result, mask = np.zeros(mask.shape, g.dtype), own_index(mask)
    result[mask] = g.reshape(-1)[: np.count_nonzero(mask)]
    return result


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    _check_mask(mask, "masked_scatter")
    if source.dtype != x.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {x.dtype} and "
            f"{source.dtype}"
        )
    x, mask = np.broadcast_arrays(x, mask)
    mask = own_index(mask)
    wanted = np.count_nonzero(mask)
    if wanted > source.size:
        raise RuntimeError(
            f"masked_scatter: the mask holds for {wanted} elements, source has only {source.size}"
        )
    result = x.copy()
    result[mask] = source.reshape(-1)[:wanted]
    return result


define(
    "masked_fill",
    _masked_fill,
    meta=lambda x, m, v: (np.broadcast_shapes(x.shape, m.shape), x.dtype),
)
define("masked_select", _masked_select)
define("masked_put", _masked_put, meta=lambda g, mask: (mask.shape, g.dtype))
define(
    "masked_scatter",
    _masked_scatter,
    meta=lambda x, mask, source: (np.broadcast_shapes(x.shape, mask.shape), x.dtype),
)
define(
    "nonzero", lambda x: np.stack(np.nonzero(np.atleast_1d(x)), -1)[:, : x.ndim].astype(np.int64)
)
define("nonzero_tuple", lambda x: np.nonzero(np.atleast_1d(x)))


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """input with value where mask holds.

    Args:
        mask: A bool tensor that broadcasts with ``input``.
        value: A number, or a tensor without dimensions.
    """
    return ops["masked_fill"](input, mask, value)


def masked_fill_(self: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """Sets the elements where mask holds, in place.

    Args:
        mask: A bool tensor that broadcasts with this one.
        value: A number, or a tensor without dimensions.
    """
    is_mask = isinstance(mask, TensorBase) and mask.dtype in _BOOL
    if is_mask and 0 in self._array.strides and self._array.size and not self.is_meta:
        _fill_expanded(self, mask, value)
        return self
    return ops["masked_fill"].inplace(self, mask, value)


def _fill_expanded(tensor: Any, mask: Any, value: Any) -> None:
    """Writes each place in memory once; several elements of ``tensor`` may stand for it."""
    part, array = tensor, tensor._array
    mask = mask.expand(tensor.shape)
    for dim, (size, step) in enumerate(zip(array.shape, array.strides, strict=True)):
        if step == 0 and size > 1:
            part, mask = part.narrow(dim, 0, 1), mask.any(dim, keepdim=True)
    if part is not tensor:
        warnings.warn(
            "Use of masked_fill_ on expanded tensors is deprecated: fill a clone() of it",
            stacklevel=3,
        )
    ops["masked_fill"].inplace(part, mask, value)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements of source, in order, where mask holds.

    Args:
        mask: A bool tensor that broadcasts with ``input``.
        source: At least as many elements as are wanted.
    """
    return ops["masked_scatter"](input, mask, source)


def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Puts the elements of source, in order, where mask holds."""
    return ops["masked_scatter"].inplace(self, mask, source)


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not zero."""
    return ops["nonzero_tuple"](input) if as_tuple else ops["nonzero"](input)


export("masked_fill", masked_fill)
export("masked_fill_", masked_fill_, function=False)
export("masked_select", ops["masked_select"])
export("masked_scatter", masked_scatter)
export("masked_scatter_", masked_scatter_, function=False)
export("nonzero", nonzero)


# -- derivatives -----------------------------------------------------------------------------------

_masked_select_op, _masked_put_op = operation("masked_select"), operation("masked_put")
_masked_fill_op, _expand, _pad = (operation(n) for n in ("masked_fill", "expand", "pad"))

derive(
    "masked_fill",
    lambda g, _out, _x, mask, _value: select(~mask, g),
    None,
    lambda g, _out, _x, mask, _value: select(mask, g),
)


def _both_shapes(x_like: Any, mask: Any) -> Any:
    """The mask as it was broadcast against x."""
    shape = _broadcast(tuple(x_like.shape), tuple(mask.shape))
    return mask if tuple(mask.shape) == shape else _expand(mask, shape)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    a, b = (1,) * (len(b) - len(a)) + a, (1,) * (len(a) - len(b)) + b
    return tuple(m if n == 1 else n for n, m in zip(a, b, strict=True))


def _masked_scatter_source(g: Any, _out: Any, _x: Any, mask: Any, source_like: Any) -> Any:
    picked = _masked_select_op(g, mask)
    rest = math.prod(source_like.shape) - math.prod(picked.shape)
    if rest:
        picked = _pad(picked, [(0, rest)], "constant", 0)
    return picked.reshape(tuple(source_like.shape))


derive("masked_select", lambda g, _out, x_like, mask: _masked_put_op(g, _both_shapes(x_like, mask)))
derive("masked_put", lambda g, _out, _x, mask: _masked_select_op(g, mask))
derive(
    "masked_scatter",
    lambda g, _out, _x, mask, _source: _masked_fill_op(g, mask, 0),
    None,
    _masked_scatter_source,
)
not_differentiable("nonzero", "nonzero_tuple")
