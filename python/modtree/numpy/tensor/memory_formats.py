# SPDX-License-Identifier: BSD-3-Clause
"""Orders of dimensions in memory: whether a tensor has one, and copies that do."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree import _C
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)

#: The dimensions from the outermost in memory to the innermost.
_ORDERS = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def check_format(name: str, format: Any, or_none: bool = False) -> None:
    """TypeError for what is no memory format."""
    if not (isinstance(format, memory_format) or (or_none and format is None)):
        raise TypeError(
            f"{name}(): argument 'memory_format' must be modtree.memory_format, not "
            f"{type(format).__name__}"
        )


def _order_of(format: Any, ndim: int) -> tuple[int, ...]:
    order = _ORDERS[format]
    if ndim != len(order):
        raise RuntimeError(f"required rank {len(order)} tensor to use {format._name} format")
    return order


def has_format(tensor: Any, format: Any) -> bool:
    """Do the strides have this order, without gaps? Those of dimensions of size 1 do not count."""
    order = _ORDERS.get(format)
    if order is None:
        return tensor.is_contiguous()
    if tensor.ndim != len(order):
        return False
    shape, strides, step = tensor.shape, tensor.stride(), 1
    for dim in reversed(order):
        if shape[dim] != 1 and strides[dim] != step:
            return False
        step *= shape[dim]
    return True


def in_format(tensor: Any, format: Any, copy: bool = False) -> Any:
    """The tensor when it has the format, else (or with copy) a recorded copy that has it. Meta
    tensors keep C order.
    """
    if format is None or format is preserve_format:
        return tensor.clone() if copy else tensor
    if format is contiguous_format:
        if tensor.is_contiguous():
            return tensor.clone() if copy else tensor
        return ops["contiguous"](tensor)
    order = _order_of(format, tensor.ndim)
    if tensor.is_meta or (has_format(tensor, format) and not copy):
        return tensor.clone() if copy else tensor
    turned = ops["permute"](tensor, order)
    turned = turned.clone() if turned.is_contiguous() else ops["contiguous"](turned)
    return ops["permute"](turned, tuple(int(n) for n in np.argsort(order)))


def _runs_in(tensor: Any, order: tuple[int, ...]) -> bool:
    """Do the strides grow in this order? Where a dimension of size 1 leaves it open, C order is
    meant.
    """
    shape, strides, least = tensor.shape, tensor.stride(), 0
    for dim in reversed(order):
        if shape[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(shape[dim], 1)
    return strides[1] != 0


def to_format(tensor: Any, format: Any, was: Any) -> Any:
    """What to() and its kind make of a converted tensor: a new one, unless it is what it `was`, and
    its strides suggest the format.
    """
    if format is None or format is preserve_format:
        return tensor
    if tensor is not was:
        return in_format(tensor, format)
    suggested = next(
        (
            f
            for f, order in _ORDERS.items()
            if len(order) == tensor.ndim and _runs_in(tensor, order)
        ),
        contiguous_format,
    )
    return tensor if suggested is format else in_format(tensor, format, copy=True)


def in_order_of(tensor: Any, values: Any, format: Any) -> Any:
    """New values, of the same shape, in the order of the tensor or in the format."""
    if format is not None and format is not preserve_format:
        return in_format(values, format)
    if tensor.is_meta or values.is_meta or tensor.is_contiguous():
        return values
    array = np.empty_like(tensor._array, dtype=values._array.dtype)
    array[...] = values._array
    return _C.own_array(array)


# -- methods that mostly have no arguments ---------------------------------------------------------


def _is_contiguous(self: Any, *, memory_format: Any = contiguous_format) -> bool:
    check_format("is_contiguous", memory_format)
    return has_format(self, memory_format)


def _clone(self: Any, *, memory_format: Any = None) -> Any:
    check_format("clone", memory_format, or_none=True)
    return in_format(self, memory_format, copy=True)


def _copy_(self: Any, other: Any, non_blocking: bool = False) -> Any:
    if not isinstance(non_blocking, bool):
        raise TypeError(
            f"copy_(): argument 'non_blocking' must be bool, not {type(non_blocking).__name__}"
        )
    return self.copy_(other)


def _cast(name: str) -> Any:
    def cast(self: Any, memory_format: Any = None) -> Any:
        check_format(name, memory_format, or_none=True)
        return to_format(getattr(self, name)(), memory_format, self)

    cast.__name__ = cast.__qualname__ = name
    return cast


_CASTS = "float double half long int short char byte bool cfloat cdouble".split()
_METHODS = {
    "is_contiguous": _is_contiguous,
    "clone": _clone,
    "copy_": _copy_,
    **{name: _cast(name) for name in _CASTS},
}


def with_arguments(name: str, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """What the native method of that name does when it is called with arguments besides self."""
    return _METHODS[name](tensor, *args, **kwargs)


_C._install(with_arguments=with_arguments)
