# SPDX-License-Identifier: BSD-3-Clause
"""A forward that is run to look at a model, after which the model is what it was."""

from __future__ import annotations

from typing import Any

from modtree._inspection.forward import Call, Recorder, arguments_text, describe
from modtree._inspection.inputs import every_node
from modtree._inspection.tree import Node
from modtree._inspection.unchanged import (
    Modes,
    keeps_buffers,
    keeps_random_states,
    nothing_recorded,
)

__all__ = ["DryRun"]


class DryRun:
    """Runs a model in evaluation mode and without gradients.

    Args:
        tree: The model.
        args: Its positional arguments.
        kwargs: Its arguments by name.
        runs: After the first run so many are measured.

    Raises:
        RuntimeError: the forward raised; the message says in which module.
    """

    def __init__(
        self, tree: Node, args: tuple[Any, ...], kwargs: dict[str, Any], runs: int = 0
    ) -> None:
        self._tree = tree
        self._args, self._kwargs = args, kwargs
        self.input = [describe(value) for value in (*args, *kwargs.values())]
        nodes = [node for node in every_node(tree) if node.first_path is None]
        modes = Modes()
        modules = [node.module for node in nodes]
        try:
            with keeps_random_states(), keeps_buffers(modules), nothing_recorded():
                for module in modules:
                    modes.evaluate(module)
                self._calls = self._run(modes).calls
                self._measured = [self._run(modes).calls for _ in range(runs)]
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

    def _run(self, modes: Modes) -> Recorder:
        # Modules that the tree does not know, in lists for instance, are found by being called.
        recorder = Recorder(on_call=modes.evaluate)
        try:
            with recorder.attached():
                self._tree.module(*self._args, **self._kwargs)
        except Exception as error:
            raise RuntimeError(self._message(recorder, error)) from error
        return recorder

    def _message(self, recorder: Recorder, error: Exception) -> str:
        stopped = recorder.where_it_stopped()
        where, inputs = "the model", arguments_text(self._args, self._kwargs)
        if stopped is not None:
            module, args = stopped
            paths = {id(n.module): n.path for n in reversed(list(every_node(self._tree)))}
            path = paths.get(id(module))
            name = type(module).__name__
            where = name if not path else f"{path!r} ({name})"
            if path is None:
                where = f"a {name} that is not in the tree of the model"
            elif path:
                inputs = arguments_text(args)
        return (
            f"the forward stopped in {where}, called with {inputs}: {type(error).__name__}: "
            f"{error}\nPass example=... where the model wants other inputs than zeros of "
            f"input_shape (dtypes=... makes indices); without either the tree is shown without "
            f"output shapes"
        )
