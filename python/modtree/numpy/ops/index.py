# SPDX-License-Identifier: BSD-3-Clause
"""index_put, and the derivative of indexing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_tuple, fitted_number, own_index
from modtree.numpy.ops.generic import broadcasts_to, like_first, operation
from modtree.numpy.ops.indices import (
    flat_indices,
    positions,
    shape_given,
    sum_at,
    sum_rows,
    sum_slices,
)
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor


def _is_index_array(part: Any) -> bool:
    return isinstance(part, (np.ndarray, list)) and np.asarray(part).dtype.kind != "b"


def _is_whole(part: Any) -> bool:
    return part is Ellipsis or (isinstance(part, slice) and part == slice(None))


def _getitem_backward(g: Any, shape: tuple[int, ...], index: Any) -> Any:
    """Zeros of a shape with each g added where ``x[index]`` picked it."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [np.asarray(part) for part in parts if _is_index_array(part)]
    if not any(a.size > 1 for a in arrays):  # no element is named twice
        result = np.zeros(shape, g.dtype)
        result[index] = g
        return result
    count = len(arrays)
    if all(_is_index_array(p) for p in parts[:count]) and all(map(_is_whole, parts[count:])):
        indices = flat_indices(shape[:count], arrays)
        if count == len(shape):
            return sum_at(math.prod(shape), indices, g).reshape(shape)
        rows = g.reshape(indices.size, *shape[count:])
        return sum_rows(indices.reshape(-1), rows, math.prod(shape[:count])).reshape(shape)
    if (
        count == 1
        and arrays[0].ndim == 1
        and all(_is_whole(p) or _is_index_array(p) for p in parts)
    ):
        at = next(i for i, part in enumerate(parts) if _is_index_array(part))
        axis = at if Ellipsis not in parts[:at] else len(shape) - (len(parts) - at)
        return sum_slices(g, shape[axis], axis, arrays[0])
    return sum_at(math.prod(shape), positions(tuple(shape), index), g).reshape(shape)


def _as_picked(shape: tuple[int, ...], index: Any, values: Any, accumulate: bool) -> Any:
    """The values, where NumPy takes them otherwise than by broadcasting: those for a mask are a
    vector, and leading dimensions of size 1 are more than there are places for.
    """
    parts = index if isinstance(index, tuple) else (index,)
    masks = [isinstance(part, np.ndarray) and part.dtype.kind == "b" for part in parts]
    if values.size == 1 and masks == [True] and not accumulate:
        return values.reshape(())
    # NumPy compares shapes before it looks at indices, and not at all where nothing is chosen.
    nothing = 0 in shape or not values.size
    if not any(masks) and values.shape[0] != 1 and not nothing:
        return values
    wanted = np.broadcast_to(np.empty((), bool), shape)[index].shape
    if not broadcasts_to(values.shape, wanted):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(wanted)}"
        )
    return np.broadcast_to(values, wanted)


def _check_masks_of_nothing(shape: tuple[int, ...], index: Any) -> None:
    """NumPy takes a mask without elements whatever the shape."""
    first = 0
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, np.ndarray) and part.dtype.kind == "b":
            end = first + part.ndim
            if not part.size and part.shape != shape[first:end]:
                raise IndexError(
                    f"The shape of the mask {list(part.shape)} at index {first} does not match "
                    f"the shape of the indexed tensor {list(shape)}"
                )
            first = end
        else:
            first += part is not None


def _index_put(x: Any, index: Any, values: Any, accumulate: bool = False) -> Any:
    result, index = x.copy(), own_index(index)
    _check_masks_of_nothing(x.shape, index)
    if isinstance(values, np.ndarray) and values.ndim:
        values = _as_picked(x.shape, index, values, accumulate)
    if not accumulate:
        try:
            result[index] = values
        except TypeError as error:  # of one element, which NumPy takes as a number
            raise RuntimeError(f"shape mismatch: {error}") from None
    elif x.dtype.kind in "fc":
        picked = positions(x.shape, index)
        values = np.broadcast_to(np.asarray(values, x.dtype), picked.shape)
        result += sum_at(x.size, picked, values).reshape(x.shape)
    else:
        np.add.at(result, index, values)
    return result


define("getitem_backward", _getitem_backward, meta=shape_given)
define("index_put", _index_put, meta=like_first)


def index_put(
    input: Tensor,
    indices: tuple[Tensor | None, ...] | list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """A copy with values put (or added) at the elements that the index tensors name.

    Args:
        indices: A tuple of tensors, one for each dimension from the first on.
        values: A tensor that broadcasts to what they name.
        accumulate: Add instead of replacing.
    """
    _check_values("index_put", input, values, indices, accumulate)
    return ops["index_put"](input, _masked(indices), values, accumulate)


def index_put_(
    self: Tensor,
    indices: tuple[Tensor | None, ...] | list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """Puts (or adds) values at the elements that the index tensors name.

    Args:
        indices: A tuple of tensors, one for each dimension from the first on.
        values: A tensor that broadcasts to what they name.
        accumulate: Add instead of replacing.
    """
    _check_values("index_put_", self, values, indices, accumulate)
    return ops["index_put"].inplace(self, _masked(indices), values, accumulate)


def _masked(indices: Any) -> Any:
    """The indices with masks of bools in place of those of uint8."""
    return tuple(
        i.bool() if isinstance(i, TensorBase) and i.dtype.dtype.name == "uint8" else i
        for i in as_tuple(indices)
    )


_INDEX_KINDS = ("int64", "int32", "uint8", "bool")


def _check_values(
    name: str, input: Any, values: Any, indices: Any = (), accumulate: bool = False
) -> None:
    """One value for all elements of a mask is converted; others have the dtype of the input."""
    kinds = [i.dtype.dtype for i in indices if isinstance(i, TensorBase)]
    if any(kind.name not in _INDEX_KINDS for kind in kinds):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    places = [
        i.ndim if k.name in ("bool", "uint8") else 1 for i, k in zip(indices, kinds, strict=False)
    ]
    if sum(places) > input.ndim:
        raise IndexError(f"too many indices for tensor of dimension {input.ndim}")
    masked = len(kinds) == 1 and kinds[0].name == "bool" and not accumulate
    if values.dtype != input.dtype and masked and values.numel() == 1:
        fitted_number(values.item(), input.dtype)  # as masked_fill() does
    elif values.dtype != input.dtype:
        raise RuntimeError(
            f"{name}(): source and destination must have the same dtype, got {values.dtype} for "
            f"the source and {input.dtype} for the destination: convert the source with .to(dtype)"
        )


export("index_put", index_put)
export("index_put_", index_put_, function=False)


# -- derivatives -----------------------------------------------------------------------------------

_getitem, _getitem_backward_op = operation("getitem"), operation("getitem_backward")
_index_put_op = operation("index_put")

derive("getitem_backward", lambda g, _out, _x, shape, index: _getitem(g, index))
derive(
    "index_put",
    lambda g, _out, _x, index, _values, accumulate=False: (
        g if accumulate else _index_put_op(g, index, 0)
    ),
    None,
    lambda g, _out, _x, index, _values, accumulate=False: _getitem(g, index),
)
