# SPDX-License-Identifier: BSD-3-Clause
"""Losses of values, probabilities and classes as modules; those made of distances and margins are
in ``margin_loss.py``.

``size_average`` and ``reduce`` are what came before ``reduction``, still understood, with a
warning.
"""

from __future__ import annotations

from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import reduction_of
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
]


class _Loss(Module):
    """A loss with ``reduction``. Those without options of their own use this constructor."""

    reduction: str

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            # The warning shows where the module is made, past the constructors of subclasses.
            classes = type(self).__mro__
            inner = classes[: classes.index(_Loss) + 1]
            stacklevel = 2 + sum("__init__" in vars(cls) for cls in inner)
            reduction = reduction_of(size_average, reduce, reduction, stacklevel)
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """A loss with the buffer ``weight``, or None."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


# -- element by element ----------------------------------------------------------------------------


class MSELoss(_Loss):
    """The squared error ``(input - target)**2``.

    Args:
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """The absolute error ``|input - target|``.

    Args:
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """``0.5 * d**2 / beta`` where ``d = |input - target|`` is below ``beta``, else ``d - 0.5 *
    beta`` (Girshick, "Fast R-CNN", 2015, with ``beta=1``).

    Args:
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
        beta: Where the square ends and the line begins; 0 makes it :class:`L1Loss`.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """``0.5 * d**2`` where ``d = |input - target|`` is at most ``delta``, else ``delta * (d - 0.5 *
    delta)`` (Huber, 1964).

    Args:
        reduction: "mean", "sum", or "none" for the loss of each element.
        delta: Where the square ends and the line begins.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


# -- probabilities ---------------------------------------------------------------------------------


class NLLLoss(_WeightedLoss):
    """Minus the log probability of the right class; see :func:`~modtree.nn.functional.nll_loss`.

    Args:
        weight: What each class counts, (C).
        size_average: Deprecated; see ``reduction``.
        ignore_index: Targets of this number do not count.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean" (over what the targets count), "sum", or "none" for the loss of each
            target.

    Shape:
        - input: log probabilities, (C), (N, C) or (N, C, d1, ...).
        - target: class numbers, (), (N) or (N, d1, ...).
        - output: (), or the target's shape with ``reduction="none"``.
    """

    ignore_index: int

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CrossEntropyLoss(_WeightedLoss):
    """Log softmax and negative log likelihood; see :func:`~modtree.nn.functional.cross_entropy`.

    Args:
        weight: What each class counts, (C).
        size_average: Deprecated; see ``reduction``.
        ignore_index: Class numbers equal to this do not count.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean" (over what the targets count), "sum", or "none" for the loss of each
            target.
        label_smoothing: How much of the target is spread evenly over all classes, 0 to 1 (Szegedy
            et al., 2015).

    Shape:
        - input: logits, (C), (N, C) or (N, C, d1, ...).
        - target: class numbers, (), (N) or (N, d1, ...); or probabilities, of the input's shape.
        - output: (), or the shape of the class numbers with ``reduction="none"``.
    """

    ignore_index: int
    label_smoothing: float

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """``-(target * log(input) + (1 - target) * log(1 - input))`` of probabilities.

    Args:
        weight: Factors of the losses, of a shape that broadcasts to the target's.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """:class:`BCELoss` of ``sigmoid(input)``, computed without overflow.

    Args:
        weight: Factors of the losses, of a shape that broadcasts to the target's.
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.
        pos_weight: Factors of the cost of positive answers, of a shape that broadcasts to the
            target's.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input,
            target,
            self.weight,
            pos_weight=self.pos_weight,
            reduction=self.reduction,
        )


class KLDivLoss(_Loss):
    """The divergence of Kullback and Leibler, ``target * (log(target) - input)``; see
    :func:`~modtree.nn.functional.kl_div`.

    Args:
        size_average: Deprecated; see ``reduction``.
        reduce: Deprecated; see ``reduction``.
        reduction: "batchmean" (the sum over the size of the first axis), "mean", "sum", or "none"
            for the loss of each element.
        log_target: The target is a logarithm too.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class GaussianNLLLoss(_Loss):
    """Minus the log likelihood of the target as a sample of a normal distribution; see
    :func:`~modtree.nn.functional.gaussian_nll_loss`.

    Args:
        full: Add the constant ``0.5 * log(2 pi)``.
        eps: Variances count as at least this.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input (means) and target: any shape, the same for both.
        - var: the input's shape, or without its last axis, or with 1 there; or a number.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    full: bool
    eps: float

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class PoissonNLLLoss(_Loss):
    """Minus the log likelihood of the target as a sample of a Poisson distribution; see
    :func:`~modtree.nn.functional.poisson_nll_loss`.

    Args:
        log_input: The input is the logarithm of the mean.
        full: Add Stirling's approximation of ``log(target!)`` where the target is above 1.
        size_average: Deprecated; see ``reduction``.
        eps: Keeps the logarithm of the input finite.
        reduce: Deprecated; see ``reduction``.
        reduction: "mean", "sum", or "none" for the loss of each element.

    Shape:
        - input and target: any shape, the same for both.
        - output: (), or the input's shape with ``reduction="none"``.
    """

    log_input: bool
    full: bool
    eps: float

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification (Graves et al., 2006): labels whose positions in the
    input are not known; see :func:`~modtree.nn.functional.ctc_loss`.

    Args:
        blank: The class that stands for no label.
        reduction: "mean" (of the losses over the number of labels), "sum", or "none" for the loss
            of each sample.
        zero_infinity: A loss of 0, without gradient, where the labels do not fit into the input.

    Shape:
        - log_probs: (T, N, C) or (T, C).
        - targets: (N, S), or (sum of target_lengths).
        - input_lengths, target_lengths: (N), or () for one sample.
        - output: (), or (N) with ``reduction="none"``.
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
