# SPDX-License-Identifier: BSD-3-Clause
"""The graph: its nodes, where the gradient of a tensor goes, and hooks on what it saves and on
several gradients at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from modtree import _C, _imports
from modtree._C import Node
from modtree.autograd.saved import (
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """An output of a node: where a gradient goes."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Where the gradient of a tensor goes: its node, or the one that adds to its ``grad``."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(*_C.gradient_edge(tensor))


def increment_version(tensor: Any) -> None:
    """Counts a change in place that the library cannot see, made through an array for instance."""
    for one in (tensor,) if isinstance(tensor, _C.TensorBase) else tensor:
        _C.bump_version(one)


def allow_mutation_on_saved_tensors() -> Any:
    """Refused: the graph keeps arrays, not clones of what was changed since.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        "allow_mutation_on_saved_tensors() is not there: change a clone() of the tensor in place "
        "of the tensor that an operation has saved"
    )


class MultiGradHandle:
    """What :func:`register_multi_grad_hook` returns."""

    def __init__(self, handles: tuple[Any, ...]) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Takes the hook off all tensors."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> MultiGradHandle:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all"
) -> MultiGradHandle:
    """Calls a hook when the gradients of several tensors are there.

    Args:
        tensors: Tensors that require grad.
        fn: With ``mode="all"`` called once in a backward pass, with a sequence of all gradients:
            None for tensors that the pass does not reach. With ``"any"`` with the first gradient.
        mode: "all" or "any".

    Returns:
        A handle whose ``remove()`` takes the hook away.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    hook = _AllHook(tensors, fn) if mode == "all" else _AnyHook(tensors, fn)
    return MultiGradHandle(tuple(hook.register(i, t) for i, t in enumerate(tensors)))


def _forget_ended(passes: dict[int, Any]) -> None:
    """Drops the passes that no longer run. Several may: in threads, inside of each other."""
    for number in list(passes):
        if not _C.is_backward_running(number):
            passes.pop(number, None)


class _AllHook:
    """Gathers the gradients of each backward pass until none is to come."""

    def __init__(self, tensors: Sequence[Any], fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.nodes = [get_gradient_edge(t).node for t in tensors]
        self.passes: dict[int, tuple[int, list[Any], list[int]]] = {}
        # Held while objects are made: a finalizer that runs then may run a pass of its own.
        self.lock = threading.RLock()

    def register(self, place: int, tensor: Any) -> Any:
        """Puts the hook on one of the tensors."""
        return tensor.register_hook(lambda gradient: self.take(place, gradient))

    def take(self, place: int, gradient: Any) -> None:
        """A gradient has arrived."""
        number = _C.current_backward_id()
        with self.lock:
            if number not in self.passes:
                _forget_ended(self.passes)
                expected = sum(map(_C.current_backward_runs, self.nodes))
                self.passes[number] = expected, [None] * len(self.nodes), []
            expected, gradients, taken = self.passes[number]
            gradients[place] = gradient
            taken.append(place)
            if len(taken) < expected:
                return
            del self.passes[number]
        self.fn(gradients)


class _AnyHook:
    """Takes the first gradient of each backward pass."""

    def __init__(self, tensors: Sequence[Any], fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.passes: dict[int, None] = {}
        self.lock = threading.RLock()  # as above

    def register(self, place: int, tensor: Any) -> Any:
        """Puts the hook on one of the tensors."""
        return tensor.register_hook(self.take)

    def take(self, gradient: Any) -> None:
        """A gradient has arrived."""
        number = _C.current_backward_id()
        with self.lock:
            if number in self.passes:
                return
            _forget_ended(self.passes)
            self.passes[number] = None
        self.fn(gradient)


_imports.answer_for_missing(__name__)
