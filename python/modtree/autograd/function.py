# SPDX-License-Identifier: BSD-3-Clause
"""Functions whose derivative the user writes."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._C import as_tuple
from modtree.autograd import saved
from modtree.numpy.tensor.creation import zeros
from modtree.numpy.tensor.engine import refuse_second
from modtree.numpy.tensor.grad_mode import no_grad

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """What one call of a :class:`Function` keeps for its backward."""

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize_grads = True
        self._saved: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._outputs: list[int] = []
        self._node: Any = None
        self._versions: list[int] = []

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps tensors (or None) for ``backward``, as ``saved_tensors``."""
        self._saved = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: Any) -> None:
        """Says that ``forward`` changed these inputs in place; it must return them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Says that these outputs need no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """With False, ``backward`` gets None for an output without a gradient; the default is
        zeros.
        """
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, checked for changes in place since."""
        result = []
        for tensor, version in zip(self._saved, self._versions, strict=True):
            if isinstance(tensor, _PackedInput):
                result.append(tensor.restore(self._node()))
                continue
            if isinstance(tensor, _SavedOutput):
                tensor = tensor.restore(self._node())
            if tensor is not None and tensor._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: a saved tensor of shape {list(tensor.shape)} is at "
                    f"version {tensor._version}; expected version {version}"
                )
            result.append(tensor)
        return tuple(result)

    def _settle(self, outputs: list[Any], node: Any) -> None:
        """After forward: an output that was saved is held without its node, which holds this
        object.
        """
        self._node = weakref.ref(node)
        self._versions = [0 if t is None else t._version for t in self._saved]
        indices = {id(t): i for i, t in enumerate(outputs) if isinstance(t, _C.TensorBase)}
        self._saved = tuple(
            _SavedOutput(t, indices[id(t)]) if t is not None and id(t) in indices else t
            for t in self._saved
        )
        if saved.packs():
            self._saved = tuple(
                _PackedInput(t) if isinstance(t, (_C.TensorBase, _SavedOutput)) else t
                for t in self._saved
            )


class _PackedInput:
    """A saved tensor that hooks keep; its place on the graph stays here."""

    def __init__(self, value: Any) -> None:
        self.edge: Any = None
        self.nr = -1
        tensor = value
        if isinstance(value, _SavedOutput):
            tensor, self.nr = value.tensor, value.nr
        elif tensor.requires_grad:
            self.edge = _C.gradient_edge(tensor)
        self.packed = saved.pack(tensor.detach())

    def restore(self, own: Any) -> Any:
        """The tensor; ``own`` is the node of the call."""
        tensor = self.packed.tensor()
        node, nr = self.edge or (own, self.nr)
        if nr < 0 or node is None:
            return tensor
        return _C.with_history(tensor, node, nr)


class _SavedOutput:
    def __init__(self, tensor: Any, nr: int) -> None:
        self.tensor = tensor.detach()
        self.nr = nr

    def restore(self, node: Any) -> Any:
        return self.tensor if node is None else _C.with_history(self.tensor, node, self.nr)


