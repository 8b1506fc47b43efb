# SPDX-License-Identifier: BSD-3-Clause
"""What distributions share."""

from __future__ import annotations

import math
from functools import cached_property
from numbers import Number
from typing import Any

from modtree.core.type_names import no_tensor
from modtree.numpy.ops import functions as ops
from modtree.numpy.tensor.dtypes import finfo
from modtree.numpy.tensor.from_data import tensor
from modtree.numpy.tensor.grad_mode import enable_grad
from modtree.numpy.tensor.tensor import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape; numbers get the dtype of the first tensor."""
    for value in values:
        if not isinstance(value, (Tensor, Number)):
            raise ValueError(
                "Input arguments must all be instances of Number or modtree.Tensor, got "
                f"{no_tensor(value)}"
            )
    like = next((v for v in values if isinstance(v, Tensor)), tensor(0.0))
    tensors = (
        v if isinstance(v, Tensor) else tensor(v, dtype=like.dtype, device=like.device)
        for v in values
    )
    return tuple(ops.broadcast_tensors(*tensors))


def sum_rightmost(value: Any, dim: int) -> Any:
    """The sums over the last ``dim`` dimensions."""
    return value.flatten(-dim).sum(-1) if dim else value


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities from their logits: for each number alone, or over the last dimension."""
    return ops.sigmoid(logits) if is_binary else ops.softmax(logits, -1)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Logits from their probabilities: for each number alone, or over the last dimension."""
    eps = finfo(probs.dtype).eps
    limited = probs.clamp(min=eps, max=1 - eps)
    return ops.log(limited) - ops.log1p(-limited) if is_binary else ops.log(limited)


class lazy_property(cached_property):
    """An attribute that is computed when it is first read, with its gradient, and kept."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        with enable_grad():
            return super().__get__(instance, owner)
