# SPDX-License-Identifier: BSD-3-Clause
"""Gradients and modes of a part of a tree, and how both are put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from modtree.core.families import family_of
from modtree.core.undo import undone_on_error
from modtree.editing.receipts import Change, Receipt
from modtree.editing.walking import describe

__all__ = ["set_requires_grad", "set_training"]


class _Flag:
    """Whether operations on a tensor are recorded."""

    def __init__(self, path: str, tensor: Any, family: Any, flag: bool) -> None:
        self._path, self._tensor, self._family, self._flag = path, tensor, family, flag
        self._before = bool(family.requires_grad(tensor))

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        now = bool(self._family.requires_grad(self._tensor))
        try:
            yield
        except BaseException:
            self._family.set_requires_grad(self._tensor, now)
            raise

    def conflict(self) -> str | None:
        same = bool(self._family.requires_grad(self._tensor)) is self._flag
        return None if same else f"requires_grad of {describe(self._path)} was changed"

    def undo(self) -> None:
        self._family.set_requires_grad(self._tensor, self._before)


def set_requires_grad(leaves: Sequence[tuple[str, Any]], flag: bool) -> Receipt:
    """Switches the gradients of parameters on or off: of all, or, on an error, of none."""
    steps: list[_Flag] = []
    changes: list[Change] = []
    with ExitStack() as kept:
        for path, tensor in leaves:
            family = family_of(tensor)
            if family is None or bool(family.requires_grad(tensor)) is flag:
                continue
            step = _Flag(path, tensor, family, flag)
            kept.enter_context(step.kept_on_error())
            family.set_requires_grad(tensor, flag)
            steps.append(step)
            changes.append(Change("requires_grad_", path, str(not flag), str(flag)))
    return Receipt(changes, steps)


def _stay(module: Any, mode: bool = True) -> Any:
    """What ``train`` of a module with ``frozen=True`` is: the mode stays."""
    return module


class _Mode:
    """The mode of one module."""

    def __init__(self, path: str, module: Any, mode: bool, frozen: bool) -> None:
        self.path, self._module = path, module
        self.before, self._mode = module.training, mode
        self._own = vars(module).get("train") if frozen else None
        self._frozen = frozen

    def kept_on_error(self) -> AbstractContextManager[None]:
        return undone_on_error(self._module)

    def set(self) -> None:
        self._module.training = self._mode
        if self._frozen:
            self._module.train = partial(_stay, self._module)

    def conflict(self) -> str | None:
        return None

    def undo(self) -> None:
        self._module.training = self.before
        if not self._frozen:
            return
        if self._own is None:
            vars(self._module).pop("train", None)
        else:
            self._module.train = self._own


def set_training(members: Sequence[tuple[str, Any]], mode: bool, *, frozen: bool) -> Receipt:
    """Sets the mode of modules.

    Args:
        members: Paths and modules.
        mode: True for training, False for evaluation.
        frozen: Whether later calls of ``train`` and ``eval`` leave it.
    """
    steps = [
        _Mode(path, module, mode, frozen)
        for path, module in members
        if frozen or module.training is not mode
    ]
    with ExitStack() as kept:
        for step in steps:
            kept.enter_context(step.kept_on_error())
            step.set()
    changes = [Change("train", step.path, str(step.before), str(mode)) for step in steps]
    return Receipt(changes, steps)
