# SPDX-License-Identifier: BSD-3-Clause
"""Losses over classes."""

from __future__ import annotations

from modtree._ops import activation as activation_ops
from modtree._ops import loss as loss_ops
from modtree._tensor.tensor import Tensor
from modtree.nn.functional._common import (
    checked_reduction,
    need_constants,
    need_tensor,
    reduced,
    reduction_of,
)

__all__ = ["cross_entropy", "nll_loss"]


def _check_places(input: Tensor, target: Tensor) -> None:
    if input.dim() == 0:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if input.dim() > 1 and (target.dim() == 0 or input.shape[0] != target.shape[0]):
        got = target.shape[0] if target.dim() else "none: it is 0-D"
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({got})."
        )
    if input.dim() == 1 and target.dim() == 1 and target.shape[0] != 1:
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}"
        )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log probability of the right class.

    Args:
        input: Log probabilities, (C), (N, C) or (N, C, d1, ...).
        target: Class numbers, int64: (), (N) or (N, d1, ...).
        weight: What each class counts, (C). The mean divides by the sum of what the targets count.
        size_average: Before ``reduction``.
        ignore_index: Targets of this number do not count.
        reduce: Before ``reduction``.
        reduction: "mean", "sum" or "none".
    """
    need_tensor("nll_loss", input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    _check_places(input, target)
    need_constants("nll_loss", weight=weight)
    return loss_ops.nll_loss(input, target, weight, ignore_index, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Log softmax over the classes, and the negative log likelihood of the target.

    Args:
        input: Logits, (C), (N, C) or (N, C, d1, ...).
        target: Class numbers, int64: (), (N) or (N, d1, ...). Or probabilities of the classes: of
            the input's shape and floating.
        weight: What each class counts, (C).
        size_average: Before ``reduction``.
        ignore_index: Class numbers equal to this do not count.
        reduce: Before ``reduction``.
        reduction: "mean", "sum" or "none".
        label_smoothing: How much of the target is spread evenly over all classes, 0 to 1.
    """
    need_tensor("cross_entropy", input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.shape == input.shape and input.dim():
        if not target.is_floating_point():
            raise RuntimeError(
                "Expected floating point type for target with class probabilities, got "
                f"{target.dtype}"
            )
        return _with_probabilities(
            input, target, weight, ignore_index, reduction, float(label_smoothing)
        )
    _check_places(input, target)
    need_constants("cross_entropy", weight=weight)
    return loss_ops.cross_entropy(
        input, target, weight, ignore_index, reduction, float(label_smoothing)
    )


def _with_probabilities(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    if ignore_index >= 0:
        raise RuntimeError(
            "ignore_index is not supported for floating point target: there are no class numbers "
            "to compare"
        )
    axis = 1 if input.dim() > 1 else 0
    classes = input.shape[axis]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or "
            f"no classes but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    logp = activation_ops.log_softmax(input, axis)
    if weight is not None:
        logp = logp * weight.reshape((1,) * axis + (classes,) + (1,) * (input.dim() - axis - 1))
    loss = -(logp * target)
    if reduction == "mean":
        return loss.sum() / (input.numel() // max(classes, 1))
    return reduced(loss.sum(axis) if reduction == "none" else loss, reduction)
