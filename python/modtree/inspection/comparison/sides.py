# SPDX-License-Identifier: BSD-3-Clause
"""What can be compared, in one form: models, state dicts and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from modtree.core import families
from modtree.core.loading.model_keys import ModelKeys
from modtree.core.loading.rename import Rename, rename_function
from modtree.files.checkpoint.base import Checkpoint, Entry, array_view
from modtree.files.checkpoint.dtypes import array_dtype
from modtree.files.checkpoint.reader import open_checkpoint
from modtree.files.pickled.stand_in import StandIn
from modtree.files.sources.source import is_file
from modtree.files.torch.contents import Holders
from modtree.files.torch.records import TensorRecord
from modtree.inspection.tree import values_of


class Facts(NamedTuple):
    """A tensor without its values; no shape is one that is not known yet."""

    shape: tuple[int, ...] | None
    dtype: str


class NoValues(Exception):
    """The values of an entry cannot be had; the text says why."""


class Side:
    """One of the two sides of a comparison. Mappings in it, as those of optimizers and of extra
    state have them, are part of the keys.

    Attributes:
        name: what a report calls it.
        tensors: the tensors by their keys.
        others: the entries that are not tensors: numbers, extra state.
        versions: the versions of modules by their paths, or None where they are not known.
        keys: what keys are for, where the side is a model.
        left_out: the parts of a file beside the one that is compared.
    """

    keys: ModelKeys | None = None
    left_out: Sequence[str] = ()

    def __init__(self, name: str, versions: Any, state: Mapping[Any, Any]) -> None:
        self.name = name
        self.versions = _versions(versions)
        self.tensors: dict[str, Facts] = {}
        self.others: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._old_keys: dict[str, str] | None = None
        for key, value in _flat(state):
            while key in self.tensors or key in self.others:
                key += "'"  # {"a.b": ..., "a": {"b": ...}}
            facts = _facts(value)
            if facts is None:
                self.others[key] = value
            else:
                self.tensors[key], self._values[key] = facts, value

    def array(self, key: str) -> np.ndarray:
        """The values of a tensor.

        Raises:
            NoValues: it has none, or none that NumPy knows.
        """
        return self._read(key if self._old_keys is None else self._old_keys[key])

    def rename(self, rename: Rename) -> None:
        """Gives the entries other keys, by the rules that ``load_state_dict`` has.

        Raises:
            TypeError: ``rename`` is not such a rule, or gave a key that is not a str.
            ValueError: two entries get the same key.
        """
        function = rename_function(rename)
        old_keys: dict[str, str] = {}
        for key in (*self.tensors, *self.others):
            new = function(key)
            if new is None:
                continue
            if not isinstance(new, str):
                raise TypeError(f"rename gave {new!r} for the key {key!r}: expected a str or None")
            if new in old_keys:
                raise ValueError(f"rename gives {old_keys[new]!r} and {key!r} the same key {new!r}")
            old_keys[new] = key
        tensors, others = self.tensors, self.others
        self.tensors = {new: tensors[old] for new, old in old_keys.items() if old in tensors}
        self.others = {new: others[old] for new, old in old_keys.items() if old in others}
        self._old_keys = old_keys

    def _read(self, key: str) -> np.ndarray:
        value = self._values[key]
        family = families.family_of(value)
        if type(value) is TensorRecord:
            raise NoValues("it is on meta")
        if family is None:
            return np.asarray(value)
        if family.is_meta(value):
            raise NoValues("it is on meta")
        try:
            return values_of(value, family)
        except Exception as error:  # sparse, quantized or distributed tensors of another library
            raise NoValues(f"it cannot be had as an array: {error}") from None

    def let_go(self) -> None:
        """Gives back the memory of the values that were read."""

    def close(self) -> None:
        """Gives the files back."""


def open_side(
    value: Any, which: str, at: str | None = None, join: Any = None, large_header: bool = False
) -> Side:
    """The side of a model, a state dict, a path or an open checkpoint.

    Args:
        value: what is compared: an address, a file object and bytes are files too.
        which: the name of the argument.
        at: which part of a file is meant.
        join: how files of several ranks are put together.
        large_header: whether headers of any size are read.

    Raises:
        TypeError: it is none of these.
        OSError: the file cannot be opened.
        CheckpointError: it is damaged, or no checkpoint.
    """
    if isinstance(value, Checkpoint):
        return _FileSide(value, owned=False)
    if isinstance(value, Mapping):
        return Side(f"the state dict {which}", getattr(value, "_metadata", None), value)
    if callable(getattr(type(value), "state_dict", None)):
        state = value.state_dict()
        side = Side(f"{type(value).__name__} {which}", getattr(state, "_metadata", None), state)
        side.keys = ModelKeys(value)
        return side
    if is_file(value):
        opened = open_checkpoint(value, at, join, large_header=large_header)
        return _FileSide(opened, owned=True)
    raise TypeError(
        f"only models, state dicts and checkpoints, by their paths, are compared; {which} is "
        f"{type(value).__name__}"
    )


class _FileSide(Side):
    """A checkpoint, whose tensors are read one by one."""

    def __init__(self, checkpoint: Checkpoint, owned: bool) -> None:
        part = f" ({checkpoint.part_of})" if checkpoint.part_of else ""
        name = f"{checkpoint.path}{part}"
        super().__init__(name, checkpoint.versions, checkpoint.raw_values)
        self._checkpoint, self._owned = checkpoint, owned
        self._plain: Side | None = None
        self.left_out = [*map(str, checkpoint.left_out), *checkpoint.passed_over]
        checkpoint.compare_checksums()
        for key in checkpoint.keys():
            if key not in checkpoint.raw_values:
                self.tensors[key] = self._facts(key)

    def _entry_of(self, key: str) -> Entry:
        """The entry whose memory a key names."""
        view = self._checkpoint.views.get(key)
        kept = self._checkpoint.ties.get(key, key) if view is None else view.of
        return self._checkpoint.entries[kept]

    def _facts(self, key: str) -> Facts:
        entry, view = self._entry_of(key), self._checkpoint.views.get(key)
        return Facts(tuple(entry.shape if view is None else view.shape), entry.dtype)

    def _read(self, key: str) -> np.ndarray:
        if key in self._values:
            return self._in_value(key)
        entry, view = self._entry_of(key), self._checkpoint.views.get(key)
        try:
            array_dtype(entry.dtype)
        except TypeError as error:
            if entry.dtype != "bfloat16":  # which comes as float32 then
                raise NoValues(str(error)) from None
        array = self._checkpoint.array(entry.key)
        return array if view is None else array_view(array, view)

    def _in_value(self, key: str) -> np.ndarray:
        """A tensor in a value, such as extra state."""
        if self._plain is None:
            self._plain = Side("", None, self._checkpoint.plain_values())
        value = self._plain._values[key]
        source = value.source if type(value) is TensorRecord else None
        return self._plain._read(key) if source is None else source

    def let_go(self) -> None:
        if self._owned:  # else the caller may have tensors of it, and have changed them
            self._checkpoint.let_go()

    def close(self) -> None:
        if self._owned:
            self._checkpoint.close()


#: How often one container is gone through: in a file it may be in itself, or everywhere.
_PLACES = 64


def _flat(state: Mapping[Any, Any]) -> Iterator[Any]:
    """Everything in mappings, in lists of mappings, and in what a file has of foreign objects that
    have tensors.
    """
    entered: Counter[int] = Counter()
    holders = Holders(state)

    def parts(items: Iterable[tuple[Any, Any]], prefix: str, depth: int) -> Iterator[Any]:
        for key, value in items:
            path = f"{prefix}{key}"
            inside = _inside(value, holders) if depth < _PLACES else None
            if inside is not None and entered[id(value)] < _PLACES:
                entered[id(value)] += 1
                yield from parts(inside, f"{path}.", depth + 1)
            else:
                yield path, value

    yield from parts(state.items(), "", 0)


def _inside(value: Any, holders: Holders) -> Iterable[tuple[Any, Any]] | None:
    """The parts of a value by their names; None of what is compared as one."""
    if isinstance(value, Mapping):
        fits = value and all(isinstance(name, (str, int)) for name in value)
        return value.items() if fits else None
    if type(value) in (list, tuple):
        fits = any(isinstance(item, Mapping) or item in holders for item in value)
        return enumerate(value) if fits else None
    if type(value) is StandIn and value in holders:
        return [("kind", value.text or value.kind), *value.parts()]
    return None


def _facts(value: Any) -> Facts | None:
    if type(value) is TensorRecord:
        return Facts(value.shape, value.dtype.name)
    family = families.family_of(value)
    if family is not None:
        if family.is_uninitialized(value):
            return Facts(None, family.dtype_name(value))
        return Facts(tuple(family.shape(value)), family.dtype_name(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcV":
        return Facts(value.shape, value.dtype.name)
    return None


def _versions(metadata: Any) -> dict[str, Any] | None:
    if not isinstance(metadata, Mapping):
        return None
    return {
        path: entry.get("version") for path, entry in metadata.items() if isinstance(entry, Mapping)
    }
