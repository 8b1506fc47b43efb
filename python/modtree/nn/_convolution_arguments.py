# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of convolutions: a number or one for each axis, what fits together, paddings."""

from __future__ import annotations

from typing import Any

from modtree._C import as_tuple
from modtree.nn.functional._common import tuple_of

__all__ = ["Ints", "check_arguments", "each", "padding_for_pad"]

Ints = int | tuple[int, ...]

_PADDING_NAMES = ("valid", "same")
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def each(value: Ints, n: int) -> tuple[int, ...]:
    """A number for each of ``n`` axes, or with 0 the tuple itself."""
    return tuple_of(value, n) if n else as_tuple(value)  # type: ignore[arg-type]


def check_arguments(
    in_channels: int,
    out_channels: int,
    stride: tuple[int, ...],
    padding: str | Ints,
    groups: int,
    padding_mode: str,
) -> None:
    """ValueError for what no convolution can be made of."""
    if groups <= 0:
        raise ValueError(f"groups must be a positive integer, got {groups}")
    if in_channels % groups:
        raise ValueError(f"in_channels must be divisible by groups, got {in_channels} and {groups}")
    if out_channels % groups:
        raise ValueError(
            f"out_channels must be divisible by groups, got {out_channels} and {groups}"
        )
    if isinstance(padding, str):
        if padding not in _PADDING_NAMES:
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {', '.join(_PADDING_NAMES)}"
            )
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(
            f"padding_mode must be one of {', '.join(_PADDING_MODES)}, but got "
            f"padding_mode='{padding_mode}'"
        )


def padding_for_pad(
    padding: str | tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """The padding as :func:`modtree.nn.functional.pad` takes it: last axis first, before and
    after.
    """
    if not isinstance(padding, str):
        return tuple(p for p in reversed(padding) for _ in range(2))
    numbers = [0, 0] * len(kernel)
    if padding == "same":
        for i, (d, k) in enumerate(zip(reversed(dilation), reversed(kernel), strict=False)):
            total = d * (k - 1)
            numbers[2 * i : 2 * i + 2] = [total // 2, total - total // 2]
    return numbers
