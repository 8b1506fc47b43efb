# SPDX-License-Identifier: BSD-3-Clause
"""Reads a pickle whole whatever it names: a stand-in is made of each object that is not plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree.files.pickled.stand_in import StandIn
from modtree.files.pickled.unpickle import Refused, Unfinished, Unpickler

__all__ = ["TolerantUnpickler"]


class TolerantUnpickler(Unpickler):
    """An unpickler that refuses nothing but damage.

    Args:
        takes: May this function be called with stand-ins? For every other one, a call with a
            stand-in makes a stand-in.
        describe: Says in words what a stand-in is, where it knows.
        args: As for an unpickler.
        kwargs: The same.

    Attributes:
        foreign: How many names it met that stand-ins are made of.
        packages: The packages that it met.
    """

    def __init__(
        self,
        *args: Any,
        takes: Callable[[Any], bool] = lambda _: False,
        describe: Callable[[StandIn], StandIn] = lambda made: made,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._takes = takes
        self._describe = describe
        self.foreign = 0
        self.packages: set[str] = set()
        self._known: dict[tuple[str, str], StandIn] = {}
        self._paths: dict[int, str] | None = None

    def _stand_in(self, kind: str, args: tuple[Any, ...] | None = None) -> StandIn:
        self.foreign += 1
        made = StandIn(kind[:300], args)
        return made if args is None else self._describe(made)

    def _name(self, module: Any, name: Any) -> Any:
        try:
            found = super()._name(module, name)
            self.packages.add(module.partition(".")[0])
            return found
        except Refused:
            known = self._known.get((module, name))
            if known is None:
                known = self._known[module, name] = self._stand_in(f"{module}.{name}")
            return known

    def _path_of(self, function: Any) -> str:
        """Under which name a file finds this function."""
        if self._paths is None:
            self._paths = {}
            for (module, name), value in self._names.items():
                self._paths.setdefault(id(value), f"{module}.{name}")
        return self._paths.get(id(function), getattr(function, "__name__", "?"))

    def _call(self, function: Any, arguments: Any) -> None:
        if type(arguments) is not tuple:
            super()._call(function, arguments)  # which says so
        elif type(function) is StandIn:
            self._count_copy(arguments)
            self._stack.append(function.called(arguments))
        elif self.foreign and self._is_foreign(arguments) and not self._takes(function):
            self._stack.append(self._stand_in(self._path_of(function), arguments))
        else:
            try:
                super()._call(function, arguments)
                self.foreign += type(self._stack[-1]) is StandIn
            except Refused:
                self._stack.append(self._stand_in(self._path_of(function), arguments))

    def _new(self, has_keywords: bool) -> None:
        keywords = self._stack.pop() if has_keywords else None
        if not keywords or type(keywords) is not dict:
            self._reduce()
            return
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(arguments) is not tuple:
            super()._call(function, arguments)  # which says so
        known = type(function) is StandIn
        made = function if known else self._stand_in(self._path_of(function))
        self._count_copy(arguments)
        self._count_copy(keywords)
        made = made.called(arguments)
        made.pairs.update(keywords)
        self._stack.append(made)

    def _build(self) -> None:
        state, target = self._stack[-1], self._stack[-2]
        if type(target) is StandIn:
            self._stack.pop()
            for part in state if type(state) is tuple else ():
                self._count_copy(part)
            target.set_state(state)
            return
        if type(target) is Unfinished and self._is_foreign(state):
            self._stack.pop()
            parts = state if type(state) is tuple else (state,)
            self._finish(target, _array_of(self._stand_in("numpy.ndarray", parts)))
            return
        try:
            super()._build()
        except Refused:  # attributes that such an object does not take
            self.foreign += 1
            if type(self._stack[-1]) is Unfinished:
                self._finish(target, self._stand_in("numpy.ndarray", ()))

    def _persistent(self) -> None:
        pid = self._stack[-1]
        if type(pid) is tuple and pid[:1] == ("module",) and len(pid) == 4:
            self._stack[-1] = pid[1]  # a class, with its source, in files before 1.6
            return
        if self._persistent_load is None or self._is_foreign(pid):
            self._stack[-1] = self._stand_in("a persistent id", (pid,))
            return
        super()._persistent()

    def _line_of_persistent_id(self) -> None:
        self._stack.append(self._stand_in("a persistent id", (self._line(),)))

    def _set_items(self, target: Any, items: list[Any]) -> None:
        if type(target) is StandIn:
            super()._set_items(target.pairs, items)
        else:
            super()._set_items(target, items)

    def _append(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is StandIn:
            self._stack[-1].items.extend(items)
        else:
            super()._append(items)

    def _add_items(self) -> None:
        if self._marks and self._marks[-1] and type(self._marks[-1][-1]) is StandIn:
            items = self._since_mark()
            self._stack[-1].items.extend(items)
        else:
            super()._add_items()

    def _extension(self, code: int) -> None:
        self._stack.append(self._stand_in(f"extension {code}"))

    def _is_foreign(self, value: Any, depth: int = 3) -> bool:
        """Is it, or has a tuple, a stand-in? As deep as names of classes stand in arguments. What
        is looked at counts as copied, since a file may give one tuple again and again.
        """
        if type(value) is StandIn:
            return True
        if type(value) is not tuple or not depth:
            return False
        self._count_copy(value)
        return any([self._is_foreign(part, depth - 1) for part in value])


def _array_of(made: StandIn) -> StandIn:
    """An array of objects or records, in words."""
    if len(made.args) == 5 and type(made.args[1]) is tuple and type(made.args[2]) is StandIn:
        code, shape = made.args[2].args[:1], made.args[1][:64]
        made.text = f"array of dtype {code[0] if code else '?'!r:.20} {list(shape)!r:.80}"
    return made
