# SPDX-License-Identifier: BSD-3-Clause
"""Dropout of values and of whole channels, and dropout that keeps mean and variance."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol

from modtree.nn.functional._common import named, need_tensor
from modtree.numpy.tensor.creation import empty_like
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]

if TYPE_CHECKING:

    class _Dropout(Protocol):
        def __call__(
            self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> Tensor: ...


def check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _check(name: str, input: Tensor, p: float) -> None:
    check_probability(p)
    need_tensor(name, input)


def _kept(input: Tensor, p: float, channels: bool) -> Tensor:
    """1 where values are kept, 0 with probability ``p``; one draw per channel or per value."""
    shape: Any = tuple(input.shape)
    if channels:
        shape = (*shape[:2], *(1,) * (len(shape) - 2))
    with no_grad():
        mask = input.new_empty(shape)
        return mask.zero_() if p == 1.0 else mask.bernoulli_(1.0 - p)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """While training, sets each value to 0 with probability ``p`` and scales the others by ``1 / (1
    - p)`` (Srivastava et al., 2014).

    Args:
        input: Values of any shape.
        p: The probability.
        training: False returns the input.
        inplace: Write into the input.
    """
    check_probability(p)
    if not training or p == 0.0:
        return input
    need_tensor("dropout", input)
    with no_grad():
        mask = empty_like(input)
        mask = mask.zero_() if p == 1.0 else mask.bernoulli_(1.0 - p).div_(1.0 - p)
    return input.mul_(mask) if inplace else input * mask


def _drop_channels(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if not training or p == 0.0:
        return input
    if input.dim() < 2:
        raise RuntimeError(
            f"Feature dropout requires at least 2 dimensions in the input, got shape "
            f"{list(input.shape)}"
        )
    mask = _kept(input, p, True)
    if p < 1.0:
        mask = mask / (1.0 - p)
    return input.mul_(mask) if inplace else input * mask


def _check_axes(name: str, n: int, input: Tensor) -> None:
    """RuntimeError or a warning, as in torch, for an input of another number of axes."""
    found = input.dim()
    if found in (n + 1, n + 2):
        return
    use = (
        f"{name} exists to provide channel-wise dropout on inputs with {n} spatial "
        f"dimension{'s' if n > 1 else ''}, a channel dimension, and an optional batch dimension "
        f"(i.e. {n + 1}D or {n + 2}D inputs)."
    )
    if n == 1:
        raise RuntimeError(
            f"{name}: Expected 2D or 3D input, but received a {found}D input. Note that {use}"
        )
    warnings.warn(
        f"{name}: Received a {found}-D input to {name}, which is deprecated and will result in an "
        f"error in a future release. To retain the behavior and silence this warning, please use "
        f"dropout instead. Note that {use}",
        stacklevel=3,
    )


_CHANNELS = """While training, sets whole channels of {shape} to 0 with probability ``p`` and
    scales the others by ``1 / (1 - p)``.

    Args:
        input: {shape}; of ``dropout2d`` with a warning where it has three axes, as in torch.
        p: The probability.
        training: False returns the input.
        inplace: Write into the input.
    """


def _make_dropout(n: int, shape: str) -> _Dropout:
    name = f"dropout{n}d"

    def dropout(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        _check(name, input, p)
        _check_axes(name, n, input)
        if n == 2 and input.dim() == 3:
            warnings.warn(
                "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D "
                "dropout behavior is desired - the input is read as (N, C, L). Use dropout1d for "
                "that, or add a batch dimension for (N, C, H, W).",
                stacklevel=2,
            )
        if n == 2 or input.dim() != n + 1:
            return _drop_channels(input, p, training, inplace)
        return _drop_channels(input.unsqueeze(0), p, training, inplace).squeeze(0)

    return named(dropout, name, _CHANNELS.format(shape=shape))


dropout1d = _make_dropout(1, "(N, C, L) or (C, L)")
dropout2d = _make_dropout(2, "(N, C, H, W) or (N, C, L)")
dropout3d = _make_dropout(3, "(N, C, D, H, W) or (C, D, H, W)")


#: What SELU tends to for large negative values: dropped values take it.
_SELU_LIMIT = -1.7580993408473766


def _alpha_dropout(
    input: Tensor, p: float, training: bool, inplace: bool, channels: bool
) -> Tensor:
    if not training or p == 0.0:
        return input
    kept = _kept(input, p, channels)
    if p == 1.0:
        result = input * kept
    else:
        # Scale and shift bring mean and variance back to what they were before.
        scale = ((1.0 - p) * (1.0 + p * _SELU_LIMIT**2)) ** -0.5
        result = input * (kept * scale) + ((1 - kept) * _SELU_LIMIT + p * -_SELU_LIMIT) * scale
    return input.copy_(result) if inplace else result


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for networks of SELU: dropped values take SELU's lower limit, and mean 0 and variance
    1 stay.

    Args:
        input: Values of any shape.
        p: The probability.
        training: False returns the input.
        inplace: Write into the input.
    """
    _check("alpha_dropout", input, p)
    return _alpha_dropout(input, p, training, inplace, False)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """:func:`alpha_dropout` of whole channels; the input is (N, C, ...).

    Args:
        input: (N, C, ...).
        p: The probability.
        training: False returns the input.
        inplace: Write into the input.
    """
    _check("feature_alpha_dropout", input, p)
    return _alpha_dropout(input, p, training, inplace, True)
