# SPDX-License-Identifier: BSD-3-Clause
"""What a change did, how it is taken back, and how a change that fails half-way leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from modtree.core.undo import NUMBERS, undone_on_error
from modtree.editing.keys import AliasedKeys, KeyRules, MovedKeys
from modtree.editing.ties import ties_and_tensors
from modtree.editing.walking import (
    TABLES,
    TRANSIENT,
    EveryPath,
    Places,
    describe,
    is_module,
    joined,
    places_of,
    refuse_scripted,
    registry,
    value_at,
)
from modtree.editing.wrappers import warn_of_wrappers

_PLAIN_SETATTR = ("Module.__setattr__", "ModuleBase.__setattr__", "object.__setattr__")
_MOST_CHANGES = 10
_ABSENT: Any = object()


class Change(NamedTuple):
    """One line of a receipt."""

    kind: str
    """``"replace"``, ``"insert"``, ``"remove"``, ``"rename"``, ``"move"``, ``"share"``, ..., and
    ``"tie"`` or ``"untie"`` where another change made two places one or took them apart."""
    path: str
    """Where it was done."""
    before: Any
    """What was there; None if nothing was."""
    after: Any
    """What is there now; None if nothing is."""

    def __str__(self) -> str:
        names = [
            value if isinstance(value, str) else type(value).__name__
            for value in (self.before, self.after)
            if value is not None
        ]
        return f"{self.kind} {self.path or 'the model'}: {' -> '.join(names)}"


class Step(Protocol):
    """A change of one object that can be taken back."""

    def conflict(self) -> str | None:
        """What was changed since; None if the step can be taken back."""

    def undo(self) -> None:
        """Takes it back."""

    def kept_on_error(self) -> AbstractContextManager[None]:
        """A block after which, if it raises, the object is as it was before the block."""


class Receipt:
    """What a change did: :meth:`undo` takes it back, and so does the end of a ``with`` block.

    A receipt is a ``rename=`` for checkpoints from before the change. :attr:`inverse` is one for
    checkpoints that the changed model wrote, which the old model is to load.

    Args:
        changes: What was put where.
        steps: What takes the change back, in the order in which it was made.
        rules: What became of the keys of the state dict, in the same order.
    """

    def __init__(
        self, changes: Sequence[Change], steps: Sequence[Step], rules: Sequence[KeyRules] = ()
    ) -> None:
        self.changes = list(changes)
        self.is_undone = False
        self._steps = list(steps)
        self._rules = list(rules)

    @classmethod
    def of_all(cls, receipts: Sequence[Receipt]) -> Receipt:
        """One receipt of several changes that were made one after the other."""
        done = [each for each in receipts if not each.is_undone]
        return cls(
            [change for each in done for change in each.changes],
            [step for each in done for step in each._steps],
            [rules for each in done for rules in each._rules],
        )

    def undo(self) -> None:
        """Makes the tree what it was: modules, parameters and buffers, in the old order.

        Changes that were made elsewhere since stay. A second call does nothing.

        Raises:
            RuntimeError: Something was put where this change put something. Nothing is undone.
        """
        if self.is_undone:
            return
        with ExitStack() as kept:
            for step in reversed(self._steps):
                kept.enter_context(step.kept_on_error())
                conflict = step.conflict()
                if conflict is not None:
                    raise RuntimeError(
                        f"{conflict} since this change; undo the later changes first"
                    )
                step.undo()
        self.is_undone = True

    def __call__(self, key: str) -> str | None:
        """The key of a state dict after the change; None if its entry is gone."""
        new: str | None = key
        for rules in self._rules:
            if new is None:
                break
            new = rules.forward(new)
        return new

    def inverse(self, key: str) -> str | None:
        """The key of a state dict before the change; None if its entry is new."""
        old: str | None = key
        for rules in reversed(self._rules):
            if old is None:
                break
            old = rules.backward(old)
        return old

    def __enter__(self) -> Receipt:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.undo()

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __repr__(self) -> str:
        number = f"{len(self)} change{'' if len(self) == 1 else 's'}"
        lines = [f"Receipt: {number}{', undone' if self.is_undone else ''}"]
        lines += [f"  {change}" for change in self.changes[:_MOST_CHANGES]]
        if len(self) > _MOST_CHANGES:
            lines.append(f"  ... and {len(self) - _MOST_CHANGES} more")
        return "\n".join(lines)


class _Table(NamedTuple):
    """A registry before and after a change."""

    name: str
    before: dict[str, Any]
    after: dict[str, Any]

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The names under which there is something else, with what was and what is there."""
        both = {**self.before, **self.after}
        pairs = {n: (self.before.get(n, _ABSENT), self.after.get(n, _ABSENT)) for n in both}
        return {name: pair for name, pair in pairs.items() if pair[0] is not pair[1]}

    def renumbered(self) -> bool:
        """True if a list got longer or shorter: others in it would no longer be numbered."""
        each = [*self.before], [*self.after]
        return each[0] != each[1] and all(names == [*map(str, range(len(names)))] for names in each)


