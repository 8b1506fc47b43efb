# SPDX-License-Identifier: BSD-3-Clause
"""Losses of sequences of labels, margins between classes and several labels, as modules."""

from __future__ import annotations

from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.nn import functional as F
from modtree.nn.loss import _Loss, _WeightedLoss

__all__ = ["CTCLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss"]


class CTCLoss(_Loss):
    """The loss of labels whose places in the input are not known:
    :func:`~modtree.nn.functional.ctc_loss`.
    """

    blank: int
    zero_infinity: bool

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )


class MultiMarginLoss(_WeightedLoss):
    """How far other classes come within a margin of the right one."""

    margin: float
    p: int

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError("weight must be one-dimensional")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross-entropy from logits, the mean over the classes."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )
