# SPDX-License-Identifier: BSD-3-Clause
"""Cross-entropy of what a linear map gives."""

from __future__ import annotations

import math
from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.nn.functional._common import need_tensor
from modtree.nn.functional.basic import linear
from modtree.nn.functional.loss import cross_entropy

__all__ = ["linear_cross_entropy"]


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """:func:`cross_entropy` of the logits ``linear(input, linear_weight, linear_bias)``.

    Args:
        input: (in_features) or (N, in_features).
        linear_weight: (C, in_features), or (C, d1, ..., in_features) for a loss at several places.
        target: Class numbers, (), (N) or (N, d1, ...); or probabilities, of the logits' shape.
        linear_bias: (C) or (C, d1, ...).
        weight: What each class counts, (C).
        reduction: "mean", "sum" or "none".
        ignore_index: Targets of this number do not count; -100 without.
        label_smoothing: Share of the probability that is spread over all classes.
        options: A :class:`modtree.nn.LinearCrossEntropyOptions`, without effect: the logits are
            made whole.

    Raises:
        RuntimeError: shapes that do not fit, or an ``ignore_index`` with probabilities.
    """
    need_tensor("linear_cross_entropy", input, linear_weight, target)
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}"
        )
    features = input.shape[-1]
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{features} and {linear_weight.shape[-1]}, respectively"
        )
    places = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != places:
        raise RuntimeError(f"expected linear_bias shape {places}, got {tuple(linear_bias.shape)}")
    if len(places) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {features}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    shape = (*input.shape[:-1], *places)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    flat = linear_weight.reshape(math.prod(places), features)
    return cross_entropy(
        linear(input, flat, bias).reshape(shape),
        target,
        weight=weight,
        reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )
