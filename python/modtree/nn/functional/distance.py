# SPDX-License-Identifier: BSD-3-Clause
"""Distances between vectors, and the losses made of them."""

from __future__ import annotations

from collections.abc import Callable

from modtree._tensor.tensor import Tensor
from modtree.nn.functional._common import need_tensor, reduced, reduction_of

__all__ = [
    "bilinear",
    "cosine_embedding_loss",
    "cosine_similarity",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "pairwise_distance",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1 A x2`` for each matrix A of the weight, plus the bias.

    Args:
        input1: (..., in1).
        input2: (..., in2), with the same leading axes.
        weight: (out, in1, in2).
        bias: (out).
    """
    need_tensor("bilinear", input1, input2, weight)
    lead = tuple(input1.shape[:-1])
    if lead != tuple(input2.shape[:-1]):
        raise RuntimeError(
            "bilinear(): input batch dimensions do not match: got "
            f"{list(input1.shape)} and {list(input2.shape)}"
        )
    out, in1, in2 = weight.shape
    for name, given, expected in (("input1", input1, in1), ("input2", input2, in2)):
        if given.shape[-1] != expected:
            raise RuntimeError(
                f"bilinear(): {name} size does not match weight size: got {given.shape[-1]} but "
                f"expected {expected}"
            )
    if bias is not None and bias.shape[0] != out:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected "
            f"{out}"
        )
    x1, x2 = input1.reshape(-1, in1), input2.reshape(-1, in2)
    # All matrices at once: (n, in1) by (in1, out * in2), then a product with x2 for each n.
    half = (x1 @ weight.permute(1, 0, 2).reshape(in1, out * in2)).reshape(-1, out, in2)
    result = (half @ x2.unsqueeze(-1)).reshape(*lead, out)
    return result if bias is None else result + bias


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """``x1 x2 / (max(|x1|, eps) * max(|x2|, eps))`` along ``dim``; the two broadcast."""
    need_tensor("cosine_similarity", x1, x2)
    if not (x1.is_floating_point() and x2.is_floating_point()):
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {x1.dtype}: "
            f"cosine_similarity takes "
            "floating tensors"
        )
    # The norm's gradient at 0 is 0, and the bound keeps the quotient finite there.
    n1 = x1.norm(2, dim, keepdim=True).clamp(min=eps)
    n2 = x2.norm(2, dim, keepdim=True).clamp(min=eps)
    return ((x1 / n1) * (x2 / n2)).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis; the two broadcast."""
    need_tensor("pairwise_distance", x1, x2)
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1.

    Inputs are (N, D) with targets (N), or (D) with a target ().
    """
    need_tensor("cosine_embedding_loss", input1, input2, target)
    reduction = reduction_of(size_average, reduce, reduction)
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    wanted = target.dim() + 1
    if input1.dim() != wanted or input2.dim() != wanted:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {wanted}D input tensors, but found inputs "
            f"with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    n1 = input1.square().sum(-1) + 1e-12
    n2 = input2.square().sum(-1) + 1e-12
    cosine = (input1 * input2).sum(-1) / (n1 * n2).sqrt()
    same = (1 - cosine).masked_fill(target != 1, 0)
    different = (cosine - margin).clamp(min=0).masked_fill(target != -1, 0)
    return reduced(same + different, reduction)


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
            f"The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but "
            f"got: anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)


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
    """``max(0, |anchor - positive| - |anchor - negative| + margin)`` with
    :func:`pairwise_distance`.

    ``swap`` takes the distance of positive and negative where it is the smaller one.
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
    """:func:`triplet_margin_loss` with a distance of one's own."""
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
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1."""
    need_tensor("hinge_embedding_loss", input, target)
    reduction = reduction_of(size_average, reduce, reduction)
    near = input.masked_fill(target == -1, 0)
    far = (margin - input).clamp(min=0).masked_fill(target == 1, 0)
    return reduced(near + far, reduction)
