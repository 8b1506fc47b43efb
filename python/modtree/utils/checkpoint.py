# SPDX-License-Identifier: BSD-3-Clause
"""Trading time for memory: parts of a model that are computed again in the backward pass instead of
being kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from modtree import _C, _imports
from modtree.autograd import Function, grad
from modtree.numpy.tensor.grad_mode import enable_grad
from modtree.numpy.tensor.random import get_rng_state, set_rng_state

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn"]


class CheckpointError(RuntimeError):
    """The second run of a checkpointed function gave something else than the first."""


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing: for the first run and for the second."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def _taken_apart(value: Any, tensors: list[Any]) -> Callable[[Any], Any]:
    """Collects the tensors of nested tuples, lists and dicts; the result builds the same from an
    iterator of others.
    """
    if isinstance(value, _C.TensorBase):
        tensors.append(value)
        return next
    if isinstance(value, dict):
        built = {key: _taken_apart(item, tensors) for key, item in value.items()}
        return lambda others: {key: build(others) for key, build in built.items()}
    if type(value) in (tuple, list):
        kind, parts = type(value), [_taken_apart(item, tensors) for item in value]
        return lambda others: kind([build(others) for build in parts])
    return lambda _: value


def _fresh_leaves(tensors: list[Any]) -> list[Any]:
    return [t.detach().requires_grad_(t.requires_grad) for t in tensors]


def _leaves_behind(outputs: list[Any]) -> list[Any]:
    """The leaves whose gradients the outputs contribute to."""
    found, seen = [], set()
    waiting = [t.grad_fn for t in outputs if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if not node.next_functions and getattr(node, "variable", None) is not None:
            found.append(node.variable)
        waiting += [following for following, _ in node.next_functions if following is not None]
    return found


class _Run:
    """One call of a checkpointed function, which can be repeated."""

    def __init__(self, function: Any, build: Any, contexts: Any, keep_random: bool) -> None:
        self.function, self.build = function, build
        self.first, self.second = contexts
        self.random_state = get_rng_state() if keep_random else None
        self.shapes: list[Any] = []

    def outputs(self, tensors: Any) -> tuple[list[Any], Any]:
        args, kwargs = self.build(iter(tensors))
        result: list[Any] = []
        return result, _taken_apart(self.function(*args, **kwargs), result)

    def again(self, tensors: Any) -> list[Any]:
        now = get_rng_state()
        if self.random_state is not None:
            set_rng_state(self.random_state)
        try:
            with enable_grad(), self.second:
                outputs, _ = self.outputs(tensors)
        finally:
            set_rng_state(now)
        shapes = [(tuple(t.shape), t.dtype) for t in outputs]
        if shapes != self.shapes:
            raise CheckpointError(
                f"the checkpointed function gave {self.shapes} first and {shapes} when it ran "
                "again; it has to do the same each time it is called"
            )
        return outputs


class _Checkpoint(Function):
    """The whole run as one node: its inputs are the tensors of the arguments and the leaves that
    the function uses.
    """

    @staticmethod
    def forward(ctx: Any, run: _Run, count: int, outputs: list[Any], *tensors: Any) -> Any:
        ctx.run, ctx.count = run, count
        ctx.save_for_backward(*tensors)
        return tuple(t.detach() for t in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        tensors = ctx.saved_tensors
        again = _C.is_grad_enabled()  # then the gradients are to be derived themselves
        arguments = list(tensors[: ctx.count])
        arguments = [t.view_as(t) for t in arguments] if again else _fresh_leaves(arguments)
        outputs = ctx.run.again(arguments)
        wanted = [*arguments, *tensors[ctx.count :]]
        needed = [i for i, t in enumerate(wanted) if t.requires_grad]
        roots = [i for i, t in enumerate(outputs) if t.requires_grad]
        found = grad(
            [outputs[i] for i in roots],
            [wanted[i] for i in needed],
            [gradients[i] for i in roots],
            retain_graph=True,  # tensors from outside bring their own graph along
            create_graph=again,
            allow_unused=True,
        )
        by_place = dict(zip(needed, found, strict=True))
        return (None, None, None, *[by_place.get(i) for i in range(len(wanted))])


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate results are not kept but computed again in
    the backward pass.

    The function has to do the same when it is called again. Parameters that it uses get their
    gradients too. There is one implementation, which has no restrictions of torch's reentrant one:
    ``use_reentrant``, ``determinism_check`` and ``debug`` change nothing.

    Args:
        function: Anything that takes and gives tensors, or tuples, lists and dicts of them.
        args: Its arguments.
        context_fn: Gives two context managers, one for each run.
        preserve_rng_state: The second run draws the random numbers of the first.
        kwargs: Keyword arguments of the function.

    Raises:
        CheckpointError: In the backward pass, when the results have other shapes or dtypes the
            second time.
    """
    if not _C.is_grad_enabled():
        return function(*args, **kwargs)
    tensors: list[Any] = []
    run = _Run(function, _taken_apart((args, kwargs), tensors), context_fn(), preserve_rng_state)
    inside = _fresh_leaves(tensors)
    with run.first:
        outputs, build = run.outputs(inside)
    run.shapes = [(tuple(t.shape), t.dtype) for t in outputs]
    own = {id(t) for t in inside}
    used = [t for t in _leaves_behind(outputs) if id(t) not in own]
    del inside
    return build(iter(_Checkpoint.apply(run, len(tensors), outputs, *tensors, *used)))


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """A chain of modules (a Sequential or a list), cut into ``segments`` of which all but the last
    are checkpointed.

    Args:
        functions: The chain.
        segments: Number of parts.
        input: What the first module gets.
        use_reentrant: Changes nothing; see :func:`checkpoint`.
        kwargs: For :func:`checkpoint`.
    """
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(chain) // segments

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for step in chain[start:end]:
                value = step(value)
            return value

        return run

    for i in range(segments - 1):
        input = checkpoint(
            part(i * size, (i + 1) * size), input, use_reentrant=use_reentrant, **kwargs
        )
    return part((segments - 1) * size, len(chain))(input)


_imports.answer_for_missing(__name__)
