# SPDX-License-Identifier: BSD-3-Clause
"""The operations as free functions: ``modtree.exp(t)``, ``modtree.cat([t, u])``, ..."""

from __future__ import annotations

from typing import Any

from modtree import linalg as _linear_algebra  # noqa: F401  # it fills the table of functions
from modtree.ops import (  # noqa: F401  # they fill the table
    counting,
    decompositions,
    einsum,
    indexing,
    joining,
    linalg,
    pointwise,
    reduce,
    scattering,
    shape,
    sorting,
    special,
    statistics,
)
from modtree.ops.table import functions

globals().update(functions)


def is_floating_point(input: Any) -> bool:
    """Is the dtype a floating one (not complex)?"""
    return input.is_floating_point()


def is_complex(input: Any) -> bool:
    """Is the dtype complex?"""
    return input.is_complex()


def numel(input: Any) -> int:
    """Number of elements."""
    return input.numel()


def clone(input: Any) -> Any:
    """A copy with memory of its own."""
    return input.clone()


def detach(input: Any) -> Any:
    """A new handle of the same memory that needs no gradient."""
    return input.detach()


__all__ = ["clone", "detach", "is_complex", "is_floating_point", "numel", *functions]
