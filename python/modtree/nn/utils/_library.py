# SPDX-License-Identifier: BSD-3-Clause
"""What helpers around modules need of the library that a tensor is of."""

from __future__ import annotations

import contextlib
from typing import Any

from modtree.core import families

__all__ = ["family_of", "hooks_named", "is_tensor", "library_of", "no_grad", "unit_vector"]


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of a library that modules may hold."""
    return families.family_of(value) is not None


def family_of(tensor: Any) -> Any:
    """The family of a tensor.

    Raises:
        TypeError: it is none.
    """
    family = families.family_of(tensor)
    if family is None:
        raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    return family


def library_of(tensor: Any) -> Any:
    """The package with the functions for a tensor: ``modtree`` or ``torch``."""
    return family_of(tensor).library("this helper of nn.utils")


def no_grad(tensor: Any) -> Any:
    """A context under which the library of the tensor records nothing."""
    return family_of(tensor).no_grad() or contextlib.nullcontext()


def unit_vector(vector: Any, eps: float) -> Any:
    """The vector divided by its length, or by ``eps`` if that is larger."""
    return vector / vector.norm().clamp_min(eps)


def hooks_named(hooks: Any, kind: Any, name: str) -> list[Any]:
    """The keys of the hooks of a class, in a table of a module, that are for a tensor's name."""
    # Load pre-hooks are wrapped.
    own: Any = ((key, getattr(hook, "hook", hook)) for key, hook in hooks.items())
    return [key for key, hook in own if is_hook_of(hook, kind, name)]


def is_hook_of(hook: Any, kind: Any, name: str) -> bool:
    """Whether it is a hook of a class, or of one of several, for a tensor's name."""
    return isinstance(hook, kind) and hook.name == name
