# SPDX-License-Identifier: BSD-3-Clause
"""as_strided, and views whose backward needs strides."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import owner_of, shown_view
from modtree.core.strides import reach, strided_view
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Sizes, Tensor


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def copy_with_memory(array: np.ndarray, memo: dict[int, Any]) -> np.ndarray:
    """A copy of the array; arrays over one memory that are copied with one memo share the copy's
    memory.
    """
    owner = owner_of(array)
    if owner is not array and not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        return array.copy()
    done = memo.get(id(owner))
    if done is None:
        done = memo[id(owner)] = shown_view(owner.copy(order="K"))
        # The id stays taken while the memo lives.
        memo.setdefault(id(memo), []).append(shown_view(owner))
    if owner is array:
        return done
    flat = done.reshape(-1, order="A").view(np.uint8)
    offset = _address(array) - _address(owner)
    return np.ndarray(array.shape, array.dtype, flat, offset, array.strides)


def _flat_memory(x: np.ndarray) -> tuple[np.ndarray, int]:
    """All elements of the memory that x views, and where x starts in it."""
    owner = owner_of(x)
    offset = (_address(x) - _address(owner)) // x.itemsize
    dense = owner.flags.c_contiguous or owner.flags.f_contiguous
    if dense and owner.dtype == x.dtype:
        return owner.reshape(-1, order="A"), offset
    strides = [s // x.itemsize for s in x.strides]
    return np.ndarray((reach(x.shape, strides),), x.dtype, x, 0, (x.itemsize,)), 0


def _as_strided(x: Any, shape: Any, strides: Any, offset: Any, _layout: Any) -> Any:
    flat, _ = _flat_memory(x)
    if offset < 0 or offset + reach(shape, strides) > flat.size:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset} "
            f"need elements that are out of bounds for storage of size {flat.size}"
        )
    steps = [s * x.itemsize for s in strides]
    return strided_view(flat[offset:], shape, steps)


def strided_indices(shape: Any, strides: Any, offset: int) -> np.ndarray:
    """Where each element of such a view is in the memory."""
    indices = np.full((), offset, np.int64)
    for n, s in zip(shape, strides, strict=True):
        indices = indices[..., None] + np.arange(n) * s
    return indices


define(
    "as_strided",
    _as_strided,
    view=True,
    meta=lambda x, shape, *_: (shape, x.dtype),
)


def as_strided(
    input: Tensor, size: Sizes, stride: Sizes, storage_offset: int | None = None
) -> Tensor:
    """A view of the memory behind a tensor with any sizes and strides (in elements), from any
    element on.

    The memory is that of the array which owns it. Its gradient has no gradient.

    Args:
        size: The shape.
        stride: Elements from one index to the next, for each dimension.
        storage_offset: Index in memory of the first element; that of ``input`` without.

    Raises:
        RuntimeError: The view would reach beyond the memory, or a stride is negative.
    """
    size, stride = (tuple(operator.index(n) for n in values) for values in (size, stride))
    if len(size) != len(stride):
        raise RuntimeError(
            f"mismatch in length of strides and shape: {len(stride)} and {len(size)}"
        )
    if min(stride, default=0) < 0:
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(stride)}"
        )
    if input.is_meta:
        own, start = input.stride(), 0
    else:
        array = input._array
        own = tuple(s // array.itemsize for s in array.strides)
        start = _flat_memory(array)[1]
    offset = start if storage_offset is None else storage_offset
    return ops["as_strided"](input, size, stride, offset, (own, start))


export("as_strided", as_strided)


# -- derivatives -----------------------------------------------------------------------------------


def _as_strided_back(
    g: Any, _out: Any, x_like: Any, shape: Any, strides: Any, offset: int, layout: Any
) -> Any:
    own_strides, start = layout
    own = strided_indices(x_like.shape, own_strides, start)
    seen = strided_indices(shape, strides, offset)
    size = int(max(own.max(initial=-1), seen.max(initial=-1))) + 1
    memory = np.zeros(size, g.dtype)
    np.add.at(memory, seen, g)
    if 0 in own_strides:  # elements that are one in memory share its gradient
        count = np.zeros(size, g.dtype)
        np.add.at(count, own, 1)
        memory = memory / np.maximum(count, 1)
    return memory[own]


derive("as_strided", _as_strided_back, double_backward=False)
