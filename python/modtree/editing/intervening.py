# SPDX-License-Identifier: BSD-3-Clause
"""``intervene``: other outputs of modules in the calls of a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from modtree.editing.hooking import attach, cloned, map_tensors, run_eagerly, stand_in
from modtree.editing.selections import selected


class Intervention:
    """Changed outputs of modules, for the time of a ``with`` block."""

    def __init__(self, model: Any, changes: Mapping[Any, Any]) -> None:
        self._hooks = ExitStack()
        self._is_open = False
        self._members: list[tuple[str, Any, Any]] = []
        for what, change in changes.items():
            found = selected(model, what)
            if not len(found) and not found._missing_ok:
                raise LookupError(f"nothing to change:\n{found!r}")
            self._members += [(path, module, change) for path, module in found]

    @property
    def paths(self) -> list[str]:
        """The paths of the modules whose outputs change."""
        return [path for path, _, _ in self._members]

    def __enter__(self) -> Intervention:
        if self._is_open:
            raise RuntimeError("this intervention is open already")
        with ExitStack() as stack:
            run_eagerly(stack)
            for path, module, change in self._members:
                if callable(change):
                    attach(stack, path, module, change)
                else:
                    stand_in(
                        stack, path, module, _skipped(path) if change is None else _given(change)
                    )
            self._hooks = stack.pop_all()
        self._is_open = True
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self._is_open = False
        self._hooks.close()
        given = [
            path for path, _, change in self._members if change is not None and not callable(change)
        ]
        if given and isinstance(value, Exception) and hasattr(value, "add_note"):
            shown = ", ".join(given[:6])
            value.add_note(f"modtree.intervene gives values in place of the outputs of {shown}")

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"Intervention in {len(self._members)} modules, {state}: {', '.join(self.paths[:6])}"


def _skipped(path: str) -> Callable[..., Any]:
    def skip(*args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            raise TypeError(f"{path!r} was called without arguments, so skipping it returns none")
        return args[0] if args else next(iter(kwargs.values()))

    return skip


def _given(value: Any) -> Callable[..., Any]:
    # The model may change in place what it gets.
    return lambda *args, **kwargs: map_tensors(value, cloned)


def intervene(model: Any, changes: Mapping[Any, Any]) -> Intervention:
    """Changes what modules return, in a ``with`` block. Gradients flow through what is returned.

    Code of ``torch.compile`` is not used meanwhile, since it does not run hooks.

    Args:
        model: A module of modtree or torch.
        changes: For each key, which is what :func:`find` takes or a selection, one of: a function
            of module, args, kwargs and output that returns the new output, or None to leave it;
            None to skip the module, whose first argument is then its output; or a value, which is
            the output instead of that of ``forward``, such as one from another run. Its shape is
            not checked, as the module does not run.

    Raises:
        LookupError: Nothing matches a key.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> x = mt.ones(5, 3)
    >>> with mt.intervene(net, {"1": lambda module, args, kwargs, output: output * 0}):
    ...     mt.equal(net(x), net[2].bias.expand(5, 2))
    True
    """
    return Intervention(model, changes)
