# SPDX-License-Identifier: BSD-3-Clause
"""A forward that is run to look at a model, after which the model is what it was."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from modtree.core.families import family_of
from modtree.editing.hooking import run_eagerly
from modtree.inspection.forward import Call, Recorder, arguments_text, describe
from modtree.inspection.inputs import first_leaf
from modtree.inspection.tree import Node, first_nodes
from modtree.inspection.unchanged import (
    Modes,
    keeps_buffers,
    keeps_random_states,
    nothing_recorded,
)

#: What a program that looks at a model may try.
ADVICE = (
    "\nIf the model needs other inputs, pass example=..., the inputs themselves (with dtypes=... "
    "the zeros of input_shape can be indices). Without inputs, everything is shown that needs no "
    "forward."
)


class DryRun:
    """Runs a model in evaluation mode and without gradients.

    Args:
        tree: The model.
        args: Its positional arguments.
        kwargs: Its arguments by name.
        runs: After the first run so many are measured.
        on_return: Called after each call of a module in the first run.

    Raises:
        RuntimeError: the forward raised; the message says in which module.
    """

    def __init__(
        self,
        tree: Node,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        runs: int = 0,
        on_return: Callable[[Call, Any, Any], None] | None = None,
    ) -> None:
        self._on_return = on_return
        self._tree = tree
        self._args, self._kwargs = args, kwargs
        self.input = [describe(value) for value in (*args, *kwargs.values())]
        modes = Modes()
        modules = [node.module for node in first_nodes(tree)]
        try:
            with keeps_random_states(), keeps_buffers(modules), nothing_recorded():
                for module in modules:
                    modes.evaluate(module)
                self._calls = self._run(modes) if runs else self._run_for_shapes(modes, modules)
                self._on_return = None  # it takes time
                self._measured = [self._run(modes) for _ in range(runs)]
        finally:
            modes.restore()

    @property
    def is_measured(self) -> bool:
        return bool(self._measured)

    def call(self, module: Any) -> Call | None:
        """What the first run saw of a module; None when it was not called."""
        return self._calls.get(id(module))

    def seconds(self, module: Any) -> float | None:
        """What a module took in the quickest of the measured runs, all of its calls together."""
        calls = [run[id(module)].seconds for run in self._measured if id(module) in run]
        return min(calls, default=None)

    def _run(self, modes: Modes) -> dict[int, Call]:
        on_return = self._on_return
        return call_model(self._tree, self._args, self._kwargs, modes, on_return)[0].calls

    def _run_for_shapes(self, modes: Modes, modules: list[Any]) -> dict[int, Call]:
        """Without values, where the library of the tensors has a way to do that."""
        found: list[dict[int, Call]] = []

        def call(*args: Any, **kwargs: Any) -> None:
            found.append(call_model(self._tree, args, kwargs, modes, self._on_return)[0].calls)

        family = self._family()
        if family is None or not family.call_for_shapes(modules, call, self._args, self._kwargs):
            return self._run(modes)
        return found[-1]

    def _family(self) -> Any:
        """That of the first tensor of the model, or else of the arguments."""
        leaf = first_leaf(self._tree)
        given = (leaf, *self._args, *self._kwargs.values())
        return next((family for family in map(family_of, given) if family is not None), None)


def call_model(
    tree: Node,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    modes: Modes | None,
    on_return: Callable[[Call, Any, Any], None] | None = None,
) -> tuple[Recorder, Any]:
    """Calls the model of a tree, without code of torch.compile and without torch's fused encoder
    layers, which call no module; what was called, and the result.

    Args:
        tree: The model.
        args: Its positional arguments.
        kwargs: Its arguments by name.
        modes: Switches modules to evaluation that the tree does not know, in lists for instance;
            they are found by being called.
        on_return: Called after each call of a module.

    Raises:
        RuntimeError: the forward raised; the message says in which module.
    """
    recorder = Recorder(None if modes is None else modes.evaluate, on_return)
    try:
        with ExitStack() as stack, recorder.attached(), warnings.catch_warnings():
            run_eagerly(stack)
            _run_each_module(stack)
            # The hooks of the recorder are meant to see what torch.compile made, too.
            warnings.filterwarnings("ignore", "Using `torch.compile.* there are global hooks")
            output = tree.module(*args, **kwargs)
    except Exception as error:
        raise RuntimeError(_message(tree, recorder, error, args, kwargs)) from error
    return recorder, output


def _run_each_module(stack: ExitStack) -> None:
    """Switches torch's fused encoder layers off until the stack is left."""
    fused = sys.modules.get("torch.backends.mha")
    if fused is not None and fused.get_fastpath_enabled():
        fused.set_fastpath_enabled(False)
        stack.callback(fused.set_fastpath_enabled, True)


def _message(
    tree: Node,
    recorder: Recorder,
    error: Exception,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:
    where, inputs = "the model", arguments_text(args, kwargs)
    stopped = recorder.where_it_stopped(error)
    if stopped is not None and stopped[0] is not tree.module:
        module, inputs = stopped[0], arguments_text(stopped[1])
        name = type(module).__name__
        path = next((node.path for node in first_nodes(tree) if node.module is module), None)
        where = f"a {name} that is not in the tree" if path is None else f"{path!r} ({name})"
    called = f"the forward stopped in {where}, called with {inputs}"
    return f"{called}: {type(error).__name__}: {error}{ADVICE}"
