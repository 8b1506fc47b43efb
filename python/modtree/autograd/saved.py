# SPDX-License-Identifier: BSD-3-Clause
"""Hooks on what the graph saves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from modtree import _C
from modtree.numpy.tensor.grad_mode import no_grad

__all__ = ["disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class _State(threading.local):
    def __init__(self) -> None:
        self.hooks: list[tuple[Any, Any]] = []
        self.disabled: list[str] = []


_here = _State()


class saved_tensors_hooks:  # noqa: N801
    """Context in which ``pack_hook`` gets each tensor that an operation saves for its derivative;
    what it returns is kept in the tensor's place. ``unpack_hook`` makes the tensor of it again.

    Args:
        pack_hook: Takes a tensor, returns anything. It must not change the tensor.
        unpack_hook: Takes what ``pack_hook`` returned, returns a tensor with the same values.
    """

    def __init__(self, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if _here.disabled:
            raise RuntimeError(_here.disabled[-1])
        _here.hooks.append((self.pack_hook, self.unpack_hook))
        _C.change_saved_hooks(1)

    def __exit__(self, *exception: Any) -> None:
        _here.hooks.pop()
        _C.change_saved_hooks(-1)


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Context in which what operations save is kept in main memory, where all tensors are.

    Args:
        pin_memory: Accepted: there is no accelerator to copy to.
        device_type: Accepted.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: tensor.cpu(), lambda packed: packed)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Context in which entering :class:`saved_tensors_hooks` is an error.

    Args:
        error_message: What the RuntimeError says.

    Raises:
        RuntimeError: Hooks are entered already.
    """
    if _here.hooks:
        raise RuntimeError(error_message)
    _here.disabled.append(error_message)
    try:
        yield
    finally:
        _here.disabled.pop()


class Packed:
    """What the hooks made of one saved tensor."""

    def __init__(self, value: Any, unpack: Any, is_meta: bool) -> None:
        self.value = value
        self.unpack = unpack
        self.is_meta = is_meta

    def tensor(self) -> Any:
        """The tensor that the hook makes of it."""
        found = self.unpack(self.value)
        if not isinstance(found, _C.TensorBase):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                f"type {type(found).__name__}"
            )
        return found.detach()


class _Sequence:
    """Several saved values of one place."""

    def __init__(self, kind: type, parts: list[Any]) -> None:
        self.kind = kind
        self.parts = parts


def pack(tensor: Any) -> Packed:
    """Lets the innermost hooks of this thread keep a tensor."""
    pack_hook, unpack_hook = _here.hooks[-1]
    before = tensor._version
    _C.change_saved_hooks(-1)  # what the hook computes is not packed itself
    hooks, _here.hooks = _here.hooks, []
    try:
        with no_grad():
            value = pack_hook(tensor)
    finally:
        _here.hooks = hooks
        _C.change_saved_hooks(1)
    if tensor._version != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input "
            "to pack hook can not be modified by in-place operations as this can lead to "
            "unexpected side-effects. Please open an issue if you need to perform in-place "
            "operations on the input to a pack hook."
        )
    return Packed(value, unpack_hook, tensor.is_meta)


def packs() -> bool:
    """Whether this thread has hooks."""
    return bool(_here.hooks)


def _pack_value(value: Any, original: Any) -> Any:
    if isinstance(value, np.ndarray):
        if not isinstance(original, _C.TensorBase) or original._array is not value:
            return pack(_C.wrap(value))
        return pack(original.detach())
    if isinstance(value, (tuple, list)):
        originals = original if isinstance(original, (tuple, list)) else ()
        pairs = zip(value, (*originals, *[None] * (len(value) - len(originals))), strict=True)
        return _Sequence(type(value), [_pack_value(v, o) for v, o in pairs])
    return value


def _pack_saved(value: Any, original: Any) -> Any:
    return _pack_value(value, original) if _here.hooks else None


def _unpack_saved(packed: Any) -> Any:
    if isinstance(packed, Packed):
        return packed.tensor()._array
    if isinstance(packed, _Sequence):
        return packed.kind(_unpack_saved(part) for part in packed.parts)
    return packed


_C._install(pack_saved=_pack_saved, unpack_saved=_unpack_saved)
