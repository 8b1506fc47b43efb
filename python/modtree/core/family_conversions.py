# SPDX-License-Identifier: BSD-3-Clause
"""Leaves of another library: ``to_family`` converts models, ``default_family`` makes new ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from modtree import _C
from modtree.core.families import family_named, family_of
from modtree.core.family import TensorFamily
from modtree.core.module import (
    Module,
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)


def to_family(model: Any, name: str) -> Any:
    """Converts the parameters and buffers of a model to those of another library, in place, and
    returns the model.

    What was one tensor under several names stays one. ``requires_grad``, dtypes, and what a state
    dict holds stay; gradients go from NumPy to torch and back, and are dropped for jax. Memory is
    shared where DLPack allows it: between torch and NumPy, and between torch and jax. jax copies
    arrays of NumPy that do not begin at a multiple of 64 bytes. NumPy gets a copy of jax's, which
    may not be written to. Without ``jax_enable_x64``, integers of 64 bits become those of 32.

    If a tensor cannot be converted, nothing is changed. Optimizers hold the parameters of before:
    make them anew.

    Args:
        model: A module of modtree.
        name: "numpy", "torch", "jax", or the name of a registered family.

    Raises:
        ValueError: The family is not known, or a tensor does not have a shape yet.
        TypeError: The family does not have a tensor's dtype. The message names its path.
    """
    if not isinstance(model, _C.ModuleBase):
        raise TypeError(
            f"to_family() takes a module of modtree, got {type(model).__module__}."
            f"{type(model).__qualname__}"
        )
    convert_all([model], family_named(name))
    return model


def convert_all(models: Iterable[Any], target: TensorFamily) -> None:
    """Converts the leaves of modules and of those below them, all or none."""
    seen: set[Any] = set()
    made: dict[int, tuple[Any, Any]] = {}  # address -> (the tensor, what it becomes)
    stores: list[tuple[dict[str, Any], str, Any]] = []
    for model in models:
        for path, module in model.named_modules(memo=seen):
            for registry, is_parameter in ((module._parameters, True), (module._buffers, False)):
                for name, tensor in registry.items():
                    family = family_of(tensor)
                    if family is None or family is target:
                        continue
                    if id(tensor) not in made:
                        place = f"{path}.{name}" if path else name
                        new = converted_leaf(tensor, family, target, is_parameter, place)
                        made[id(tensor)] = tensor, new
                    stores.append((registry, name, made[id(tensor)][1]))
    for registry, name, new in stores:
        registry[name] = new


def converted_leaf(
    tensor: Any, family: TensorFamily, target: TensorFamily, is_parameter: bool, place: str
) -> Any:
    """A tensor of the target with the values and marks of one of another family.

    Args:
        tensor: The tensor.
        family: Its family.
        target: The family of the result.
        is_parameter: Make a parameter.
        place: What to call it in errors.
    """
    if family.is_uninitialized(tensor):
        raise ValueError(f"{place}: it does not have a shape yet; call the model once first")
    try:
        new = _values(tensor, family, target)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"{place}: {family.name}'s {family.dtype_name(tensor)} cannot become a tensor of "
            f"{target.name}: {error}"
        ) from error
    if is_parameter:
        new = target.make_parameter(new, family.requires_grad(tensor))
        grad = None if target.immutable else family.grad(tensor)
        if grad is not None:
            target.set_grad(new, _values(grad, family, target))
    elif family.is_buffer(tensor):
        new = target.make_buffer(new, bool(getattr(tensor, "persistent", True)))
    return new


def _values(tensor: Any, family: TensorFamily, target: TensorFamily) -> Any:
    """A tensor of the target over the same memory if possible."""
    # What `converted` makes of a parameter is one.
    source = family.detach(tensor)
    new = None if family.is_meta(tensor) else target.from_dlpack(source, family)
    new = target.converted(source) if new is None else new
    if family_of(new) is not target:
        raise TypeError("its family has neither from_dlpack() nor converted() for it")
    return new


# -- new modules -----------------------------------------------------------------------------------


class _Blocks(threading.local):
    """The modules that got leaves or children within the innermost block of this thread."""

    modules: dict[int, Any] | None = None


_blocks = _Blocks()


@contextlib.contextmanager
def default_family(name: str) -> Iterator[None]:
    """Modules that are made within the block have leaves of a family when it ends.

    They are made as always, by their constructors and with the numbers of modtree's generator, so
    that a seed gives the same values in all families, and whatever a constructor does to its
    parameters (``nn.init``, ties, copies of layers) counts. At the end of the block all of them are
    converted, as :func:`to_family` does it. After an error they are not.

    Args:
        name: As that of :func:`to_family`.
    """
    target = family_named(name)
    before = _blocks.modules
    modules: dict[int, Any] = {}
    _blocks.modules = modules

    def note(module: Any) -> None:
        # Other threads have blocks of their own.
        if _blocks.modules is modules:
            modules[id(module)] = module

    def note_owner(module: Any, name: str, value: Any) -> None:
        note(module)

    def note_both(module: Any, name: str, child: Any) -> None:
        note(module)
        if isinstance(child, Module):
            note(child)

    with contextlib.ExitStack() as hooks:
        hooks.enter_context(register_module_parameter_registration_hook(note_owner))
        hooks.enter_context(register_module_buffer_registration_hook(note_owner))
        hooks.enter_context(register_module_module_registration_hook(note_both))
        try:
            yield
        finally:
            _blocks.modules = before
    convert_all(modules.values(), target)
