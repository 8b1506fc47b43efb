# SPDX-License-Identifier: BSD-3-Clause
"""Transformations of jax for functions that take modules (docs: "Modules in jax").

The names are those of jax. Modules may be anywhere among the arguments, in lists, tuples and dicts,
and in results; what a function changes in their parameters and buffers is put back into the very
modules.
"""

from __future__ import annotations

from modtree.jax._grad import grad, value_and_grad
from modtree.jax._jit import Jitted, jit
from modtree.jax._lifted import eval_shape, functional_call, remat, scan, vmap
from modtree.jax._optimizer import Optimizer
from modtree.jax._pytree import register_module_class, register_module_classes
from modtree.jax._sharding import load_sharded, save_sharded, shard
from modtree.jax._state import State, apply_updates, buffers, parameters, state, update
from modtree.jax_arrays.functions.keys import hold_key, keys

__all__ = [
    "Jitted",
    "Optimizer",
    "State",
    "apply_updates",
    "buffers",
    "eval_shape",
    "functional_call",
    "grad",
    "hold_key",
    "jit",
    "keys",
    "load_sharded",
    "parameters",
    "register_module_class",
    "remat",
    "save_sharded",
    "scan",
    "shard",
    "state",
    "update",
    "value_and_grad",
    "vmap",
]

register_module_classes()


def __dir__() -> list[str]:
    return __all__
