# SPDX-License-Identifier: BSD-3-Clause
"""jax arrays under the few names of torch that the tests of modules use."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["library"]


def _dtype(values: Any, dtype: Any) -> Any:
    """As torch infers it: float32 for floats, int64 for integers."""
    if dtype is not None:
        return dtype
    found = jnp.asarray(values).dtype
    return jnp.float32 if found == jnp.float64 else found


def tensor(values: Any, dtype: Any = None) -> jax.Array:
    return jnp.array(values, dtype=_dtype(values, dtype))


def _maker(function: Any) -> Any:
    def make(*shape: Any, dtype: Any = None, device: Any = None) -> Any:
        size = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if device == "meta":
            return jax.ShapeDtypeStruct(tuple(size), dtype or jnp.float32)
        return function(tuple(size), dtype=dtype or jnp.float32)

    return make


def arange(*args: Any, dtype: Any = None) -> jax.Array:
    return jnp.arange(*args, dtype=_dtype(args[0], dtype))


library: Any = SimpleNamespace(
    __name__="jax",
    Tensor=jax.Array,
    tensor=tensor,
    arange=arange,
    zeros=_maker(jnp.zeros),
    ones=_maker(jnp.ones),
    empty=_maker(jnp.zeros),
    zeros_like=jnp.zeros_like,
    stack=jnp.stack,
    device=lambda name: jax.devices(name)[0],
    equal=lambda a, b: bool(jnp.array_equal(a, b)),
    no_grad=contextlib.nullcontext,
    is_grad_enabled=lambda: False,
    **{
        name: jnp.dtype(name)
        for name in ("float16", "bfloat16", "float32", "float64", "int32", "int64", "complex64")
    },
)