class Function:
    """Base of functions with a derivative of their own.

    A subclass has static methods ``forward(ctx, *args)`` and ``backward(ctx, *grad_outputs)``,
    which returns a gradient (or None) for each argument of ``forward``; ``forward(*args)`` with
    ``setup_context(ctx, inputs, output)`` works too. It is called as ``MyFunction.apply(*args)``.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the result; nothing in it is recorded."""
        raise NotImplementedError("a Function needs a static method forward()")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the arguments from those of the results."""
        raise NotImplementedError("a Function needs a static method backward() to be derived")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Keeps what ``backward`` needs, where ``forward`` takes no ctx.

        Args:
            ctx: What ``backward`` gets as its first argument.
            inputs: The arguments of ``forward``.
            output: Its result.
        """
        raise NotImplementedError

    vjp = backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls ``forward`` and puts the call on the graph."""
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, _C.TensorBase) and a.requires_grad for a in args)
        is_recorded = _C.is_grad_enabled() and any(ctx.needs_input_grad)
        if is_recorded:
            for tensor in itertools.compress(args, ctx.needs_input_grad):
                # A lost one is an error before forward changes anything.
                tensor.grad_fn  # noqa: B018
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
        if not is_recorded:
            ctx._versions = [0 if t is None else t._version for t in ctx._saved]
            if not isinstance(result, (tuple, list)):
                return _unrecorded(result, args, ctx)
            return tuple(_unrecorded(value, args, ctx) for value in result)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        tensors = _outputs_of(ctx, args, outputs)
        indices = [i for i, t in enumerate(tensors) if t is not None]
        node = _C.record_python(
            cls.__name__ + "Backward",
            args,
            tuple(tensors[i] for i in indices),
            functools.partial(
                _run_backward, cls, ctx, len(args), len(outputs), indices, tensors_like(tensors)
            ),
            ctx._dirty,
            bool(ctx._saved),
        )
        saved = [
            t if t is not None else _without_history(o)
            for t, o in zip(tensors, outputs, strict=True)
        ]
        renamed = {id(o): t for o, t in zip(outputs, saved, strict=True)}
        ctx._saved = tuple(renamed.get(id(t), t) for t in ctx._saved)
        ctx._settle([tensors[i] for i in indices], node)
        if not isinstance(result, (tuple, list)):
            return saved[0]
        return tuple(saved)


def _without_history(value: Any) -> Any:
    """A result that gets no gradient: an argument that is returned must not lose its own."""
    return value.detach() if isinstance(value, _C.TensorBase) and value.requires_grad else value


def _unrecorded(value: Any, args: tuple[Any, ...], ctx: FunctionCtx) -> Any:
    """A result of a call that is not on the graph; an argument that is returned gives a view."""
    is_argument = isinstance(value, _C.TensorBase) and any(value is a for a in args)
    if not is_argument or value.requires_grad or any(value is t for t in ctx._dirty):
        return _without_history(value)
    with no_grad():
        return _C.function_view(value, False)


def tensors_like(tensors: list[Any]) -> list[Any]:
    """(shape, dtype, device) of each tensor, for zeros in its place."""
    return [None if t is None else (tuple(t.shape), t.dtype, t.device) for t in tensors]


def _outputs_of(ctx: FunctionCtx, args: tuple[Any, ...], outputs: list[Any]) -> list[Any]:
    """The tensors that get a history: fresh handles of what forward returned; None for what has no
    gradient.
    """
    inputs = {id(a) for a in args}
    dirty = {id(t) for t in ctx._dirty}
    excluded = {id(t) for t in ctx._non_differentiable}
    result: list[Any] = []
    for value in outputs:
        floating = isinstance(value, _C.TensorBase) and (
            value.is_floating_point() or value.is_complex()
        )
        if not floating or id(value) in excluded:
            result.append(None)
        elif id(value) in dirty:
            _C.check_inplace(value, args)
            _C.bump_version(value)
            result.append(value)
        elif id(value) in inputs:
            # A view, so that changes in place of either are noticed.
            result.append(_C.function_view(value, len(outputs) > 1))
        elif not value.is_leaf or value.requires_grad:
            result.append(value.detach())
        else:
            result.append(value)
    return result


def _run_backward(
    cls: type[Function],
    ctx: FunctionCtx,
    n_args: int,
    n_outputs: int,
    indices: list[int],
    like: list[Any],
    *gradients: Any,
) -> tuple[Any, ...]:
    all_gradients: list[Any] = [None] * n_outputs
    for index, gradient in zip(indices, gradients, strict=True):
        if gradient is None and ctx.materialize_grads:
            shape, dtype, device = like[index]
            gradient = zeros(shape, dtype=dtype, device=device)
        all_gradients[index] = gradient
    function = cls.vjp if cls.vjp is not Function.vjp else cls.backward
    result = function(ctx, *all_gradients)
    if not isinstance(result, tuple):
        result = as_tuple(result) if isinstance(result, list) else (result,)
    if len(result) > n_args and all(r is None for r in result[n_args:]):
        result = result[:n_args]
    if len(result) != n_args:
        raise RuntimeError(
            f"function {cls.__name__}Backward returned an incorrect number of gradients "
            f"(expected {n_args}, got {len(result)})"
        )
    return result


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a ``backward`` whose own operations must not be derived: its results refuse a second
    derivative.
    """

    @functools.wraps(function)
    def wrapper(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            result = function(ctx, *gradients)
        if not _C.is_grad_enabled():
            return result
        needed = tuple(g for g in gradients if isinstance(g, _C.TensorBase) and g.requires_grad)
        if not needed:
            return result
        items = result if isinstance(result, tuple) else (result,)
        fresh = tuple(t.detach() if isinstance(t, _C.TensorBase) else t for t in items)
        made = tuple(t for t in fresh if isinstance(t, _C.TensorBase))
        _C.record_python(
            "once_differentiable", needed, made, refuse_second("a once_differentiable backward")
        )
        return fresh if isinstance(result, tuple) else fresh[0]

    return wrapper