class _Tables:
    """The registries of a module before and after a change."""

    def __init__(self, module: Any, path: str) -> None:
        self.module = module
        self.path = path
        self._before = self._now()
        self._transient = set(getattr(module, TRANSIENT, ()))
        self._tables: list[_Table] = []

    def _now(self) -> list[dict[str, Any]]:
        return [dict(registry(self.module, name)) for name in TABLES]

    def finish(self) -> None:
        """Notes what the change made of them."""
        found = map(_Table, TABLES, self._before, self._now())
        self._tables = [t for t in found if t.changed() or [*t.before] != [*t.after]]

    def slots(self) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Paths, and what was and is there, in the tables that changed."""
        before = [item for table in self._tables for item in table.before.items()]
        after = [item for table in self._tables for item in table.after.items()]
        return _paths(self.path, before), _paths(self.path, after)

    def kept_on_error(self) -> AbstractContextManager[None]:
        names = {name for table in self._tables for name in (*table.before, *table.after)}
        return undone_on_error(self.module, among=names)

    def conflict(self) -> str | None:
        for table in self._tables:
            now = registry(self.module, table.name)
            for name, (_, after) in table.changed().items():
                if now.get(name, _ABSENT) is not after:
                    return f"{describe(joined(self.path, name))} was changed"
            if table.renumbered():
                for name in now:
                    if name not in table.after:
                        return f"{describe(joined(self.path, name))} was added"
        return None

    def undo(self) -> None:
        for table in self._tables:
            changed = table.changed()
            if table.name == "_modules" and _has_own_setattr(self.module):
                for name, (before, _) in changed.items():  # which may keep it elsewhere too
                    if before is not _ABSENT and before is not None:
                        setattr(self.module, name, before)
            now = registry(self.module, table.name)
            rest = {name: value for name, value in now.items() if name not in changed}
            contents = {
                name: value if name in changed else rest[name]
                for name, value in table.before.items()
                if name in changed or name in rest
            }
            fill(now, {**contents, **rest})
            if table.name == "_buffers" and isinstance(getattr(self.module, TRANSIENT), set):
                left_out = getattr(self.module, TRANSIENT)
                left_out -= {*changed}
                left_out |= {*changed} & self._transient


def _paths(path: str, items: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(joined(path, name), value) for name, value in items if value is not None]


def _has_own_setattr(module: Any) -> bool:
    """True if a class of the user's defines ``__setattr__``."""
    method = type(module).__setattr__
    return getattr(method, "__qualname__", "") not in _PLAIN_SETATTR


def fill(table: Any, contents: dict[str, Any]) -> None:
    """Gives a registry these contents in this order."""
    same = len(table) == len(contents) and all(
        a == b and x is y for (a, x), (b, y) in zip(table.items(), contents.items(), strict=True)
    )
    if not same:
        table.clear()
        table.update(contents)


