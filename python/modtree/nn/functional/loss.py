# SPDX-License-Identifier: BSD-3-Clause
"""Losses that compare element by element.

``reduction`` is "mean", "sum" or "none"; ``size_average`` and ``reduce`` are what came before it,
still understood, with a warning.
"""

from __future__ import annotations

import math
import warnings

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

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
]


def _warn_of_sizes(input: Tensor, target: Tensor) -> None:
    if target.shape != input.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}): the two are "
            "broadcast, which is likely not what is meant. Give them the same size.",
            stacklevel=3,
        )


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """A weighted mean divides by the sum of the weights."""
    if weight.shape != loss.shape:
        raise ValueError(
            f"Weights and input must have the same size, got {tuple(weight.shape)} and "
            f"{tuple(loss.shape)}"
        )
    weighted = loss * weight
    if reduction == "mean":
        return weighted.sum() / weight.sum()
    return reduced(weighted, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """``(input - target)**2``; with ``weight``, of the input's shape, a weighted mean or sum."""
    need_tensor("mse_loss", input, target)
    _warn_of_sizes(input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if weight is not None:
        return _weighted(loss_ops.mse_loss(input, target, "none"), weight, reduction)
    return loss_ops.mse_loss(input, target, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """``|input - target|``; with ``weight``, of the input's shape, a weighted mean or sum."""
    need_tensor("l1_loss", input, target)
    _warn_of_sizes(input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if weight is not None:
        return _weighted(loss_ops.l1_loss(input, target, "none"), weight, reduction)
    return loss_ops.l1_loss(input, target, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """``0.5 * d**2 / beta`` where ``d = |input - target|`` is below ``beta``, else ``d - 0.5 *
    beta``.
    """
    need_tensor("smooth_l1_loss", input, target)
    _warn_of_sizes(input, target)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}.")
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    return loss_ops.smooth_l1_loss(input, target, reduction, float(beta))


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """``0.5 * d**2`` where ``d = |input - target|`` is at most ``delta``, else ``delta * (d - 0.5 *
    delta)``.

    With ``weight``, of the input's shape, each is multiplied by its weight; the mean divides by
    their number all the same.
    """
    need_tensor("huber_loss", input, target)
    _warn_of_sizes(input, target)
    if delta <= 0:
        raise RuntimeError(
            f"huber_loss does not support non-positive values for delta, got {delta}."
        )
    checked_reduction(reduction)
    if weight is not None:
        loss = loss_ops.huber_loss(input, target, "none", float(delta))
        return reduced(_weighted(loss, weight, "none"), reduction)
    return loss_ops.huber_loss(input, target, reduction, float(delta))


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """``target * (log(target) - input)``: how far a distribution is from the target.

    Args:
        input: Log probabilities.
        target: Probabilities, or with ``log_target`` their logarithms. A target of 0 costs nothing.
        size_average: Before ``reduction``.
        reduce: Before ``reduction``.
        reduction: Also "batchmean", which divides the sum by the size of the first axis, and is
            what the divergence is.
        log_target: The target is a logarithm too.
    """
    need_tensor("kl_div", input, target)
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size. 'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition.",
            stacklevel=2,
        )
    if reduction != "batchmean":
        return loss_ops.kl_div(input, target, checked_reduction(reduction), log_target)
    total = loss_ops.kl_div(input, target, "sum", log_target)
    return total / input.shape[0] if input.dim() else total


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-(target * log(input) + (1 - target) * log(1 - input))`` of probabilities; logarithms are
    cut off at -100.

    ``weight`` broadcasts to the target.
    """
    need_tensor("binary_cross_entropy", input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. "
            "Please ensure they have the same size."
        )
    need_constants("binary_cross_entropy", weight=weight)
    if weight is not None:
        weight = weight.expand(target.shape)
    return loss_ops.binary_cross_entropy(input, target, reduction, weight)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """:func:`binary_cross_entropy` of ``sigmoid(input)``, computed without overflow.

    ``weight`` and ``pos_weight`` broadcast to the target; ``pos_weight`` multiplies the cost of the
    positive answers.
    """
    need_tensor("binary_cross_entropy_with_logits", input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    need_constants("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    return loss_ops.binary_cross_entropy_with_logits(input, target, reduction, weight, pos_weight)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """``0.5 * (log(var) + (input - target)**2 / var)``: the target as a sample of a normal
    distribution.

    Args:
        input: Means.
        target: Samples.
        var: Variances: of the input's shape, or without its last axis, or with 1 there, or one
            number.
        full: Add the constant ``0.5 * log(2 pi)``.
        eps: Variances count as at least this. Gradients see the variance itself.
        reduction: "mean", "sum" or "none".
    """
    need_tensor("gaussian_nll_loss", input, target)
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = input.new_full(input.shape, var)
    elif (var._array < 0).any():
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif tuple(input.shape[:-1]) != tuple(var.shape[:-1]) or var.shape[-1] != 1:
            raise ValueError(
                f"var is of incorrect size: {tuple(var.shape)} does not fit an input of "
                f"{tuple(input.shape)}"
            )
    checked_reduction(reduction)
    # At least eps, and yet with the gradient of the variance itself.
    bounded = var + (var.detach().clamp(min=eps) - var.detach())
    loss = (bounded.log() + (input - target).square() / bounded) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The target as a sample of a Poisson distribution whose mean is ``exp(input)``, or ``input``
    with ``log_input=False``.

    ``full`` adds Stirling's approximation of ``log(target!)`` where the target is above 1; ``eps``
    keeps the logarithm of the input finite.
    """
    need_tensor("poisson_nll_loss", input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        safe = target.clamp(min=1)
        stirling = target * safe.log() - target + (safe * (2 * math.pi)).log() * 0.5
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""
    need_tensor("soft_margin_loss", input, target)
    reduction = checked_reduction(reduction_of(size_average, reduce, reduction))
    return reduced(-activation_ops.logsigmoid(target * input), reduction)
