# SPDX-License-Identifier: BSD-3-Clause
"""Losses of distances between vectors, and of margins between scores, as modules."""

from __future__ import annotations

from collections.abc import Callable

from modtree.nn import functional as F
from modtree.nn.distance import PairwiseDistance
from modtree.nn.loss import _Loss, _WeightedLoss
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "CosineEmbeddingLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "MultiMarginLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _MarginLoss(_Loss):
    """A loss whose margin is 0 unless it is given."""

    margin: float

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """``1 - cos`` of the angle between the inputs where the target is 1, ``max(0, cos - margin)``
    where it is -1.

    Args:
        margin: The cosine that costs nothing where the target is -1; from -1 to 1.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each sample.

    Shape:
        - input1 and input2: (N, D) or (D).
        - target: (N) or ().
        - output: (), or the target's shape with ``reduction="none"``.
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MarginRankingLoss(_MarginLoss):
    """``max(0, -target * (input1 - input2) + margin)``: the first is to be greater where the target
    is 1, smaller where it is -1.

    Args:
        margin: By how much.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input1, input2 and target: (N) or (), or others of as many axes that broadcast.
        - output: (), or the shape they broadcast to with ``reduction="none"``.
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class HingeEmbeddingLoss(_MarginLoss):
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1.

    Args:
        margin: The distance that costs nothing where the target is -1.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """The logistic loss ``log(1 + exp(-target * input))`` of targets 1 and -1.

    Args:
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """``max(0, |anchor - positive| - |anchor - negative| + margin)`` (Balntas et al., 2016); see
    :func:`~modtree.nn.functional.triplet_margin_loss`.

    Args:
        margin: By how much the negative is to be farther away; above 0.
        p: The norm of the differences.
        eps: Added to the differences.
        swap: Take the distance of positive and negative where it is the smaller one.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each triplet.

    Shape:
        - anchor, positive and negative: (N, D) or (D).
        - output: (), or (N) with ``reduction="none"``.

    Raises:
        ValueError: The margin is not above 0.
    """

    margin: float
    p: float
    eps: float
    swap: bool

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """:class:`TripletMarginLoss` with a distance of one's own.

    Args:
        distance_function: Of two tensors; :class:`PairwiseDistance` by default.
        margin: By how much the negative is to be farther away; above 0.
        swap: Take the distance of positive and negative where it is the smaller one.
        reduction: "mean", "sum", or "none" for the loss of each triplet.

    Shape:
        - anchor, positive and negative: what the distance takes, mostly (N, D).
        - output: (), or the shape of the distances with ``reduction="none"``.

    Raises:
        ValueError: The margin is not above 0.
    """

    margin: float
    swap: bool

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got "
                f"{margin} instead"
            )
        self.distance_function = (
            PairwiseDistance() if distance_function is None else distance_function
        )
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class MultiMarginLoss(_WeightedLoss):
    """How far other classes come within a margin of the right one: ``max(0, margin - x[y] +
    x[i])**p`` summed over the classes i other than y, over their number.

    Args:
        p: 1 or 2.
        margin: The distance that costs nothing.
        weight: What each class counts, (C).
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each sample.

    Shape:
        - input: scores, (C) or (N, C).
        - target: class numbers, () or (N).
        - output: (), or the target's shape with ``reduction="none"``.
    """

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
