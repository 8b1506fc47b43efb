# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of the rows of :mod:`modtree.ops`, one file for each of its files; importing this package enters them into the table."""

from __future__ import annotations

from modtree.derivatives import (
    decompositions,
    indexing,
    linalg,
    native,
    pointwise,
    reduce,
    scattering,
    shape,
    special,
    strided,
)

__all__ = [
    "decompositions",
    "indexing",
    "linalg",
    "native",
    "pointwise",
    "reduce",
    "scattering",
    "shape",
    "special",
    "strided",
]
