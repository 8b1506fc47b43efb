# SPDX-License-Identifier: BSD-3-Clause
"""What the functions of this package share."""

from __future__ import annotations

import warnings
from typing import Any

from modtree._C import is_grad_enabled
from modtree._tensor.tensor import Tensor


def need_tensor(name: str, *arguments: Any) -> None:
    for x in arguments:
        if not isinstance(x, Tensor):
            kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
            raise TypeError(f"{name}: expected a modtree.Tensor, got {kind}")


def need_constants(name: str, **arguments: Any) -> None:
    """RuntimeError for what a function has no gradient for, rather than a gradient that is
    missing.
    """
    for keyword, value in arguments.items():
        if value is not None and value.requires_grad and is_grad_enabled():
            raise RuntimeError(
                f"The function '{name}' is not differentiable with respect to argument "
                f"'{keyword}'. This input cannot have "
                "requires_grad True: pass its detach()"
            )


def checked_dim(dim: int, ndim: int) -> int:
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but "
            f"got {dim})"
        )
    return dim


def reduction_of(
    size_average: bool | None, reduce: bool | None, reduction: str, stacklevel: int = 3
) -> str:
    """One of "none", "mean", "sum", from today's argument or from the two that came before it."""
    if size_average is not None or reduce is not None:
        size_average = True if size_average is None else size_average
        reduction = "none" if reduce is False else "mean" if size_average else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use "
            f"reduction={reduction!r} instead.",
            stacklevel=stacklevel,
        )
    return reduction


def checked_reduction(reduction: str) -> str:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"{reduction} is not a valid value for reduction: use 'none', 'mean' or 'sum'"
        )
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of a loss, or the loss."""
    checked_reduction(reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
