# SPDX-License-Identifier: BSD-3-Clause
"""Functions on torch tensors that torch does not have, or has with other names of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def split(input: torch.Tensor, split_size: Any, dim: int = 0) -> tuple[torch.Tensor, ...]:
    return torch.split(input, split_size, dim)


def swapaxes(input: torch.Tensor, dim0: int, dim1: int) -> torch.Tensor:
    return torch.transpose(input, dim0, dim1)


def new_zeros(input: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return input.new_zeros(size)


def where(condition: torch.Tensor, input: Any = None, other: Any = None) -> Any:
    return torch.where(condition) if input is None else torch.where(condition, input, other)


def max(input: torch.Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    return _extreme(torch.max, input, dim if other is None else other, keepdim)


def min(input: torch.Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    return _extreme(torch.min, input, dim if other is None else other, keepdim)


def softmax(
    input: torch.Tensor, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
) -> torch.Tensor:
    return _along(torch.nn.functional.softmax, input, dim, _stacklevel, dtype)


def log_softmax(
    input: torch.Tensor, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
) -> torch.Tensor:
    return _along(torch.nn.functional.log_softmax, input, dim, _stacklevel, dtype)


def _along(function: Any, input: torch.Tensor, dim: Any, third: Any, dtype: Any) -> torch.Tensor:
    # The third argument of torch.softmax() and modtree.softmax() is the dtype.
    if isinstance(third, int):
        return function(input, dim, third + 2, dtype)
    return function(input, dim, dtype=third)


def _extreme(function: Any, input: torch.Tensor, dim: Any, keepdim: bool) -> Any:
    if dim is None:
        return function(input)
    return function(input, dim, keepdim) if isinstance(dim, int) else function(input, dim)


def recurrence(
    mode: str,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor | None],
    projection: torch.Tensor | None = None,
    reverse: bool = False,
    sizes: tuple[int, ...] | None = None,
) -> tuple[torch.Tensor, ...]:
    """As ``modtree.nn.functional.recurrent.recurrence``."""
    if sizes is not None:
        raise NotImplementedError(
            "packed sequences are not available for torch tensors in modtree's layers: use torch's"
        )
    given: list[Any] = [w for w in weights if w is not None]
    has_biases = len(given) == 4
    given += [] if projection is None else [projection]
    function = getattr(torch, mode.lower())
    start: Any = [s[None] for s in states]
    start = start if mode == "LSTM" else start[0]
    x = x.flip(0) if reverse else x
    # One layer without dropout, in one direction, over (time, batch, width).
    y, *last = function(x, start, given, has_biases, 1, 0.0, False, False, False)
    return (y.flip(0) if reverse else y, *(s[0] for s in last))
