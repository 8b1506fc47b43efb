# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, strides and paddings given as one number or as one for each axis."""

from __future__ import annotations

import operator
from typing import Any

from modtree._tensor.tensor import Tensor

Sizes = tuple[int, ...]


def need_tensor(name: str, input: Any) -> None:
    """Says what came instead of a tensor of ours."""
    if not isinstance(input, Tensor):
        kind = f"{type(input).__module__}.{type(input).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"{name}: expected a modtree.Tensor, got {kind}: convert with modtree.tensor(...) or "
            f"modtree.from_numpy(...)"
        )


def _ints(name: str, what: str, value: Any) -> Sizes:
    try:
        if isinstance(value, (tuple, list)):
            return tuple(operator.index(v) for v in value)
        return (operator.index(value),)
    except TypeError:
        raise TypeError(
            f"{name}(): argument '{what}' must be an int or a tuple of ints, got {value!r}"
        ) from None


_WORDS = {1: "one int", 2: "two ints", 3: "three ints"}


def pool_sizes(name: str, what: str, value: Any, n: int) -> Sizes:
    """``value`` for each of ``n`` axes, with the message of pooling."""
    sizes = _ints(name, what, value)
    if len(sizes) == 1:
        return sizes * n
    if len(sizes) != n:
        raise RuntimeError(
            f"{name}: {what} must either be a single int, or a tuple of {_WORDS[n]}, got {value!r}"
        )
    return sizes


def conv_sizes(name: str, what: str, value: Any, n: int) -> Sizes:
    """``value`` for each of ``n`` axes, with the message of convolutions."""
    sizes = _ints(name, what, value)
    if len(sizes) == 1:
        return sizes * n
    if len(sizes) != n:
        raise RuntimeError(
            f"expected {what} to be a single integer value or a list of {n} values to match the "
            f"convolution "
            f"dimensions, but got {what}={list(sizes)}"
        )
    return sizes
