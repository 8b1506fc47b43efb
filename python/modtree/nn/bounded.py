# SPDX-License-Identifier: BSD-3-Clause
"""Activations that limit their values."""

from __future__ import annotations

import warnings

from modtree._module.module import Module
from modtree._tensor.tensor import Tensor
from modtree.nn import functional as F

__all__ = ["Hardtanh", "ReLU6", "Threshold"]


class Hardtanh(Module):
    """x limited to [min_val, max_val]; ``inplace=True`` writes into the input. ``min_value`` and
    ``max_value`` are old names.
    """

    min_val: float
    max_val: float
    inplace: bool

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            _warn_of_old_name("min_value", "min_val")
            min_val = min_value
        if max_value is not None:
            _warn_of_old_name("max_value", "max_val")
            max_val = max_value
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace
        if not self.max_val > self.min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        note = ", inplace=True" if self.inplace else ""
        return f"min_val={self.min_val}, max_val={self.max_val}{note}"


def _warn_of_old_name(old: str, new: str) -> None:
    warnings.warn(
        f"keyword argument `{old}` is deprecated and renamed to `{new}`",
        FutureWarning,
        stacklevel=3,
    )


class ReLU6(Hardtanh):
    """``min(max(x, 0), 6)``; ``inplace=True`` writes into the input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Threshold(Module):
    """x where it is above the threshold, else ``value``; ``inplace=True`` writes into the input."""

    threshold: float
    value: float
    inplace: bool

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        note = ", inplace=True" if self.inplace else ""
        return f"threshold={self.threshold}, value={self.value}{note}"
