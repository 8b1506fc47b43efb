# SPDX-License-Identifier: BSD-3-Clause
"""What selections of modules and of tensors have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from modtree.editing.reporting import outline

if TYPE_CHECKING:
    from typing_extensions import Self

Pairs: TypeAlias = list[tuple[str, Any]]


class _Taken:
    """What an iterator that has not started yet gives: ``list()`` asks for the length meanwhile."""

    found: Pairs | None = None


class Selected:
    """What modules and tensors that were found have in common. Each use searches again."""

    _what: str
    _missing_ok = False
    _taken: Callable[[], _Taken | None] = staticmethod(lambda: None)

    def __init__(
        self,
        model: Any,
        search: Callable[[], Pairs],
        text: str,
        why_empty: Callable[[], str],
    ) -> None:
        self._model = model
        self._search = search
        self._text = text
        self._explained = why_empty

    def _derived(self, search: Callable[[], Pairs], text: str, why: Callable[[], str]) -> Self:
        made = type(self)(self._model, search, text, why)
        made._missing_ok = self._missing_ok
        return made

    def _why(self, otherwise: str) -> Callable[[], str]:
        """What says why something that was made of this is empty, even if this is not."""
        return lambda: otherwise if len(self) else self._explained()

    @property
    def paths(self) -> list[str]:
        """The paths, in the order of the tree."""
        return [path for path, _ in self._search()]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        taken = _Taken()
        self._taken = ref(taken)
        return self._pairs(taken)

    def _pairs(self, taken: _Taken) -> Iterator[tuple[str, Any]]:
        found = taken.found
        del taken
        yield from self._search() if found is None else found

    def __len__(self) -> int:
        found = self._search()
        taken = self._taken()
        if taken is not None:
            taken.found = found
        return len(found)

    def __contains__(self, item: Any) -> bool:
        """True for a path or an object that is selected."""
        is_path = isinstance(item, str)
        return any(path == item if is_path else value is item for path, value in self._search())

    def first(self) -> Any:
        """The first object.

        Raises:
            LookupError: Nothing is selected.
        """
        for _, value in self._search():
            return value
        raise self._nothing()

    def _nothing(self) -> LookupError:
        return LookupError(f"{self._text}: nothing is selected: {self._explained()}")

    def _found(self) -> Pairs:
        """What is selected, to be changed.

        Raises:
            LookupError: Nothing is, and that is not ``missing_ok``.
        """
        found = self._search()
        if not found and not self._missing_ok:
            raise self._nothing()
        return found

    def one(self) -> Any:
        """The only object.

        Raises:
            LookupError: None is selected, or several, which the message lists.
        """
        found = self._search()
        if len(found) == 1:
            return found[0][1]
        if not found:
            return self.first()
        paths = ", ".join(path or "the model itself" for path, _ in found[:8])
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        raise LookupError(
            f"{self._text}: expected one {self._what}, got {len(found)}: {paths}{more}"
        )

    def __and__(self, other: Self) -> Self:
        def search() -> Pairs:
            theirs = other._ids()
            return [pair for pair in self._search() if id(pair[1]) in theirs]

        return self._combined(other, "&", search)

    def __sub__(self, other: Self) -> Self:
        def search() -> Pairs:
            theirs = other._ids()
            return [pair for pair in self._search() if id(pair[1]) not in theirs]

        return self._combined(other, "-", search)

    def __or__(self, other: Self) -> Self:
        def search() -> Pairs:
            both = {id(value): (path, value) for path, value in other._search()}
            both.update((id(value), (path, value)) for path, value in self._search())
            order = {key: i for i, key in enumerate(self._order())}
            return sorted(both.values(), key=lambda pair: order[id(pair[1])])

        return self._combined(other, "|", search)

    def _ids(self) -> set[int]:
        return {id(value) for _, value in self._search()}

    def _order(self) -> Iterable[int]:
        """The ids of all that could be selected, in the order of the tree."""
        raise NotImplementedError

    def _combined(self, other: Any, sign: str, search: Callable[[], Pairs]) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        if other._model is not self._model:
            raise ValueError("the two selections are of different models")

        def why() -> str:
            if len(self) and (sign != "&" or len(other)):
                return "nothing is in both" if sign == "&" else "the second has all of the first"
            return (other if len(self) else self)._explained()

        made = self._derived(search, f"({self._text} {sign} {other._text})", why)
        made._missing_ok = self._missing_ok or other._missing_ok
        return made

    def __repr__(self) -> str:
        found = self._search()
        number = f"{len(found)} {self._what}{'' if len(found) == 1 else 's'}"
        head = f"{number} of {type(self._model).__name__}: {self._text}"
        if not found:
            return f"{head}\n  {self._explained()}"
        return "\n".join([head, *(f"  {line}" for line in outline(self._model, found))])
