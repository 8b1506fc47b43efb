# SPDX-License-Identifier: BSD-3-Clause
"""What the array functions of this package share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Spec = tuple[tuple[int, ...], Any]


def in_kernel_dtype(kernel: Callable[[Array], Array], x: Array) -> Array:
    """Runs a kernel for float32 and float64 also on float16."""
    if x.dtype == np.float16:
        return kernel(x.astype(np.float32)).astype(np.float16)
    return kernel(x)


def slope_in_kernel_dtype(kernel: Callable[..., Array], g: Array, x: Array, *args: Any) -> Array:
    """Likewise for a kernel that gets a gradient and a value."""
    if x.dtype == np.float16:
        return kernel(g.astype(np.float32), x.astype(np.float32), *args).astype(np.float16)
    return kernel(g, x, *args)


def need_arrays(name: str, *arguments: Any) -> None:
    """Tensors have become arrays before they come here; what has not is no tensor of ours."""
    for x in arguments:
        if not isinstance(x, np.ndarray):
            kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
            raise TypeError(
                f"{name}: expected a modtree.Tensor, got {kind}. The layers of modtree.nn compute on "
                "NumPy tensors: convert with modtree.tensor(...) or modtree.from_numpy(...), or use the "
                "functions of the library that the tensor comes from"
            )


def need_floating(name: str, x: Array) -> None:
    need_arrays(name, x)
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f'"{name}" not implemented for {x.dtype}: expected a floating dtype'
        )


def indicator(condition: Array, like: Array) -> Array:
    """1 where the condition holds, else 0. Products with it select many times faster than ``np.where`` does on mixed signs."""
    return condition.astype(like.dtype)


def is_array(x: Any) -> bool:
    """False where a derivative runs on tensors, for the derivative of a gradient."""
    return isinstance(x, np.ndarray)


def on_arrays_or_tensors(op: Any) -> Callable[..., Any]:
    """The row as a derivative calls it: arrays give an array, tensors are recorded."""
    forward = op.forward

    def call(x: Any, *args: Any) -> Any:
        return forward(x, *args) if isinstance(x, np.ndarray) else op(x, *args)

    return call


def sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Can a tensor of ``shape`` be repeated to fill ``target``?"""
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def same_meta(x: Array, *args: Any) -> Spec:
    """Shape and dtype of the first argument: for everything pointwise."""
    return x.shape, x.dtype
