# SPDX-License-Identifier: BSD-3-Clause
"""Functions on jax arrays by torch's names and with torch's arguments: what ``modtree.nn`` and
``nn.functional`` run on where leaves or inputs are arrays of jax. Each function of a file of this
folder whose name does not begin with an underscore is one of them.

They can be called themselves, and then take ``key`` where numbers are drawn.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType

from modtree.jax_arrays.functions.keys import hold_key, keys

__all__ = ["hold_key", "keys"]

_FILES = (
    "activation",
    "attention",
    "convolution",
    "drawing",
    "dropout",
    "linear",
    "loss",
    "margin_loss",
    "normalization",
    "pointwise",
    "pooling",
    "products",
    "recurrent",
    "reductions",
    "sampling",
    "selection",
    "sequence_loss",
    "shapes",
    "vision",
)


def _functions_of(file: str) -> dict[str, FunctionType]:
    module = import_module(f"{__name__}.{file}")
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


_found = {name: function for file in _FILES for name, function in _functions_of(file).items()}
globals().update(_found)
__all__ += sorted(_found)
