# SPDX-License-Identifier: BSD-3-Clause
"""A forward after which a model is what it was: modes, buffers and random numbers, in all libraries
whose tensors a model may hold.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from modtree.core.families import TensorFamily, family_of
from modtree.core.undo import plain_methods
from modtree.editing.walking import is_scripted, registry


def libraries() -> dict[str, Any]:
    """By the name of their family: ``modtree`` and ``torch``, where they have made tensors yet."""
    homes = {"numpy": "modtree.numpy.tensor.tensor", "torch": "torch"}
    return {
        family: sys.modules[home.partition(".")[0]]
        for family, home in homes.items()
        if home in sys.modules
    }


class Modes:
    """Switches modules between training and evaluation, and back.

    The flags are set directly: a ``train`` or ``__setattr__`` of the user's may do more than that.
    """

    def __init__(self) -> None:
        self._changed: list[Any] = []

    def evaluate(self, module: Any) -> None:
        """Switches one module to evaluation, without its children."""
        if getattr(module, "training", False) is True:
            self._changed.append(module)
            _set_training(module, False)

    def restore(self) -> None:
        while self._changed:
            _set_training(self._changed.pop(), True)


def _set_training(module: Any, mode: bool) -> None:
    if is_scripted(module):  # whose flag is not in the Python object
        module.training = mode
    else:
        plain_methods(module).__setattr__(module, "training", mode)


@contextlib.contextmanager
def keeps_buffers(modules: list[Any]) -> Iterator[None]:
    """A context after which the buffers of modules are the same objects with the same values."""
    saved = [_Buffer(module, name) for module in modules for name in registry(module, "_buffers")]
    try:
        yield
    finally:
        for buffer in saved:
            buffer.restore()


class _Buffer:
    """A buffer and a copy of its values, by which it is compared and restored."""

    def __init__(self, module: Any, name: str) -> None:
        self._registry: Any = registry(module, "_buffers")
        self._name = name
        self._tensor = self._registry[name]
        self._family = family_of(self._tensor)
        self._version: int | None = None
        self._copy: Any = None
        self._is_inference = False
        if self._family is not None and self._is_writable(self._family):
            # One of torch.inference_mode, whose changes are not counted.
            self._is_inference = bool(getattr(self._tensor, "is_inference", bool)())
            if not self._is_inference:
                self._version = getattr(self._tensor, "_version", None)
            self._copy = self._family.detach(self._tensor).clone()

    def _is_writable(self, family: TensorFamily) -> bool:
        tensor = self._tensor
        if family.immutable or family.is_uninitialized(tensor) or family.is_meta(tensor):
            return False
        return hasattr(tensor, "clone")

    def restore(self) -> None:
        if self._registry.get(self._name) is not self._tensor:
            self._registry[self._name] = self._tensor
        if self._family is None or self._copy is None or self._is_unwritten(self._family):
            return
        torch: Any = sys.modules.get("torch")
        with torch.inference_mode() if self._is_inference else nothing_recorded():
            if self._tensor.shape != self._copy.shape:  # a native operation gave it another one
                self._family.set_data(self._tensor, self._copy)
            else:
                self._family.copy_into(self._tensor, self._copy)

    def _is_unwritten(self, family: TensorFamily) -> bool:
        if self._version is None or self._tensor._version != self._version:
            return False
        try:  # native operations may write without a new version
            return bool(libraries()[family.name].equal(self._tensor, self._copy))
        except Exception:  # sparse or wrapped tensors, or those of another library
            return True


@contextlib.contextmanager
def nothing_recorded() -> Iterator[None]:
    """A context without gradients, for the tensors of all libraries."""
    with contextlib.ExitStack() as contexts:
        for library in libraries().values():
            contexts.enter_context(library.no_grad())
        yield


@contextlib.contextmanager
def keeps_random_states() -> Iterator[None]:
    """A context after which all generators go on from where they were before."""
    states = [(put, take()) for take, put in _generators()]
    try:
        yield
    finally:
        for put, state in states:
            put(state)


def _generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    yield random.getstate, random.setstate
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        yield numpy_random.get_state, numpy_random.set_state
    for library in libraries().values():
        yield library.get_rng_state, library.set_rng_state
        if library.cuda.is_initialized():
            yield library.cuda.get_rng_state_all, library.cuda.set_rng_state_all
