# SPDX-License-Identifier: BSD-3-Clause
"""ParameterList: parameters (and other objects) in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, SupportsIndex, TypeVar, overload

from modtree.core.containers._entries import as_entry, describe, is_tensor
from modtree.core.containers._numbered import position
from modtree.core.module import Module
from modtree.core.undo import NUMBERS, step_undone_on_error, undone_on_error

Self = TypeVar("Self", bound="ParameterList")


class ParameterList(Module):
    """A list of parameters that the tree sees, named ``'0'``, ``'1'``, ...

    A tensor that is not a parameter becomes one. Any other object is kept as a plain attribute: it
    is in the list, but not in ``parameters()`` or ``state_dict()``.

    Args:
        values: an iterable of what to hold.

    Example:
        >>> scales = nn.ParameterList([mt.ones(3), mt.zeros(2, 2)])
        >>> scales[1].shape
        modtree.Size([2, 2])
        >>> [name for name, _ in scales.named_parameters()]
        ['0', '1']
    """

    __module__ = "modtree.nn"  # the name in pickles and in repr

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self: Self, idx: slice) -> Self: ...

    @overload
    def __getitem__(self, idx: SupportsIndex) -> Any: ...

    def __getitem__(self: Self, idx: slice | SupportsIndex) -> Any:
        """The entry at a position, or a list of the same objects for a slice."""
        if isinstance(idx, slice):
            part = type(self)()
            for i in range(len(self))[idx]:
                part.append(self[i])
            return part
        return getattr(self, str(position(self, idx)))

    def __setitem__(self, idx: SupportsIndex, param: Any) -> None:
        """Replaces an entry; in place of a parameter only a tensor or None is accepted."""
        setattr(self, str(position(self, idx)), as_entry(param))

    def append(self: Self, value: Any) -> Self:
        """Adds ``value`` at the end and returns self; when it is refused, nothing has changed."""
        end = self._size
        with step_undone_on_error(self, "_size", str(end)):
            self._size = end + 1
            try:
                self[end] = value
            except BaseException:
                self._size = end
                raise
        return self

    def extend(self: Self, values: Iterable[Any]) -> Self:
        """Appends every value (all of them, or none when one is refused) and returns self.

        Raises:
            TypeError: ``values`` is not iterable, or is one tensor (append it instead).
        """
        if not isinstance(values, Iterable) or is_tensor(values):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, "
                f"but got {type(values).__name__}"
            )
        entries = list(values)
        if not entries:  # nothing is asked of a module that became a list by its class
            return self
        with undone_on_error(self, "_size", among=NUMBERS):
            for value in entries:
                self.append(value)
        return self

    def __iadd__(self: Self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(
            describe(str(i), value, by_type_name=False) for i, value in enumerate(self)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("ParameterList should not be called.")
