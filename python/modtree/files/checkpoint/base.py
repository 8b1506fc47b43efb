# SPDX-License-Identifier: BSD-3-Clause
"""What every reader of checkpoints answers, whatever the format of its files."""

from __future__ import annotations

import abc
import contextlib
import functools
import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from modtree import _C, _imports
from modtree.core.state_dict import StateDict
from modtree.core.strides import strided_view

_NONE: Mapping[str, Any] = MappingProxyType({})


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written. The arguments are its attributes too.

    Args:
        reason: What is wrong.
        file: The path of the file, or None.
        tensor: The key of the entry with which something is wrong, or None.
    """

    __module__ = "modtree"  # where users find it
    #: False where the file may be whole: it is another one, or something is needed to read it.
    is_damage = True
    #: True where the caller gave rules for files of ranks, and there are none.
    is_of_rules = False

    def __init__(self, reason: str, file: Any = None, tensor: str | None = None) -> None:
        self.reason = reason
        self.file = None if file is None else str(file)
        self.tensor = tensor
        super().__init__(reason, self.file, tensor)

    def __str__(self) -> str:
        where = [] if self.file is None else [self.file]
        where += [] if self.tensor is None else [f"tensor {shortened(self.tensor)}"]
        return ": ".join([*where, self.reason])


def checkpoint_error(error: Exception, file: Any, tensor: str | None = None) -> CheckpointError:
    """The error of a checkpoint for one of its pickle."""
    made = CheckpointError(str(error), file, tensor)
    made.is_damage = getattr(error, "is_damage", True)
    return made


def bytes_of(array: np.ndarray) -> memoryview:
    """The bytes of the elements in their order; a copy where they do not lie so in memory."""
    elements = np.ascontiguousarray(array).reshape(-1)
    return memoryview(elements.view(np.uint8))  # type: ignore[arg-type]


def tensor_of(array: np.ndarray) -> Any:
    """A tensor of modtree over the memory of an array."""
    _imports.need_numpy_side()  # many programs read files without making such a tensor
    return _C.from_array(array)


def shortened(value: Any, length: int = 120) -> str:
    """A value from a file, as a message shows it: on one line, and not longer than a line."""
    text = ascii(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def natural(name: str) -> list[Any]:
    """A key for sorting names by the numbers in them: layer 2 comes before layer 10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(part), "") if at % 2 else (1, 0, part) for at, part in enumerate(parts)]


