# SPDX-License-Identifier: BSD-3-Clause
"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from modtree._C import as_dtype, fitted_number
from modtree.nn.functional._common import need_tensor
from modtree.numpy.ops import resample as resample_ops
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["pad"]


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Adds elements around the last axes; negative numbers take elements away.

    Args:
        input: Any shape; for the modes other than ``"constant"`` one or two axes more than are
            padded.
        pad: Numbers before and after, beginning with the last axis: ``(left, right, top, bottom,
            ...)``.
        mode: ``"constant"``, ``"reflect"`` (mirrored, without the border), ``"replicate"`` (the
            border) or ``"circular"`` (from the other side).
        value: The constant; 0 when None.
    """
    need_tensor("pad", input)
    sizes = [int(n) for n in pad]
    if len(sizes) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {len(sizes)} numbers")
    count = len(sizes) // 2
    if count > input.dim():
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(sizes)} and input of dimension {input.dim()}"
        )
    if mode == "constant":
        lead = ((0, 0),) * (input.dim() - count)
        pairs = tuple((sizes[2 * i], sizes[2 * i + 1]) for i in reversed(range(count)))
        return _pad_with_value(input, lead + pairs, 0 if value is None else value)
    if mode not in _PLACES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if count > 3 or not count + 1 <= input.dim() <= count + 2:
        raise NotImplementedError(
            f"Padding size {len(sizes)} is not supported for {input.dim()}D input tensor with mode "
            f"{mode!r}: two numbers take 2D or 3D input, four 3D or 4D, six 4D or 5D"
        )
    return _pad_from_inside(input, sizes, mode)


def _pad_with_value(input: Tensor, pairs: tuple[tuple[int, int], ...], value: float) -> Tensor:
    shape = tuple(input.shape)
    for axis, (before, after) in enumerate(pairs):
        _check_size(axis, shape[axis], before, after)
        _check_size(axis, shape[axis], min(before, 0), min(after, 0))  # what is taken is there
    if min(map(min, pairs), default=0) < 0:
        kept = (
            slice(max(-before, 0), size - max(-after, 0))
            for size, (before, after) in zip(shape, pairs, strict=True)
        )
        input = input[tuple(kept)]
        pairs = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
    # Padding by nothing makes a copy too, and needs no value.
    number = fitted_number(value, input.dtype) if any(map(any, pairs)) else 0
    return ops["pad"](input, pairs, "constant", number)


def _check_size(axis: int, size: int, before: int, after: int) -> None:
    if size + before + after < 0:
        raise RuntimeError(
            f"pad: the input size {size} plus the negative padding {before} and {after} resulted "
            f"in a negative output size, {size + before + after}, for dimension {axis}"
        )


def _pad_from_inside(input: Tensor, sizes: list[int], mode: str) -> Tensor:
    shape = tuple(input.shape)
    batch = len(shape) - len(sizes) // 2 - 1  # 1 where the first dimension is one
    if mode != "circular":
        if 0 in shape[batch:]:
            raise RuntimeError(
                f"pad: expected sizes that are not 0, but for the batch, to {mode}; "
                f"got {list(shape)}"
            )
        if input.dtype == as_dtype("bool"):
            raise NotImplementedError(f'"pad" not implemented for {input.dtype} in mode {mode!r}')
    for i in range(len(sizes) // 2):
        axis = len(shape) - 1 - i
        size, before, after = shape[axis], sizes[2 * i], sizes[2 * i + 1]
        _check_size(axis, size, before, after)
        _check_fits(mode, axis, shape, before, after)
        if before or after:
            places = _PLACES[mode](size, before, after)
            input = resample_ops.resample(input, axis, places[None], None, size)
    return input


def _check_fits(mode: str, axis: int, shape: tuple[int, ...], before: int, after: int) -> None:
    size = shape[axis]
    if mode != "circular" and size + before + after < 1:
        raise RuntimeError(
            f"input of size {size} at dimension {axis} is too small for padding ({before}, {after})"
        )
    if mode == "reflect" and max(before, after) >= size:
        raise RuntimeError(
            "Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(shape)}"
        )
    if mode == "circular" and max(before, after) > size:
        raise RuntimeError("Padding value causes wrapping around more than once.")


def _reflected(size: int, before: int, after: int) -> Any:
    places = np.abs(np.arange(-before, size + after))
    return np.where(places >= size, 2 * (size - 1) - places, places)


def _replicated(size: int, before: int, after: int) -> Any:
    return np.arange(-before, size + after).clip(0, size - 1)


def _circular(size: int, before: int, after: int) -> Any:
    # What is taken away does not come back on the other side.
    first, last = max(-before, 0), size - max(-after, 0)
    return first + np.arange(-max(before, 0), last - first + max(after, 0)) % max(last - first, 1)


#: Which element stands at each place of the padded axis.
_PLACES: dict[str, Any] = {
    "reflect": _reflected,
    "replicate": _replicated,
    "circular": _circular,
}