class Recording:
    """A change that is being made: whatever it touches is noted first, and put back on an error."""

    def __init__(self, model: Any, aliases: Mapping[str, str]) -> None:
        self._model, self._aliases = model, aliases
        self._every_path = EveryPath(aliases)
        self._ties = ties_and_tensors(model)[0]
        self._changes: list[Change] = []
        self._moves_parameters: list[str] = []
        self._touched: dict[int, _Tables] = {}
        self._kept = ExitStack()

    def touch(self, module: Any, path: str, *names: str) -> None:
        """To be called before the registries of a module change.

        Args:
            module: The module.
            path: Its path.
            *names: The entries that change. Those of a list may get other numbers.

        Raises:
            TypeError: It is a scripted module, whose tree cannot be changed.
        """
        refuse_scripted(path, module, "whose tree is compiled: change")
        self._kept.enter_context(undone_on_error(module, *names, among=NUMBERS))
        if id(module) in self._touched:
            return
        self._touched[id(module)] = _Tables(module, path)

    def every_path(self, path: str) -> list[str]:
        """The path of a place, and the others that it has as its parent hangs at several places."""
        parent, _, name = path.rpartition(".")
        return [joined(each, name) for each in self._every_path(parent)]

    def note(self, kind: str, path: str, before: Any, after: Any, *, moves: Any = False) -> None:
        """Notes a change; ``moves``: whether parameters came or went, or the module that did."""
        has_parameters = any(True for _ in moves.parameters()) if is_module(moves) else moves
        for each in self.every_path(path):
            self.note_one(kind, each, before, after)
            if has_parameters:
                self._moves_parameters.append(each)

    def note_one(self, kind: str, path: str, before: Any, after: Any) -> None:
        """Notes a change at one path alone."""
        self._changes.append(Change(kind, path, before, after))

    def receipt(self, rules: KeyRules | None = None) -> Receipt:
        """What was done, at the end of the change.

        Args:
            rules: What became of keys; by the paths of what was touched, if it is None.
        """
        steps = list(self._touched.values())
        for step in steps:
            step.finish()
        if rules is None:
            slots = [step.slots() for step in steps]
            before = [pair for old, _ in slots for pair in old]
            rules = MovedKeys(before, [pair for _, new in slots for pair in new])
        if self._aliases:
            rules = AliasedKeys(rules, self._aliases)
        self._note_ties(rules)
        warn_of_wrappers(self._model, self._moves_parameters)
        return Receipt(self._changes, steps, [rules])

    def _note_ties(self, rules: KeyRules) -> None:
        """Notes which ties are gone, and which are new that no other change tells."""
        for tie in self._ties:
            moved = [(path, rules.forward(path)) for path in tie.paths]
            now = [(path, to and value_at(self._model, to)) for path, to in moved]
            there = [(path, value) for path, value in now if value is not None]
            for path, value in now:
                if there and value is not there[0][1]:
                    self.note_one("untie", path, there[0][0], None)
        known = [{self._one_path(path) for path in tie.paths} for tie in self._ties]
        told = {change.path for change in self._changes if change.kind == "share"}
        for tie in ties_and_tensors(self._model)[0]:
            before = [rules.backward(path) for path in tie.paths]
            origins = [path and self._one_path(path) for path in before]
            for path, origin in zip(tie.paths[1:], origins[1:], strict=True):
                pair = {origin, origins[0]}
                is_old = len(pair) == 1 or any(pair <= each for each in known)
                if not is_old and told.isdisjoint((path, tie.paths[0])):
                    self.note_one("tie", path, tie.paths[0], None)

    def _one_path(self, path: str) -> str:
        """The same one for all paths of a place before the change."""
        return min(self._every_path(path))


@contextmanager
def recording(model: Any, places: Places | None = None) -> Iterator[Recording]:
    """A block that changes a tree: all of it, or, if it raises, nothing."""
    record = Recording(model, (places or places_of(model)).aliases)
    with record._kept:
        yield record


def put(parent: Any, name: str, module: Any, path: str) -> None:
    """Puts a module in the place of another one, as ``setattr`` does.

    Raises:
        TypeError: The parent did not register it.
    """
    setattr(parent, name, module)
    if registry(parent, "_modules").get(name) is not module:
        raise TypeError(
            f"{describe(path)}: {type(parent).__name__} did not register the "
            f"{type(module).__module__}.{type(module).__name__} that was put there"
        )
