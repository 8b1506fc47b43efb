# SPDX-License-Identifier: BSD-3-Clause
"""A softmax over very many classes, most of which are rare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from modtree._ops.functions import cat, where
from modtree._tensor.tensor import Tensor
from modtree.core.containers import ModuleList, Sequential
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.linear import Linear

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):  # torch's name
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities and loss of very many classes that are sorted by frequency (Grave et al.,
    2017): frequent ones have a place in the head, rare ones share one for each cluster, and are
    told apart by a projection that is smaller the rarer they are.

    Args:
        in_features: Size of an input.
        n_classes: Number of classes.
        cutoffs: Where each cluster begins, in increasing order; classes below the first are in the
            head.
        div_value: Each cluster's projection is smaller by this factor.
        head_bias: Add a bias in the head.
        device: Where parameters are made.
        dtype: Their dtype.

    Shape:
        - input: (N, in_features) or (in_features).
        - target: (N) or ().
        - output: ``output`` (N) or (), the log probability of each target; ``loss`` ().

    Raises:
        ValueError: the cutoffs are not increasing numbers from 1 to ``n_classes - 1``.
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool
    head: Linear
    tail: ModuleList

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        increasing = all(a < b for a, b in zip([0, *cutoffs], [*cutoffs, n_classes], strict=True))
        if not increasing or any(int(c) != c for c in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                f"order, where each value is between 1 and n_classes-1, got {cutoffs}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, device=device, dtype=dtype),
                    Linear(hidden, classes, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draws all weights again."""
        self.head.reset_parameters()
        for projection in self.tail:
            for layer in projection.children():
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        _check(input_, target_)
        single = target_.dim() == 0
        input = input_.unsqueeze(0) if single else input_
        target = target_.unsqueeze(0) if single else target_
        if target.numel() and not bool(((target >= 0) & (target < self.n_classes)).all()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        place = target
        output = input.new_zeros(target.shape[0])
        for i, projection in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            inside = (target >= low) & (target < high)
            rows = inside.nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            place = where(inside, self.shortlist_size + i, place)
            logs = F.log_softmax(projection(input.index_select(0, rows)), dim=1)
            chosen = logs.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
            output = output.index_copy(0, rows, chosen)
        output = output + head.gather(1, place.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes, (N, n_classes), for inputs (N, in_features)."""
        return self._all_logs(input, self.head(input))

    def _all_logs(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, projection in enumerate(self.tail):
            own = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(F.log_softmax(projection(input), dim=1) + own)
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class with the highest probability for each input; ``log_prob(input).argmax(1)`` with
        less work where the head says that it is a frequent one.
        """
        head_output = self.head(input)
        output = head_output.argmax(1)
        rare = output >= self.shortlist_size
        if not bool(rare.any()):
            return output
        rows = rare.nonzero().squeeze(1)
        logs = self._all_logs(input.index_select(0, rows), head_output.index_select(0, rows))
        return output.index_copy(0, rows, logs.argmax(1))


def _check(input: Tensor, target: Tensor) -> None:
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.dim() == 1 and input.shape[0] != target.shape[0]:
        raise RuntimeError(
            "Input and target should have the same size in the batch dimension, got "
            f"{list(input.shape)} and {list(target.shape)}"
        )
    if input.dim() != target.dim() + 1:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found "
            f"inputs with size {list(input.shape)}"
        )
