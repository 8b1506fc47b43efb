# SPDX-License-Identifier: BSD-3-Clause
"""The operations as free functions: ``modtree.exp(t)``, ``modtree.cat([t, u])``, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modtree.numpy.ops.out import FUNCTIONS, taking_out
from modtree.numpy.ops.overridable import overridable_all
from modtree.numpy.ops.registry import functions

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor, memory_format

globals().update(
    {
        name: taking_out(value, FUNCTIONS[name]) if name in FUNCTIONS else value
        for name, value in functions.items()
    }
)


def is_floating_point(input: Tensor) -> bool:
    """True if the dtype is a floating one (not complex)."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """True if the dtype is complex."""
    return input.is_complex()


def is_signed(input: Tensor) -> bool:
    """True if the dtype can hold negative numbers."""
    return input.is_signed()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """True if both have the same shape."""
    return input.is_same_size(other)


def real(input: Tensor) -> Tensor:
    """The real parts of complex numbers, as a view; real tensors themselves."""
    return input.real


def imag(input: Tensor) -> Tensor:
    """The imaginary parts of complex numbers, as a view."""
    return input.imag


def get_device(input: Tensor) -> int:
    """The number of the accelerator that holds the values: -1."""
    return input.get_device()


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()


def clone(input: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """A copy with memory of its own."""
    return input.clone() if memory_format is None else input.clone(memory_format=memory_format)


def detach(input: Tensor) -> Tensor:
    """A new handle of the same memory that needs no gradient."""
    return input.detach()


__all__ = [
    "clone",
    "detach",
    "get_device",
    "imag",
    "is_complex",
    "is_floating_point",
    "is_same_size",
    "is_signed",
    "numel",
    "real",
    *functions,
]
overridable_all(globals(), __all__, elsewhere="")
