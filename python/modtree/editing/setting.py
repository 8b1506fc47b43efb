# SPDX-License-Identifier: BSD-3-Clause
"""Gradients and modes of a part of a tree, and how both are put back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from modtree.core.families import family_of
from modtree.editing.hooking import freeze, is_frozen, thaw
from modtree.editing.receipts import Change, Receipt
from modtree.editing.walking import EveryPath, describe, places_of, places_of_tensors


class _Setting:
    """A value that was set, and the one before.

    Args:
        exchange: Sets a value, unless it is None, and returns the one before.
        value: What is set.
        name: What it is in the error if it was changed since.
        differs: True for a value that was not set and one that was, if that is an error.
    """

    def __init__(
        self,
        exchange: Callable[[Any], Any],
        value: Any,
        name: str,
        differs: Callable[[Any, Any], bool] = operator.ne,
    ) -> None:
        self._exchange, self.value, self._name, self._differs = exchange, value, name, differs
        self.before = exchange(None)

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        now = self._exchange(None)
        try:
            yield
        except BaseException:
            self._exchange(now)
            raise

    def conflict(self) -> str | None:
        is_other = self._differs(self._exchange(None), self.value)
        return f"{self._name} was changed" if is_other else None

    def redo(self) -> None:
        self._exchange(self.value)

    def undo(self) -> None:
        self._exchange(self.before)


def _made(
    kind: str, steps: Sequence[tuple[str, _Setting]], paths: Callable[[str], Iterable[str]]
) -> Receipt:
    """Sets all, or, on an error, none. The receipt names all paths of what was set."""
    with ExitStack() as kept:
        for _, step in steps:
            kept.enter_context(step.kept_on_error())
            step.redo()
    changes = [
        Change(kind, each, str(step.before), str(step.value))
        for path, step in steps
        for each in paths(path)
    ]
    return Receipt(changes, [step for _, step in steps])


def set_requires_grad(model: Any, leaves: Sequence[tuple[str, Any]], flag: bool) -> Receipt:
    """Switches the gradients of parameters on or off: of all, or, on an error, of none."""
    ids = {path: id(tensor) for path, tensor in leaves}
    places = places_of_tensors(model, set(ids.values()))
    every_path = EveryPath(places_of(model).aliases)

    def paths(path: str) -> Iterable[str]:
        each = (path, *places[ids[path]])
        return dict.fromkeys(other for place in each for other in every_path(place))

    def setting(path: str, tensor: Any, family: Any) -> _Setting:
        def exchange(value: bool | None) -> bool:
            before = bool(family.requires_grad(tensor))
            if value is not None and value is not before:
                family.set_requires_grad(tensor, value)
            return before

        return _Setting(exchange, flag, f"requires_grad of {describe(path)}")

    found = [(path, tensor, family_of(tensor)) for path, tensor in leaves]
    steps = [(path, setting(path, tensor, family)) for path, tensor, family in found if family]
    return _made("requires_grad_", [pair for pair in steps if pair[1].before is not flag], paths)


class _Mode(NamedTuple):
    training: bool | None
    """None without such an attribute."""
    frozen: bool

    def differs(self, wanted: _Mode) -> bool:
        """True if this is not what was set. Calls of ``train`` may change modes that may change."""
        return self.is_other_way(wanted) or (self.frozen and self != wanted)

    def is_other_way(self, wanted: _Mode) -> bool:
        """True if only one of the two is frozen."""
        return self.frozen != wanted.frozen

    def __str__(self) -> str:
        return f"{self.training}{', frozen' if self.frozen else ''}"


def set_training(
    model: Any, members: Sequence[tuple[str, Any]], mode: bool, *, frozen: bool
) -> Receipt:
    """Sets the mode of modules.

    Args:
        model: The root.
        members: Paths and modules.
        mode: True for training, False for evaluation.
        frozen: Whether later calls of ``train`` and ``eval`` leave it.
    """

    wanted = _Mode(mode, frozen)

    def setting(path: str, module: Any) -> _Setting:
        own = []  # a ``train`` of the module itself

        def exchange(value: _Mode | None) -> _Mode:
            before = _Mode(getattr(module, "training", None), is_frozen(module))
            if value is not None:
                if value.training is not None:
                    module.training = value.training
                elif before.training is not None:
                    del module.training
                if value.frozen and not before.frozen:
                    own.append(freeze(module))
                elif before.frozen and not value.frozen:
                    thaw(module, *own[-1:])
            return before

        differs = _Mode.differs
        if isinstance(getattr(type(module), "training", None), property):
            # As in what torch.compile makes: the mode of the module inside, which has its own step.
            differs = _Mode.is_other_way
        return _Setting(exchange, wanted, f"mode of {describe(path)}", differs)

    steps = [(path, setting(path, module)) for path, module in members]
    every_path = EveryPath(places_of(model).aliases)
    return _made("train", [pair for pair in steps if pair[1].before != wanted], every_path)
