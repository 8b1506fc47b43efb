# SPDX-License-Identifier: BSD-3-Clause
"""Where random functions on jax arrays get their keys from.

In this order: the argument ``key``, the block :func:`keys`, the key that a module holds
(:func:`hold_key`), and outside of traced functions modtree's own generator.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from modtree.core.running import modules_of_call, path_of_call

#: The name of the buffer in which a module holds its key.
KEY_NAME = "random_key"


class _Active(threading.local):
    key: Any = None
    count = 0


_active = _Active()


@contextlib.contextmanager
def keys(key: Any) -> Iterator[None]:
    """Within the block, dropout and other random functions on jax arrays draw from this key.

    The n-th draw uses ``jax.random.fold_in(key, n)``, so that the same key gives the same numbers,
    and a key that is an argument of a jitted function gives new ones at each call.

    Args:
        key: A key of ``jax.random``, or an int.
    """
    before = _active.key, _active.count
    _active.key, _active.count = _as_key(key), 0
    try:
        yield
    finally:
        _active.key, _active.count = before


def hold_key(module: Any, key: Any) -> Any:
    """Gives a module a key of its own, the buffer ``random_key``, and returns the module.

    While the module or one below it runs, random functions split the key and put the rest back, so
    that each call draws other numbers; ``state_dict`` has the key, so that training goes on with
    the same ones.

    Args:
        module: The module, often a whole model.
        key: A key of ``jax.random``, or an int.
    """
    key = _as_key(key)
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    module.register_buffer(KEY_NAME, key)
    return module


def _as_key(key: Any) -> Any:
    return jax.random.PRNGKey(key) if isinstance(key, int) else key


def key_for(name: str, input: Any, key: Any = None) -> Any:
    """The key that a random function is to use.

    Args:
        name: The function, for messages.
        input: The array that it works on.
        key: What its caller gave.

    Raises:
        RuntimeError: The function is being traced, and there is no key: the same numbers would be
            drawn at each call.
    """
    if key is not None:
        return _as_key(key)
    if _active.key is not None:
        _active.count += 1
        return jax.random.fold_in(_active.key, _active.count)
    frame = sys._getframe(1)
    for module in modules_of_call(frame):
        held = module._buffers.get(KEY_NAME)
        if held is not None:
            rest, drawn = jax.random.split(held)
            setattr(module, KEY_NAME, rest)
            return drawn
    if isinstance(input, jax.core.Tracer):
        raise RuntimeError(
            f"{path_of_call(frame)}{name}(): a traced function needs a key, since it would draw "
            f"the same numbers at each call otherwise: use `with keys(key):` around the call of "
            f"the model, or hold_key(model, key), of modtree.jax_arrays.functions"
        )
    generator = importlib.import_module("modtree.random").default_generator
    return jax.random.PRNGKey(int(generator.numpy.integers(2**31)))
