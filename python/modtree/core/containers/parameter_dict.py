# SPDX-License-Identifier: BSD-3-Clause
"""ParameterDict: parameters (and other objects) under names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

from modtree.core.containers._entries import as_entry, describe
from modtree.core.containers._pairs import pairs
from modtree.core.module import Module
from modtree.core.undo import step_undone_on_error, undone_on_error

Self = TypeVar("Self", bound="ParameterDict")


class MissingKeyError(KeyError, AttributeError):
    """A key that a :class:`ParameterDict` does not have.

    Both a KeyError, as for any dict, and an AttributeError, since the keys are attributes.
    ``args[0]`` is the key.
    """

    def __init__(self, key: str, text: str = "") -> None:
        super().__init__(key)
        self.name = key
        self.text = text or f"no key {key!r}"

    def __str__(self) -> str:
        return self.text


class ParameterDict(Module):
    """A dict of parameters that the tree sees, in the order of insertion.

    A tensor that is not a parameter becomes one. Any other object is kept as a plain attribute: it
    is in the dict, but not in ``parameters()`` or ``state_dict()``. The keys are attribute names,
    so they must be str, and for a parameter not empty, without a dot and not the name of an
    existing attribute.

    Args:
        parameters: an ``OrderedDict``, a ParameterDict or an iterable of pairs, whose order is
            kept; any other mapping, also a plain dict, is inserted in sorted order of its keys.

    Example:
        >>> params = nn.ParameterDict({"right": mt.ones(2), "left": mt.zeros(2)})
        >>> list(params)
        ['left', 'right']
        >>> params["left"] is params.left
        True
    """

    __module__ = "modtree.nn"  # the name in pickles and in repr

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        """The value of ``key`` (or of any other attribute of that name).

        Raises:
            MissingKeyError: there is none; both a KeyError and an AttributeError.
        """
        _check_key(key)
        try:
            return getattr(self, key)
        except AttributeError:
            if hasattr(type(self), key):  # a property that failed: its own error says more
                raise
        raise MissingKeyError(
            key,
            f"'{type(self).__name__}' object has no attribute {key!r}: it is not one of its "
            f"{len(getattr(self, '_keys', ()))} keys",
        )

    def __setitem__(self, key: str, value: Any) -> None:
        """Sets ``key``; when key or value is refused, nothing has changed."""
        _check_key(key)
        keys = self._keys
        with step_undone_on_error(self, key):
            setattr(self, key, as_entry(value))
        keys[key] = None

    def __delitem__(self, key: str) -> None:
        """Removes ``key``; when that is refused, nothing has changed."""
        keys = self._keys
        keys[key]  # or a KeyError
        with step_undone_on_error(self, key):
            delattr(self, key)
        del keys[key]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """A new ParameterDict of the same objects, in the same order."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, which is set to ``default`` first when it is not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes all keys."""
        with undone_on_error(self, *self._keys, tables=(self._keys,)):
            for key in list(self._keys):
                del self[key]

    def pop(self, key: str) -> Any:
        """Removes ``key`` and returns its value; MissingKeyError when it is not there."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes and returns the pair that was inserted last."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, or ``default`` when it is not there."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict of ``keys``, each with the value ``default``."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """The keys: a live view."""
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of keys and values, one after the other."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterator[Any]:
        """The values, one after the other."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Sets every key of ``parameters``, as ``dict.update`` does: what came before an error
        stays.

        Args:
            parameters: as for the constructor.
        """
        entries: Iterable[tuple[str, Any]]
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            entries = parameters.items()
        elif isinstance(parameters, Mapping):
            entries = sorted(parameters.items(), key=itemgetter(0))
        else:
            entries = pairs("ParameterDict", parameters)
        for key, value in entries:
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: Any) -> Any:
        merged = other.copy()
        merged.update(self)
        return merged

    def __ior__(self: Self, other: Any) -> Self:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(describe(key, value, by_type_name=True) for key, value in self.items())

    def __call__(self, input: Any) -> NoReturn:
        raise RuntimeError("ParameterDict should not be called.")


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(
            f"Index given to ParameterDict cannot be used as a key as it is not a string "
            f"(got {key!r}, type {type(key).__name__!r}); keys are attribute names: use str(key)"
        )
