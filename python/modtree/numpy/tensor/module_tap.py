# SPDX-License-Identifier: BSD-3-Clause
"""Where backward hooks of a module look at gradients: an identity over its inputs and one over its
output.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from modtree import _C
from modtree.numpy.tensor.creation import zeros

# What programs find in ``grad_fn.name()`` where hooks are at work.
_NODE_NAME = "BackwardHookFunctionBackward"


class _Group(NamedTuple):
    """The tensors among the values that went in, or came out, together."""

    indices: tuple[int, ...]
    count: int  # type: ignore[assignment]  # tuple's method of this name is not wanted
    #: (shape, dtype, device) of each tensor: of what stands for a gradient that did not arrive.
    like: tuple[tuple[Any, ...], ...]

    def spread(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """One entry per value, None where the value is no tensor."""
        spread: list[Any] = [None] * self.count
        for index, gradient in zip(self.indices, gradients, strict=True):
            spread[index] = gradient
        return tuple(spread)

    def collect(self, gradients: Any) -> tuple[Any, ...]:
        """The entries of the tensors alone."""
        return tuple(gradients[index] for index in self.indices)

    def filled(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """With zeros in place of None."""
        return tuple(
            zeros(shape, dtype=dtype, device=device) if gradient is None else gradient
            for gradient, (shape, dtype, device) in zip(gradients, self.like, strict=True)
        )


class ModuleTap:
    """Reports the gradients of one call of a module to its hooks, which may replace them.

    Used once per call: :meth:`setup_input_hook` before ``forward``, :meth:`setup_output_hook` after
    it. Backward meets the output first: its gradients go through the pre-hooks and are kept until
    the gradients of the inputs are there, for the full hooks get both.

    Args:
        module: The first argument of every hook.
        hooks: Full hooks, ``hook(module, grad_input, grad_output)``.
        pre_hooks: ``hook(module, grad_output)``.
    """

    def __init__(
        self,
        module: Any,
        hooks: Sequence[Callable[..., Any]],
        pre_hooks: Sequence[Callable[..., Any]],
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.n_args = 0
        self.taps_inputs = False
        self.grad_output: Any = None

    def setup_input_hook(self, args: Any) -> Any:
        """The arguments with their tensors behind an identity, if one of them needs a gradient."""
        self.n_args = len(args)
        tapped = _tap(args, self._leave_module)
        self.taps_inputs = tapped is not None
        return args if tapped is None else _rebuilt(args, tapped)

    def setup_output_hook(self, output: Any) -> Any:
        """The output (a tensor or a tuple; other values have no tensors) with its tensors behind an
        identity.
        """
        values = output if isinstance(output, tuple) else (output,)
        tapped = _tap(values, self._enter_module)
        if tapped is None:
            return output
        return _rebuilt(output, tapped) if isinstance(output, tuple) else tapped[0]

    # -- during the backward pass ------------------------------------------------------------------

    def _enter_module(self, group: _Group, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_output = group.spread(gradients)
        for hook in self.pre_hooks:
            result = hook(self.module, grad_output)
            if result is not None:
                _check_count(result, group.count, "Backward pre hook", "grad_output")
                grad_output = result
        if self.taps_inputs:
            self.grad_output = grad_output
        else:
            self._run_without_inputs(grad_output)
        return self._checked(group, group.collect(grad_output), "backward pre-hook")

    def _leave_module(self, group: _Group, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_output, self.grad_output = self.grad_output, None
        if grad_output is None:
            # The inputs got a gradient that the output did not: one of a gradient, when the graph
            # is gone through twice.
            return group.filled(gradients)
        grad_input = group.spread(group.filled(gradients))
        for hook in self.hooks:
            result = hook(self.module, grad_input, grad_output)
            if result is not None:
                _check_count(result, group.count, "Backward hook", "grad_input")
                grad_input = result
        return self._checked(group, group.collect(grad_input), "backward hook")

    def _run_without_inputs(self, grad_output: Any) -> None:
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module "
            "outputs since no inputs require gradients: the hooks of "
            f"'{type(self.module).__name__}' get None as the gradient of every input. Let an input "
            "require gradients, or put the hook on a parameter.",
            stacklevel=4,  # whoever called backward()
        )
        for hook in self.hooks:
            result = hook(self.module, (None,) * self.n_args, grad_output)
            if result is not None and not (
                isinstance(result, tuple) and all(g is None for g in result)
            ):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients, but a hook of "
                    f"'{type(self.module).__name__}' returned {_described(result)}"
                )

    def _checked(self, group: _Group, gradients: tuple[Any, ...], kind: str) -> tuple[Any, ...]:
        """The gradients, each of the shape and dtype of its tensor."""
        for gradient, (shape, dtype, _) in zip(gradients, group.like, strict=True):
            if gradient is None:
                continue
            who = f"a {kind} of '{type(self.module).__name__}'"
            if not isinstance(gradient, _C.TensorBase):
                raise TypeError(
                    f"expected Variable, but hook returned '{type(gradient).__name__}': {who} "
                    "returns None or a tuple of Tensors and Nones"
                )
            if tuple(gradient.shape) != shape:
                raise RuntimeError(
                    f"{who} has changed the size of value: a gradient of shape {shape} was "
                    f"replaced by one of shape {tuple(gradient.shape)}"
                )
            if gradient.dtype != dtype:
                raise RuntimeError(
                    f"{who} has changed the type of value (was {dtype} got {gradient.dtype})"
                )
        return gradients


def _tap(values: Any, report: Callable[..., tuple[Any, ...]]) -> list[Any] | None:
    """The values with every tensor as an output of one identity; None when no gradient will come
    through.

    ``report(group, gradients)`` gets the gradients of the tensors (None for those that did not
    arrive) and returns what goes on in their place.
    """
    indices = tuple(i for i, v in enumerate(values) if isinstance(v, _C.TensorBase))
    tensors = tuple(values[i] for i in indices)
    if not (_C.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return None
    group = _Group(
        indices, len(values), tuple((tuple(t.shape), t.dtype, t.device) for t in tensors)
    )
    tapped = tuple(_C.function_view(t, len(tensors) > 1) for t in tensors)
    _C.record_python(
        _NODE_NAME,
        tensors,
        tuple(new if old.requires_grad else None for new, old in zip(tapped, tensors, strict=True)),
        lambda *gradients: report(group, gradients),
    )
    result = list(values)
    for index, tensor in zip(indices, tapped, strict=True):
        result[index] = tensor
    return result


def _rebuilt(like: Any, values: list[Any]) -> Any:
    """A tuple of the values; a named tuple stays one."""
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*values)
    return tuple(values)


def _check_count(result: Any, count: int, who: str, what: str) -> None:
    # A list is as good as a tuple; what has no length raises TypeError itself.
    if len(result) != count:
        raise RuntimeError(
            f"{who} returned an invalid number of {what}, got {len(result)}, but expected {count}"
        )


def _described(result: Any) -> str:
    if not isinstance(result, tuple):
        return f"'{type(result).__name__}'"
    return f"a tuple of {len(result)} in which not all entries are None"
