# SPDX-License-Identifier: BSD-3-Clause
"""How messages call the type of a value that should have been a tensor: both modtree and torch call
theirs ``Tensor``.
"""

from __future__ import annotations

from typing import Any


def name_of_type(value: Any) -> str:
    """``"torch.Tensor"``, ``"int"``."""
    cls = type(value)
    name = cls.__qualname__
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


def no_tensor(value: Any) -> str:
    """The same, and what makes a tensor of such a value."""
    name = name_of_type(value)
    home = name.partition(".")[0]
    if home == "torch" and hasattr(value, "detach"):
        return f"{name}; modtree.from_torch(tensor) makes one of torch's"
    if hasattr(value, "__array__"):
        return f"{name}; modtree.tensor(array) makes one of the values"
    return name
