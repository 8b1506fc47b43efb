# SPDX-License-Identifier: BSD-3-Clause
"""``edit``: several changes of a tree, of which all are made or none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from modtree.editing import moving
from modtree.editing.receipts import Receipt
from modtree.editing.selections import Selection, selected
from modtree.editing.ties import Tie, tie_report
from modtree.editing.walking import check_model


class Edit:
    """Changes of one tree. Each method makes its change at once and returns its receipt.

    In a ``with`` block, an error takes back all that the block changed; without one, all stays. A
    selection of :meth:`find` is part of it.

    Args:
        model: A module of modtree or torch.
    """

    def __init__(self, model: Any) -> None:
        self._model = check_model(model)
        self._receipts: list[Receipt] = []

    @property
    def receipt(self) -> Receipt:
        """One receipt for all changes so far."""
        return Receipt.of_all(self._receipts)

    def undo(self) -> None:
        """Takes back all changes."""
        self.receipt.undo()
        self._receipts.clear()

    def __enter__(self) -> Edit:
        self._receipts.clear()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            self.undo()

    def __repr__(self) -> str:
        return f"Edit of {type(self._model).__name__}: {self.receipt!r}"

    def find(self, what: Any = "**", **options: Any) -> Selection:
        """A selection, as of :func:`modtree.find`, whose changes belong to this edit."""
        found = selected(self._model, what, **options)
        found = copy.copy(found)
        found._note = self._receipts.append
        return found

    def replace(self, what: Any, by: Any, *, like: bool = False) -> Receipt:
        """:meth:`Selection.replace` for what :func:`modtree.find` takes, or for a selection."""
        return self.find(what).replace(by, like=like)

    def wrap(self, what: Any, by: Callable[[Any], Any]) -> Receipt:
        """:meth:`Selection.wrap` for what :func:`modtree.find` takes, or for a selection."""
        return self.find(what).wrap(by)

    def unwrap(self, what: Any, name: str | None = None) -> Receipt:
        """:meth:`Selection.unwrap` for what :func:`modtree.find` takes, or for a selection."""
        return self.find(what).unwrap(name)

    def remove(self, what: Any) -> Receipt:
        """:meth:`Selection.remove` for what :func:`modtree.find` takes, or for a selection."""
        return self.find(what).remove()

    def insert(self, path: str, module: Any, *, before: str | None = None) -> Receipt:
        """Puts a new module at a path.

        Args:
            path: Where it is to be. In a list or Sequential, what follows gets a number more.
            module: The module.
            before: The sibling in front of which it is registered; None for the end.
        """
        return self._noted(moving.insert(self._model, path, module, before=before))

    def rename(self, path: str, name: str) -> Receipt:
        """Gives a module, parameter or buffer another name, at its place among its siblings."""
        return self._noted(moving.rename(self._model, path, name))

    def move(self, path: str, to: str) -> Receipt:
        """Puts a module, parameter or buffer at another path, whose parent must be there."""
        return self._noted(moving.move(self._model, path, to))

    def share(self, path: str, to: str) -> Receipt:
        """Ties: puts what is at one path at a second one too, in place of what is there."""
        return self._noted(moving.share(self._model, path, to))

    def tie_report(self) -> list[Tie]:
        """The modules, parameters and buffers that hang at several places, and different tensors
        over the same memory.
        """
        return tie_report(self._model)

    def _noted(self, receipt: Receipt) -> Receipt:
        self._receipts.append(receipt)
        return receipt


def edit(model: Any) -> Edit:
    """Changes of the tree of a model: modules inserted, removed, renamed, moved, shared, replaced.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with mt.edit(net) as changes:
    ...     _ = changes.insert("1", nn.LayerNorm(4))
    ...     _ = changes.replace(nn.ReLU, nn.GELU)
    >>> changes.receipt
    Receipt: 2 changes
      insert 1: LayerNorm
      replace 2: ReLU -> GELU
    >>> changes.receipt("2.weight"), changes.receipt.inverse("3.weight")
    ('3.weight', '2.weight')
    """
    return Edit(model)
