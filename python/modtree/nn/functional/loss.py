# SPDX-License-Identifier: BSD-3-Clause
"""Losses of values, probabilities and classes.

Those made of distances and margins are in ``margin_loss.py``, that of sequences of labels in
``sequence_loss.py``. ``size_average`` and ``reduce`` are what came before ``reduction``, still
understood, with a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

from modtree._C import _promote_types as promote_types
from modtree._C import as_dtype
from modtree.nn.functional._common import (
    checked_reduction,
    loss_reduction,
    need_constants,
    need_tensor,
    reduced,
    reduction_of,
)
from modtree.numpy.ops import activation as activation_ops
from modtree.numpy.ops import loss as loss_ops
from modtree.numpy.ops.broadcast import broadcast_tensors
from modtree.numpy.tensor.creation import ones_like
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
]


_BOOL = as_dtype("bool")

# -- element by element ----------------------------------------------------------------------------


def _same_size(input: Tensor, target: Tensor, stacklevel: int = 3) -> tuple[Tensor, ...]:
    """Both, broadcast with a warning. Afterwards neither is a scalar, whose dtype would not
    count.
    """
    if target.shape == input.shape:
        return input, target
    warnings.warn(
        f"Using a target size ({target.shape}) that is different to the input size "
        f"({input.shape}): the two are broadcast, which is likely not what is meant. Give them the "
        "same size.",
        stacklevel=stacklevel,
    )
    return broadcast_tensors(input, target)


def _check_weight(weight: Tensor, input: Tensor) -> None:
    if weight.shape != input.shape:
        raise ValueError(
            f"Weights and input must have the same size, got {tuple(weight.shape)} and "
            f"{tuple(input.shape)}"
        )


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """A weighted mean divides by the sum of the weights."""
    weighted = loss * weight
    if reduction == "mean":
        return weighted.sum() / weight.sum()
    return reduced(weighted, reduction)


def _error(
    name: str,
    op: Callable[[Tensor, Tensor, str], Tensor],
    each: Callable[[Tensor], Tensor],
    input: Tensor,
    target: Tensor,
    size_average: bool | None,
    reduce: bool | None,
    reduction: str,
    weight: Tensor | None,
) -> Tensor:
    """A loss that has no options besides weights; ``each`` is that of a difference."""
    need_tensor(name, input, target)
    given = input
    input, target = _same_size(input, target, stacklevel=4)
    if weight is not None:
        _check_weight(weight, given)
    reduction = loss_reduction(size_average, reduce, reduction, stacklevel=4)
    if weight is not None:
        return _weighted(each(input - target), weight, reduction)
    return op(input, target, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared error ``(input - target)**2``.

    Args:
        input: Values of any shape.
        target: Values, of the same shape.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
        weight: Factors of the losses, of the input's shape; the mean is the weighted one.
    """
    return _error(
        "mse_loss",
        loss_ops.mse_loss,
        Tensor.square,
        input,
        target,
        size_average,
        reduce,
        reduction,
        weight,
    )


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute error ``|input - target|``.

    Args:
        input: Values of any shape.
        target: Values, of the same shape.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
        weight: Factors of the losses, of the input's shape; the mean is the weighted one.
    """
    return _error(
        "l1_loss",
        loss_ops.l1_loss,
        Tensor.abs,
        input,
        target,
        size_average,
        reduce,
        reduction,
        weight,
    )


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """``0.5 * d**2 / beta`` where ``d = |input - target|`` is below ``beta``, else ``d - 0.5 *
    beta`` (Girshick, "Fast R-CNN", 2015, with ``beta=1``).

    Args:
        input: Values of any shape.
        target: Values, of the same shape.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
        beta: Where the square ends and the line begins; 0 makes it :func:`l1_loss`.
    """
    need_tensor("smooth_l1_loss", input, target)
    input, target = _same_size(input, target)
    if not beta >= 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}.")
    reduction = loss_reduction(size_average, reduce, reduction)
    return loss_ops.smooth_l1_loss(input, target, reduction, float(beta))


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """``0.5 * d**2`` where ``d = |input - target|`` is at most ``delta``, else ``delta * (d - 0.5 *
    delta)`` (Huber, 1964).

    Args:
        input: Values of any shape.
        target: Values, of the same shape.
        reduction: "mean", "sum", or "none" for the loss of each element.
        delta: Where the square ends and the line begins.
        weight: Factors of the losses, of the input's shape; the mean divides by the number of
            losses all the same.
    """
    need_tensor("huber_loss", input, target)
    given = input
    input, target = _same_size(input, target)
    if weight is not None:
        _check_weight(weight, given)
    if not delta > 0:
        raise RuntimeError(
            f"huber_loss does not support non-positive values for delta, got {delta}."
        )
    checked_reduction(reduction)
    if weight is not None:
        loss = loss_ops.huber_loss(input, target, "none", float(delta))
        return reduced(_weighted(loss, weight, "none"), reduction)
    return loss_ops.huber_loss(input, target, reduction, float(delta))


# -- probabilities ---------------------------------------------------------------------------------


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """``target * (log(target) - input)``: how far a distribution is from the target (Kullback and
    Leibler, 1951).

    Args:
        input: Log probabilities.
        target: Probabilities, or with ``log_target`` their logarithms. A target of 0 costs nothing.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: Also "batchmean", which divides the sum by the size of the first axis, and is
            what the divergence is.
        log_target: The target is a logarithm too.
    """
    need_tensor("kl_div", input, target)
    for x in (input, target):
        if not x.is_floating_point():
            kind = "Complex" if x.is_complex() else "Integral"
            raise RuntimeError(f"kl_div: {kind} inputs not supported, got {x.dtype}")
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. "
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.",
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

    Args:
        input: Probabilities, any shape.
        target: Probabilities, of the same shape.
        weight: Factors of the losses, of a shape that broadcasts to the target's.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
    """
    need_tensor("binary_cross_entropy", input, target)
    reduction = loss_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
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

    Args:
        input: Logits, any shape.
        target: Probabilities, of the same shape.
        weight: Factors of the losses, of a shape that broadcasts to the target's.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
        pos_weight: Factors of the cost of positive answers, of a shape that broadcasts to the
            target's.
    """
    need_tensor("binary_cross_entropy_with_logits", input, target)
    reduction = loss_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    need_constants("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    if not input.is_floating_point():
        raise NotImplementedError(
            f'"binary_cross_entropy_with_logits" not implemented for {input.dtype}: convert with '
            ".float()"
        )
    if target.dtype is _BOOL:
        raise RuntimeError(
            "binary_cross_entropy_with_logits: 1 - target of a bool target is not supported: "
            "convert with .float()"
        )
    if weight is not None and weight.dtype is not input.dtype:
        weight = _beside(weight, input)
    if pos_weight is not None and pos_weight.dtype is not input.dtype:
        pos_weight = _beside(pos_weight, input)
    return loss_ops.binary_cross_entropy_with_logits(input, target, reduction, weight, pos_weight)


def _beside(weight: Tensor, input: Tensor) -> Tensor:
    """Weights in the dtype in which they meet the input."""
    return weight.to(promote_types(weight.dtype, input.dtype))


def _variances(var: Tensor | float, input: Tensor) -> Tensor:
    if isinstance(var, Tensor) and var.is_complex():
        raise NotImplementedError(f"gaussian_nll_loss: expected real variances, got {var.dtype}")
    if (var < 0).any() if isinstance(var, Tensor) else var < 0:
        raise ValueError("var has negative entry/entries")
    return var if isinstance(var, Tensor) else ones_like(input) * float(var)


def _repeated_axes(x: Tensor, other: Tensor) -> int:
    """Axes that have size 1 in x, and another in the other tensor."""
    return sum(a == 1 != b for a, b in zip(x.shape, other.shape, strict=True))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """``0.5 * (log(var) + (input - target)**2 / var)``: the target as a sample of a normal
    distribution (Nix and Weigend, 1994).

    Args:
        input: Means.
        target: Samples.
        var: Variances: of the input's shape, or with 1 in one of its axes, or without the last
            one, or one number.
        full: Add the constant ``0.5 * log(2 pi)``.
        eps: Variances count as at least this. Gradients see the variance itself.
        reduction: "mean", "sum" or "none".
    """
    need_tensor("gaussian_nll_loss", input, target)
    if isinstance(var, int):
        raise TypeError(
            f"gaussian_nll_loss: expected var to be a tensor or a float, got {type(var).__name__}"
        )
    var = _variances(var, input)
    if var.shape != input.shape:
        if input.dim() and input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.dim() != var.dim() or _repeated_axes(var, input) != 1:
            raise ValueError(
                f"var is of incorrect size: {tuple(var.shape)} does not fit an input of "
                f"{tuple(input.shape)}"
            )
    checked_reduction(reduction)
    if var.dtype is _BOOL:
        raise NotImplementedError("gaussian_nll_loss: expected variances, got bools")
    # At least eps, and yet with the gradient of the variance itself.
    bounded = var.clone()
    with no_grad():
        bounded.clamp_(min=eps)
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
    """Minus the log likelihood of the target as a sample of a Poisson distribution whose mean is
    ``exp(input)``, or ``input`` with ``log_input=False``; without the constant ``log(target!)``.

    Args:
        input: Means or their logarithms, any shape.
        target: Samples, of the same shape.
        log_input: The input is the logarithm of the mean.
        full: Add Stirling's approximation of ``log(target!)`` where the target is above 1.
        size_average: Deprecated; see ``reduction``.
        eps: Keeps the logarithm of the input finite.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
    """
    need_tensor("poisson_nll_loss", input, target)
    reduction = loss_reduction(size_average, reduce, reduction)
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + float(eps)).log()
    if full:
        safe = target.clamp(min=1)
        stirling = target * safe.log() - target + (safe * (2 * math.pi)).log() * 0.5
        loss = loss + stirling.masked_fill(target <= 1, 0).to(loss.dtype)
    return reduced(loss, reduction)


# -- classes ---------------------------------------------------------------------------------------


def _check_classes(input: Tensor, target: Tensor) -> None:
    if input.dim() == 0:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if input.dim() > 1 and input.shape[0] != (target.shape[0] if target.dim() else 0):
        got = target.shape[0] if target.dim() else "none: it is 0-D"
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({got})."
        )


def _check_single(name: str, input: Tensor, target: Tensor) -> None:
    if input.dim() == 1 and target.dim() == 1 and target.shape[0] != 1:
        if target.dtype.name not in ("int64", "uint8"):
            raise RuntimeError(
                f"expected target dtype to be Long or Byte, but got {target.dtype}: {name} takes "
                "class numbers; convert with .long()"
            )
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
        size_average: Deprecated; see ``reduction``.
        ignore_index: Targets of this number do not count.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum" or "none".
    """
    need_tensor("nll_loss", input, target)
    reduction = loss_reduction(size_average, reduce, reduction)
    _check_classes(input, target)
    need_constants("nll_loss", weight=weight)
    _check_single("nll_loss", input, target)
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
        size_average: Deprecated; see ``reduction``.
        ignore_index: Class numbers equal to this do not count.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum" or "none".
        label_smoothing: How much of the target is spread evenly over all classes, 0 to 1 (Szegedy
            et al., 2015).
    """
    need_tensor("cross_entropy", input, target)
    reduction = loss_reduction(size_average, reduce, reduction)
    # Where it is not above 0, it is 0.
    smoothing = float(label_smoothing) if label_smoothing > 0 else 0.0
    if target.shape == input.shape:
        if not target.is_floating_point():
            raise RuntimeError(
                "Expected floating point type for target with class probabilities, got "
                f"{target.dtype}"
            )
        return _with_probabilities(input, target, weight, ignore_index, reduction, smoothing)
    if smoothing > 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    _need_classes(input)
    _check_classes(input, target)
    need_constants("cross_entropy", weight=weight)
    _check_single("cross_entropy", input, target)
    return loss_ops.cross_entropy(input, target, weight, ignore_index, reduction, smoothing)


def _need_classes(input: Tensor) -> None:
    if input.dim() == 0:
        raise IndexError("cross_entropy: Expected an input of at least 1 dimension, got a scalar")


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
    _need_classes(input)
    axis = 1 if input.dim() > 1 else 0
    classes = input.shape[axis]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or "
            f"no classes but got weight tensor of shape: {list(weight.shape)}"
        )
    if smoothing > 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    if smoothing:
        target = target * (1 - smoothing) + smoothing / max(classes, 1)
    logp = activation_ops.log_softmax(input, axis)
    if weight is not None:
        logp = logp * weight.reshape((1,) * axis + (classes,) + (1,) * (input.dim() - axis - 1))
    loss = -(logp * target)
    if reduction == "mean":
        return loss.sum() / (input.numel() // max(classes, 1))
    return reduced(loss.sum(axis) if reduction == "none" else loss, reduction)
