# SPDX-License-Identifier: BSD-3-Clause
"""Handles of hooks, and the parts of a module call that only hooks on gradients need."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modtree import _C
from modtree.core.families import family_of
from modtree.core.handles import RemovableHandle

__all__ = [
    "BackwardHook",
    "RemovableHandle",
    "WrappedHook",
    "attach_legacy_backward_hooks",
    "make_backward_tap",
]

#: Under the drop-in, what warns where torch's warnings name its own file.
torch_warning: Callable[[str, str], None] | None = None

_Hook = Callable[..., Any]
_Ref = Callable[[], Any]


class PickledTable(OrderedDict[int, _Hook]):
    """An empty hook table in the state of a module that is pickled: it comes back as an
    ``OrderedDict``.

    The reduction of ``OrderedDict`` itself takes more time than that of the rest of a small module.
    """

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self:  # somebody uses the state itself
            return OrderedDict, *super().__reduce__()[1:]
        return OrderedDict, ()


class WrappedHook:
    """A hook that gets its module as first argument without keeping the module alive.

    It looks like the function it wraps (``__name__``, ``__wrapped__``, attributes). A copy made
    together with the module, by ``copy.deepcopy`` or ``pickle``, belongs to the copied module.

    Args:
        hook: The function to call.
        module: The first argument; without it the hook gets only the arguments of the call.
    """

    def __init__(self, hook: _Hook, module: Any = None) -> None:
        self._set(hook, module is not None, module)

    def _set(self, hook: _Hook, with_module: bool, module: Any) -> None:
        functools.update_wrapper(
            self, hook
        )  # first: an attribute of the hook must not replace ours
        self.hook = hook
        self.with_module = with_module
        if with_module:
            self.module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        return self.hook(self._living_module("call"), *args, **kwargs)

    def _living_module(self, purpose: str) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError(
                f"cannot {purpose} the hook of a dead Module: the module of hook "
                f"'{getattr(self, '__name__', self.hook)}' was deleted"
            )
        return module

    def __getstate__(self) -> dict[str, Any]:
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self._living_module("copy")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(state["hook"], state["with_module"], state.get("module"))


# -- full backward hooks ---------------------------------------------------------------------------


def make_backward_tap(
    module: Any, full_hooks: Sequence[_Hook], pre_hooks: Sequence[_Hook], args: Any
) -> BackwardTap:
    """What carries the gradients of one call of ``module`` to its backward hooks.

    The first tensor among the positional arguments that requires gradients decides which library's
    gradients are meant; the output does when there is none.
    """
    tap = BackwardTap(module, _noted(full_hooks, module), _noted(pre_hooks, module))
    tap.choose(args)
    return tap


def _noted(hooks: Sequence[_Hook], module: Any) -> list[_Hook]:
    return [_C._noted_hook(hook, module) for hook in hooks]


class BackwardTap:
    """Passes the inputs and the output of one call through taps of the family that their tensors
    belong to.

    Values of other families pass through as they are.
    """

    def __init__(
        self, module: Any, full_hooks: Sequence[_Hook], pre_hooks: Sequence[_Hook]
    ) -> None:
        self.module = module
        self.full_hooks = full_hooks
        self.pre_hooks = pre_hooks
        self.tap: Any = None
        self.n_args = 0

    def choose(self, values: Any) -> None:
        """Takes the tap of the first value that requires gradients and whose family has one."""
        for value in values:
            family = family_of(value)
            if family is None or not family.requires_grad(value):
                continue
            self.tap = family.backward_tap(self.module, self.full_hooks, self.pre_hooks)
            if self.tap is not None:
                return

    def setup_input_hook(self, args: Any) -> Any:
        self.n_args = len(args)
        return args if self.tap is None else self.tap.setup_input_hook(args)

    def setup_output_hook(self, output: Any) -> Any:
        if not isinstance(output, tuple) and family_of(output) is None:
            text = (
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(output)}"
            )
            if torch_warning is not None:
                torch_warning("For backward hooks", text)
            else:
                warnings.warn(text, stacklevel=2)
        return self._tap_output(output)

    def _tap_output(self, output: Any) -> Any:
        if self.tap is None:
            self.choose(output if isinstance(output, tuple) else (output,))
            if self.tap is not None:
                # No argument required gradients (forward may have changed that), but hooks get a
                # place for each.
                self.tap.setup_input_hook((None,) * self.n_args)
        return output if self.tap is None else self.tap.setup_output_hook(output)


class BackwardHook(BackwardTap):
    """The full backward hooks of one call of a module, for a ``_call_impl`` written in Python::

        hook = BackwardHook(self, full_hooks, pre_hooks)
        args = hook.setup_input_hook(args)
        result = hook.setup_output_hook(self.forward(*args))

    Args:
        module: The module that is called; the first argument of every hook.
        user_hooks: ``hook(module, grad_input, grad_output)``.
        user_pre_hooks: ``hook(module, grad_output)``.
    """

    __module__ = "modtree.utils.hooks"

    def __init__(
        self, module: Any, user_hooks: Sequence[_Hook], user_pre_hooks: Sequence[_Hook] = ()
    ) -> None:
        super().__init__(module, user_hooks, user_pre_hooks)

    def setup_input_hook(self, args: Any) -> Any:
        """The positional arguments, watched: a tuple that takes their place."""
        self.choose(args)
        return super().setup_input_hook(args)

    def setup_output_hook(self, args: Any) -> Any:
        """The result, watched; what is neither a tensor nor a tuple comes back as it is."""
        return self._tap_output(args)


# -- legacy backward hooks -------------------------------------------------------------------------


def attach_legacy_backward_hooks(
    module: Any, args: Any, output: Any, hooks: Sequence[_Hook]
) -> None:
    """Puts hooks of ``register_backward_hook`` on the graph node that made the first tensor of the
    output.
    """
    tensor = _first_tensor(output)
    if tensor is None:
        warnings.warn(
            f"the non-full backward hooks of '{type(module).__name__}' are not called: no tensor "
            f"was found in its output of type {type(output)}. Use register_full_backward_hook on a "
            f"module that returns a tensor or a tuple of tensors.",
            stacklevel=2,
        )
        return
    family: Any = family_of(tensor)
    if family.immutable:
        family.backward_tap(module, hooks, ())  # without a graph: refused, or without gradients
        return
    node = tensor.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(_C._noted_hook(WrappedHook(hook, module), module))
    module._maybe_warn_non_full_backward_hook(args, output, node)


def _first_tensor(value: Any) -> Any:
    """The first tensor at the front of nested containers; None when there is none."""
    seen = set()
    while family_of(value) is None:
        # A str is its own first element, and a list may hold itself.
        if value is None or isinstance(value, (str, bytes)) or id(value) in seen:
            return None
        seen.add(id(value))
        if isinstance(value, Mapping):
            value = next((v for v in value.values() if family_of(v) is not None), None)
            continue
        try:
            value = value[0]
        except (TypeError, LookupError, AttributeError, ValueError):
            return None
    return value


def warn_non_full_backward_hook(module: Any, inputs: Any, result: Any, grad_fn: Any) -> None:
    """Warns when hooks on ``grad_fn``, which made the result, see other gradients than those of the
    module.
    """
    if not _is_flat(result):
        _warn_legacy(
            "non-full backward hooks on a Module that does not return a single Tensor or a tuple "
            "of Tensors",
            "some of the grad_output",
        )
        return
    if not _is_flat(inputs):
        _warn_legacy(
            "non-full backward hooks on a Module that does not take as input a single Tensor or "
            "a tuple of Tensors",
            "some of the grad_input",
        )
        return
    outputs = result if isinstance(result, tuple) else (result,)
    output_nodes = {t.grad_fn for t in outputs if t.grad_fn is not None}
    if not output_nodes or (len(output_nodes) == 1 and grad_fn not in output_nodes):
        _warn_legacy(
            "a non-full backward hook when outputs are nested in python data structure",
            "some grad_output",
        )
        return
    if len(output_nodes) > 1:
        _warn_legacy(
            "a non-full backward hook when outputs are generated by different autograd Nodes",
            "some grad_output",
        )
        return
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    input_nodes = {t.grad_fn for t in inputs if t.grad_fn is not None}
    if input_nodes != {node for node, _ in grad_fn.next_functions}:
        _warn_legacy(
            "a non-full backward hook when the forward contains multiple autograd Nodes",
            "some grad_input",
        )


def _is_flat(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(family_of(v) is not None for v in value)
    return family_of(value) is not None


def _warn_legacy(what: str, missing: str) -> None:
    # torch's phrases: programs filter warnings by them.
    warnings.warn(
        f"Using {what} is deprecated. This hook will be missing {missing}. "
        "Please use register_full_backward_hook to get the documented behavior.",
        FutureWarning,
        stacklevel=4,
    )


_C._install(
    PickledTable=PickledTable,
    attach_legacy_backward_hooks=attach_legacy_backward_hooks,
    make_backward_tap=make_backward_tap,
)
