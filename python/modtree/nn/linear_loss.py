# SPDX-License-Identifier: BSD-3-Clause
"""Cross-entropy with the linear layer before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.nn import functional as F
from modtree.nn.linear import Linear
from modtree.nn.loss import _WeightedLoss

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Options of :class:`LinearCrossEntropyLoss`, by which torch saves memory; without effect.

    Args:
        allow_retain_graph: Kept.
        batch_chunk_size: Kept.
        chunking_method: Kept.
        acc_policy: Kept.
        acc_dtype: Kept.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross-entropy of the logits of a linear layer, which is part of it.

    Args:
        in_features: Size of an input.
        num_classes: Number of classes C.
        out_features: Extents d1, ... of several places that each have a class.
        bias: The linear layer has a bias.
        device: Where parameters are made.
        dtype: Their dtype.
        reduction: "mean", "sum" or "none".
        weight: What each class counts, (C).
        ignore_index: Targets of this number do not count; -100 without.
        label_smoothing: Share of the probability that is spread over all classes.
        options: Kept, without effect.

    Shape:
        - input: (in_features) or (N, in_features).
        - target: class numbers, (), (N) or (N, d1, ...); or probabilities, (C), (N, C) or
          (N, C, d1, ...).
        - output: (), or that of class numbers with ``reduction="none"``.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight=weight, size_average=None, reduce=None, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        places = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*places, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(places),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
