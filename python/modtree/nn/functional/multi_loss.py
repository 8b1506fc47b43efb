# SPDX-License-Identifier: BSD-3-Clause
"""Losses over classes by margins, and of several labels at once."""

from __future__ import annotations

from modtree._tensor.tensor import Tensor
from modtree.nn.functional._common import checked_reduction, reduced, reduction_of
from modtree.nn.functional.activation import logsigmoid

__all__ = ["multi_margin_loss", "multilabel_soft_margin_loss"]


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How far other classes come within a margin of the right one, to the power p, over the number
    of classes.

    Args:
        input: Scores, (C) or (N, C).
        target: Class numbers, int64: () or (N).
        p: 1 or 2.
        margin: The distance that costs nothing.
        weight: What each class counts, (C).
        size_average: Before ``reduction``.
        reduce: Before ``reduction``.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: p is neither 1 nor 2, or weight is no vector.
    """
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    places = target.reshape(*target.shape, 1) if input.dim() > 1 else target.reshape(1)
    short = (margin - input.gather(-1, places) + input).clamp(min=0)
    if p == 2:
        short = short * short
    if weight is not None:
        short = short * weight[places]
    short = short.scatter(-1, places, 0.0)
    return reduced(short.sum(-1) / input.shape[-1], reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of each class from its logit, the mean over the classes.

    Args:
        input: Logits, (..., C).
        target: 1 for the labels there are, 0 for others, of the same shape.
        weight: What each class counts, (C).
        size_average: Before ``reduction``.
        reduce: Before ``reduction``.
        reduction: "mean", "sum" or "none".
    """
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.mean(-1), reduction)