class Entry(NamedTuple):
    """A tensor of a checkpoint, without its values.

    Attributes:
        key: Its key in the state dict.
        shape: Its shape.
        dtype: torch's name of its dtype, without the module: "float32", "bfloat16".
        nbytes: The bytes of its values in the file.
        file: The path of the file that holds it; of the first one, where several hold parts of it.
        files: The paths of all of them, where they are several.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    file: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """Where in the memory of another tensor a tensor lies; strides and offset in elements."""

    of: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Checkpoint(abc.ABC):
    """An open checkpoint. Tensors that were taken from it stay valid after :meth:`close`.

    Attributes:
        path: The path that was opened.
        format: "safetensors", "torch", "torchscript", "modtree", "pickle", "distributed", ...
        entries: The tensors by key, in the order of the file.
        metadata: The text that stands beside the tensors.
        ties: Keys that the file has no tensor of its own for -> the key whose tensor is theirs too.
        views: Keys of tensors that lie in the memory of another one.
        values: Entries of the state dict that are no tensors: what ``get_extra_state`` returned.
        places: At which place in the state dict ties, views and values stand, where that is known.
        versions: The ``_metadata`` of the state dict, or None where the file does not know it.
        found_under: Under which name the file has the state dict; "" for the file itself.
        left_out: The names of other parts that the file has beside the state dict.
        source: The file in an archive that was opened.
        part_of: What it is a part of, where the file is one of several: "part 1 of 3".
        passed_over: The names of files and folders that are beside it in its folder, and hold more.
        choices: The names of state dicts of which the caller has to choose one.
        foreign: How many classes and functions the file names that are not imported.
        in_parts: Foreign objects by key whose tensors are entries under that key.
        members: Files in a folder that are checkpoints themselves.
        is_read_to_verify: Whether :meth:`damages` reads anything.
    """

    path: str
    format: str
    entries: dict[str, Entry]
    metadata: dict[str, str]
    ties: Mapping[str, str] = _NONE
    views: Mapping[str, View] = _NONE
    values: Mapping[str, Any] = _NONE
    places: Mapping[str, int] = _NONE
    versions: Any = None
    found_under: str = ""
    left_out: Sequence[Any] = ()
    source: Any = None
    part_of: str = ""
    passed_over: Sequence[str] = ()
    choices: Sequence[str] = ()
    foreign: int = 0
    in_parts: Mapping[str, Any] = _NONE
    members: Sequence[str] = ()
    is_read_to_verify: bool = False

    @property
    def raw_values(self) -> Mapping[str, Any]:
        """:attr:`values` as the file has them: tensors in them need not be made."""
        return self.values

    def plain_values(self) -> Mapping[str, Any]:
        """:attr:`values` with the arrays of tensors in them, for a file of torch."""
        return self.values

    def leaf(self, key: str) -> Any:
        """The record that a file of torch has of an entry; None where the file is of another form:
        then it is a plain tensor.
        """
        return None

    def tensor(self, key: str) -> Any:
        """The tensor of an entry, over the mapped file where the format allows it.

        Raises:
            KeyError: There is no such entry.
            CheckpointError: The file is damaged there, or NumPy has no such dtype.
        """
        return tensor_of(self.array(key))

    def let_go(self) -> None:  # noqa: B027
        """Gives back the memory of values that were read, and of changes to them: for whoever reads
        one after the other and hands none of them out.
        """

    def compare_checksums(self) -> None:  # noqa: B027
        """Compares, from now on, the checksums of what is read, where the format has any: for
        whoever says that values are right, or writes them to a file of their own.
        """

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        """Reads what opening has not read, as a load does: all that is wrong with it.

        Args:
            advance: Called with the bytes that were read.
        """
        return iter(())

    def parts(self) -> Sequence[Any]:
        """What a file with several parts has: the name of each, what it is in words, the number of
        its ``tensors`` and their ``nbytes``.
        """
        return ()

    def storage_sizes(self) -> tuple[int, int]:
        """The bytes of storage that the file has, and those that tensors use, where a tensor may be
        a view of a larger one.
        """
        return 0, 0

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of all entries."""
        return {key: entry.shape for key, entry in self.entries.items()}

    @abc.abstractmethod
    def array(self, key: str) -> np.ndarray:
        """The values of an entry as an array, which shares their memory with :meth:`tensor`."""

    def part(self, key: str, index: Any) -> np.ndarray:
        """Some of the values of an entry as an array: of one in several files, only those that the
        index names are read.

        Args:
            key: The key of the entry.
            index: Numbers and slices, as NumPy takes them: ``(slice(0, 8), ...)``.
        """
        return self.array(key)[index]

    def contents(self) -> Any:
        """Everything that there is, with tensors: the object of a training checkpoint, or the state
        dict.
        """
        return self.state_dict()

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        """The bytes of an entry in their order, little-endian, in pieces of at most ``size``. Each
        is valid until the next one is asked for.
        """
        array = self.array(key)
        if array.dtype.name != self.entries[key].dtype:
            raise CheckpointError(
                f"reading {self.entries[key].dtype} takes the package ml_dtypes (pip install "
                f"ml_dtypes)",
                self.path,
                key,
            )
        if sys.byteorder == "big":
            array = array.byteswap()
        data = bytes_of(array)
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def state_dict(self) -> Any:
        """All entries, ties, views and values, with the versions of modules as ``_metadata``."""
        return self.complete({key: self.tensor(key) for key in self.entries})

    def keys(self) -> list[str]:
        """The keys of the state dict, in its order."""
        late = dict.fromkeys((*self.ties, *self.views, *self.raw_values))
        if not late:
            return list(self.entries)
        return [key for key, _ in _in_place(dict.fromkeys(self.entries), late, self.places)]

    def complete(self, tensors: dict[str, Any]) -> Any:
        """The state dict that has these tensors as its entries."""
        state = completed(tensors, self)
        if maps := self.maps():
            found = [(path, weakref.ref(file_map)) for path, file_map in maps.items()]
            state._origin = functools.partial(_versions_of_whole, found, self.versions)
            vars(state).pop("_metadata", None)
            _versions_of_whole(found, None)
        return state

    def maps(self) -> Mapping[str, Any]:
        """The maps that tensors are in, by the paths of the files."""
        return _NONE

    @abc.abstractmethod
    def close(self) -> None:
        """Gives the files back. Nothing more can be read; what was read stays."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextlib.contextmanager
def closed_on_error(checkpoint: Checkpoint) -> Iterator[None]:
    """Closes what cannot be opened to its end."""
    try:
        yield
    except BaseException:
        checkpoint.close()
        raise


def _versions_of_whole(maps: list[tuple[str, Any]], versions: Any) -> Any:
    """The versions of modules, if the files of tensors are as long as they were.

    Raises:
        CheckpointError: A file is shorter.
    """
    for path, reference in maps:
        file_map = reference()
        if file_map is not None and not file_map.is_whole():
            raise CheckpointError(
                f"the file was truncated after it was opened: {len(file_map):,} bytes are mapped, "
                f"and {file_map.size():,} are left",
                path,
            )
    return versions


def completed(
    tensors: dict[str, Any],
    beside: Any,
    view_of: Callable[[Any, View], Any] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Any:
    """The state dict of these tensors and what stands beside them.

    Args:
        tensors: By their keys.
        beside: A :class:`Checkpoint`, or what else has its ties, views, values, places, versions.
        view_of: Makes a view of one of them; without it, as a tensor of modtree.
        values: The values, if not those of ``beside``.
    """
    make = _view_of if view_of is None else view_of
    late = {key: tensors[kept] for key, kept in beside.ties.items()}
    made = {view: make(tensors[view.of], view) for view in set(beside.views.values())}
    late |= {key: made[view] for key, view in beside.views.items()}
    late |= beside.values if values is None else values
    state = StateDict(tensors if not late else _in_place(tensors, late, beside.places))
    if beside.versions is not None:
        state._metadata = beside.versions
    return state


def _view_of(tensor: Any, view: View) -> Any:
    return tensor_of(array_view(tensor._array, view))


def array_view(array: np.ndarray, view: View) -> np.ndarray:
    """A view of an array."""
    steps = [stride * array.itemsize for stride in view.strides]
    return strided_view(array.reshape(-1)[view.offset :], view.shape, steps)


def _in_place(
    tensors: dict[str, Any], late: dict[str, Any], places: Mapping[str, int]
) -> Iterator[tuple[str, Any]]:
    """All entries; those that come late at their places, the others in their order."""
    at = {place: key for key, place in places.items() if key in late}
    waiting = iter(tensors.items())
    place = 0
    while at:
        key = at.pop(place, None)
        entry = next(waiting, None) if key is None else (key, late.pop(key))
        if entry is None:
            break
        yield entry
        place += 1
    yield from waiting
    yield from late.items()


# -- no collections of garbage ---------------------------------------------------------------------


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Of 300,000 entries, the collector would look at all that there are again and again, which
    takes longer than to make them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
