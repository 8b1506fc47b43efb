# SPDX-License-Identifier: BSD-3-Clause
"""Losses of distances between vectors, and of margins between scores."""

from __future__ import annotations

from collections.abc import Callable

from modtree._C import fitted_number
from modtree.nn.functional._common import loss_reduction, need_tensor, reduced, reduction_of
from modtree.nn.functional.activation import logsigmoid, relu
from modtree.nn.functional.basic import pairwise_distance
from modtree.numpy.ops.broadcast import broadcast_shapes
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` of the angle between the inputs where the target is 1, ``max(0, cos - margin)``
    where it is -1.

    Args:
        input1: Vectors, (N, D) or (D).
        input2: Vectors, of the same shape.
        target: 1 and -1, (N) or ().
        margin: The cosine that costs nothing where the target is -1.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each pair.
    """
    need_tensor("cosine_embedding_loss", input1, input2, target)
    reduction = reduction_of(size_average, reduce, reduction)
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    wanted = target.dim() + 1
    if input1.dim() != wanted or input2.dim() != wanted:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {wanted}D input tensors, but found inputs with "
            f"sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    n1 = input1.square().sum(-1) + 1e-12
    n2 = input2.square().sum(-1) + 1e-12
    cosine = (input1 * input2).sum(-1) / (n1 * n2).sqrt()
    same = (1 - cosine).masked_fill(target != 1, 0)
    different = (cosine - float(margin)).clamp(min=0).masked_fill(target != -1, 0)
    return reduced(same + different, reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1.

    Args:
        input: Distances, any shape.
        target: 1 and -1, of the same shape.
        margin: The distance that costs nothing where the target is -1.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
    """
    need_tensor("hinge_embedding_loss", input, target)
    reduction = reduction_of(size_average, reduce, reduction)
    near = input.masked_fill(target == -1, 0)
    # A number of the input's dtype: of integers a whole one.
    far = (
        (fitted_number(float(margin), input.dtype) - input).clamp(min=0).masked_fill(target == 1, 0)
    )
    return reduced(near + far, reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, -target * (input1 - input2) + margin)``: the first is to be greater where the target
    is 1, smaller where it is -1.

    Args:
        input1: Scores, any shape.
        input2: Scores, with as many axes.
        target: 1 and -1, with as many axes.
        margin: By how much.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each pair.
    """
    need_tensor("margin_ranking_loss", input1, input2, target)
    reduction = reduction_of(size_average, reduce, reduction)
    dims = input1.dim(), input2.dim(), target.dim()
    if len(set(dims)) > 1:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {tuple(input1.shape)}, input2: {tuple(input2.shape)}, target: "
            f"{tuple(target.shape)} "
        )
    return reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The logistic loss ``log(1 + exp(-target * input))``.

    Args:
        input: Values of any shape.
        target: 1 and -1, of the same shape.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
    """
    need_tensor("soft_margin_loss", input, target)
    reduction = loss_reduction(size_average, reduce, reduction)
    if input.shape != target.shape or input.dtype is not target.dtype:
        target = _as_input(input, target)
    if input.is_complex():
        return reduced((-target * input).exp().log1p(), reduction)
    return reduced(-logsigmoid(target * input), reduction)


#: A result of a later kind does not go into a tensor of an earlier one.
_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _as_input(input: Tensor, target: Tensor) -> Tensor:
    """The target in the dtype of the input, to whose shape it broadcasts."""
    if _KINDS[target.dtype.dtype.kind] > _KINDS[input.dtype.dtype.kind]:
        raise RuntimeError(
            f"soft_margin_loss: result type {target.dtype} can't be cast to the desired output "
            f"type {input.dtype}"
        )
    if broadcast_shapes(input.shape, target.shape) != input.shape:
        raise RuntimeError(
            f"soft_margin_loss: output with shape {list(input.shape)} doesn't match the broadcast "
            f"shape {list(broadcast_shapes(input.shape, target.shape))}"
        )
    return target.to(input.dtype)


def _triplet(
    name: str,
    distance: Callable[[Tensor, Tensor], Tensor],
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    need_tensor(name, anchor, positive, negative)
    dims = anchor.dim(), positive.dim(), negative.dim()
    if len(set(dims)) > 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D "
            "inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + float(margin)).clamp(min=0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, |anchor - positive| - |anchor - negative| + margin)`` (Balntas et al., 2016) with
    :func:`pairwise_distance`.

    Args:
        anchor: Vectors, (N, D) or (D).
        positive: Vectors that are to be near, of the same shape.
        negative: Vectors that are to be farther away, of the same shape.
        margin: By how much; above 0.
        p: The norm of the differences.
        eps: Added to the differences.
        swap: Take the distance of positive and negative where it is the smaller one.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each triplet.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(
        "triplet_margin_loss",
        lambda a, b: pairwise_distance(a, b, p, eps),
        anchor,
        positive,
        negative,
        margin,
        swap,
        reduction,
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """:func:`triplet_margin_loss` with a distance of one's own.

    Args:
        anchor: What the distance takes, mostly (N, D).
        positive: What is to be near.
        negative: What is to be farther away.
        distance_function: Of two tensors; :func:`pairwise_distance` by default.
        margin: By how much; above 0.
        swap: Take the distance of positive and negative where it is the smaller one.
        reduction: "mean", "sum", or "none" for the loss of each triplet.
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(
        "triplet_margin_with_distance_loss",
        distance,
        anchor,
        positive,
        negative,
        margin,
        swap,
        reduction,
    )


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
    of classes (Weston and Watkins, 1999).

    Args:
        input: Scores, (C) or (N, C).
        target: Class numbers, int64: () or (N).
        p: 1 or 2.
        margin: The distance that costs nothing.
        weight: What each class counts, (C).
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: p is neither 1 nor 2, or weight is no vector.
    """
    reduction = loss_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if not input.is_floating_point() or input.dtype.name == "float16":
        raise NotImplementedError(
            f'"multi_margin_loss" not implemented for {input.dtype}: convert with .float()'
        )
    if 0 in input.shape[input.dim() == 2 :]:
        raise RuntimeError(
            "multi_margin_loss: Expected non-empty vector or matrix with optional 0-dim batch "
            f"size, but got: {list(input.shape)}"
        )
    for what, given, dtype in (("target", target, "int64"), ("weight", weight, input.dtype.name)):
        if given is not None and given.dtype.name != dtype:
            raise RuntimeError(
                f"multi_margin_loss: expected {what} of {dtype}, but found {given.dtype}"
            )
    margin = fitted_number(margin, input.dtype)
    index = target.reshape(*target.shape, 1) if input.dim() > 1 else target.reshape(1)
    short = relu(float(margin) - input.gather(-1, index) + input).scatter(-1, index, 0.0)
    if p == 2:
        short = short * short
    if weight is not None:
        short = short * weight[index]
    loss = short.sum(-1) / input.shape[-1]
    return reduced(loss if input.dim() > 1 else loss.reshape(target.shape), reduction)
