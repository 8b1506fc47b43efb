# SPDX-License-Identifier: BSD-3-Clause
"""The tensors from which parametrized ones are computed: kept, exchanged, compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from modtree.__future__ import get_swap_module_params_on_conversion
from modtree.nn.utils._library import family_of, is_tensor, no_grad

__all__ = [
    "CHANGES_BACK",
    "check_computed",
    "check_like",
    "exchange",
    "memory_kept_on_error",
    "parameter_as",
    "register",
]


def register(module: Any, name: str, tensor: Any) -> None:
    if family_of(tensor).is_parameter(tensor):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def parameter_as(tensor: Any, like: Any) -> Any:
    """The tensor as a parameter if ``like`` is one, needing gradients where ``like`` does."""
    family = family_of(tensor)
    needed = family_of(like).requires_grad(like)
    if family_of(like).is_parameter(like):
        return family.make_parameter(tensor, needed)
    family.set_requires_grad(tensor, needed)
    return tensor


def exchange(tensor: Any, value: Any) -> None:
    """Gives a tensor the memory of another one; the object stays."""
    family = family_of(tensor)
    of_library = family.get_swap_module_params_on_conversion
    swaps = get_swap_module_params_on_conversion() or (of_library is not None and of_library())
    if swaps or family.must_swap_contents(tensor, value):
        if family.is_parameter(tensor) and not family.is_parameter(value):
            value = family.make_parameter(value, family.requires_grad(tensor))
        family.swap_tensors(tensor, value)
    else:
        tensor.set_(value)


@contextlib.contextmanager
def memory_kept_on_error(tensors: Sequence[Any]) -> Iterator[None]:
    """When the block raises, the tensors have the memory again that they had before it."""
    before = [(tensor, family_of(tensor).detach(tensor)) for tensor in tensors]
    try:
        yield
    except BaseException:
        for tensor, memory in before:
            with no_grad(tensor):
                exchange(tensor, memory)
        raise


def check_like(value: Any, like: Any, words: str, names: tuple[str, str]) -> None:
    """Whether the value has the dtype and the shape of what it replaces.

    Raises:
        ValueError: it has not, in the given words.
    """
    for what in ("dtype", "shape"):
        old, new = getattr(like, what), getattr(value, what)
        if old != new:
            raise ValueError(f"{words.format(what)}\n{names[0]}: {old}\n{names[1]}: {new}")


_CHANGES = (
    "Registering a parametrization may not change the {} of the tensor, unless `unsafe` flag is "
    "enabled."
)
CHANGES_BACK = (
    "What `right_inverse` of the parametrization returns must have the same {} as the tensor, "
    "unless the `unsafe` flag is enabled."
)


def check_computed(value: Any, like: Any) -> None:
    if not is_tensor(value):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    check_like(value, like, _CHANGES, ("unparametrized", "parametrized"))
