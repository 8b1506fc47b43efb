# SPDX-License-Identifier: BSD-3-Clause
"""Transformations of jax for functions that take modules (docs: "Modules in jax").

The names are those of jax. Modules may be anywhere among the arguments, in lists, tuples and dicts,
and in results; what a function changes in their parameters and buffers is put back into the very
modules.
"""

from __future__ import annotations

from modtree.jax._jit import Jitted, jit
from modtree.jax._state import State, apply_updates, buffers, parameters, state, update

__all__ = [
    "Jitted",
    "State",
    "apply_updates",
    "buffers",
    "jit",
    "parameters",
    "state",
    "update",
]
