# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers: generators, seeds and their states."""

from __future__ import annotations

from modtree import _imports
from modtree.numpy.tensor.random import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

_imports.answer_for_missing(__name__)
