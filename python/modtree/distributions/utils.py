# SPDX-License-Identifier: BSD-3-Clause
"""What distributions share: parameters brought to one shape, probabilities and logits as forms of
each other, attributes that are computed when they are first read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Number
from typing import Any

from modtree._ops import functions as ops
from modtree._tensor.dtypes import finfo, get_default_dtype
from modtree._tensor.from_data import tensor
from modtree._tensor.grad_mode import enable_grad
from modtree._tensor.tensor import Tensor
from modtree._type_names import no_tensor

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "sum_rightmost",
]

EULER_GAMMA = 0.57721566490153286060
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape; numbers get the dtype of the first tensor.

    Raises:
        ValueError: Something is neither a number nor a tensor.
    """
    for value in values:
        if not isinstance(value, (Tensor, Number)):
            raise ValueError(
                "Input arguments must all be instances of Number or modtree.Tensor, got "
                f"{no_tensor(value)}"
            )
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = get_default_dtype() if like is None else like.dtype
    device = None if like is None else like.device
    tensors = [
        v if isinstance(v, Tensor) else tensor(v, dtype=dtype, device=device) for v in values
    ]
    return tuple(ops.broadcast_tensors(*tensors))


def are_numbers(*values: Any) -> bool:
    """Is there no tensor among them? Then a distribution has no batch dimensions."""
    return all(isinstance(v, Number) for v in values)


def sum_rightmost(value: Any, dim: int) -> Any:
    """The sums over the last ``dim`` dimensions."""
    if not dim:
        return value
    return value.reshape(tuple(value.shape[: value.ndim - dim]) + (-1,)).sum(-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities without those whose logarithm, or that of their complement, is infinite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities from their logits: for each number alone, or over the last dimension."""
    return ops.sigmoid(logits) if is_binary else ops.softmax(logits, -1)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Logits from their probabilities: for each number alone, or over the last dimension."""
    limited = clamp_probs(probs)
    if is_binary:
        return ops.log(limited) - ops.log1p(-limited)
    return ops.log(limited)


class lazy_property:
    """An attribute that is computed when it is first read, and kept in the instance.

    It is computed with gradients enabled: who reads it first may have disabled them.
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value


def check_one_of(probs: Any, logits: Any) -> None:
    """ValueError unless one of two forms of a parameter is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class BinaryParameter:
    """For distributions of events that happen or do not: ``probs``, or ``logits`` instead.

    The one that was given is in ``_param`` too; the other follows from it.
    """

    def _take(self, probs: Any, logits: Any, *others: Any) -> tuple[Any, ...]:
        """Keeps the given one, with others broadcast to one shape, which are returned with it."""
        check_one_of(probs, logits)
        given = logits if probs is None else probs
        if not isinstance(given, (Tensor, Number)):
            raise TypeError(
                f"{'logits' if probs is None else 'probs'} must be a Tensor or a number, got "
                f"{no_tensor(given)}"
            )
        found = broadcast_all(*others, given)
        setattr(self, "logits" if probs is None else "probs", found[-1])
        return found

    @property
    def _param(self) -> Any:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    @lazy_property
    def logits(self) -> Any:
        """The logits of the probabilities."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)
