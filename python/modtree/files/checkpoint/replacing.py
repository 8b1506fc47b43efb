# SPDX-License-Identifier: BSD-3-Clause
"""Refusing to replace what is read, where something of it would be lost.

A writer names its output, and the name says little: a link, a folder, the name of a shard or of an
index may lead to what is read. Files are told apart by device and inode. All that writes comes
here before it touches a file.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from modtree.core.families import family_of
from modtree.files.checkpoint.base import Checkpoint, CheckpointError, shortened
from modtree.files.checkpoint.mapped import maps_in_use
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.checkpoint.reader import INDEX_ENDING, open_parts
from modtree.files.checkpoint.shards import is_named
from modtree.files.sources.source import source_of

_Identity = tuple[int, int]
#: Formats of files that have nothing that a converted one does not have.
_FORMATS = ("safetensors", "torch", "modtree", "pickle", "npz")
_FEW = 3


def _identity(file: Any) -> _Identity | None:
    """Device and inode of what has a name or a descriptor; None where there is nothing."""
    try:
        status = os.stat(file)
    except (OSError, TypeError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _identities(files: Iterable[Any]) -> set[_Identity]:
    return {found for file in files if (found := _identity(file)) is not None}


class Reading(abc.ABC):
    """What a writer reads.

    Attributes:
        in_place: Why atomic=False does not write into it, and what to do.
    """

    in_place: str

    @abc.abstractmethod
    def files(self, replaced: set[_Identity]) -> set[_Identity]:
        """Those of the files that are to be replaced that are read."""

    @abc.abstractmethod
    def lost(self, path: str, replaced: Mapping[str, _Identity]) -> Iterator[str]:
        """What would be in no file afterwards.

        Args:
            path: What was named as the output.
            replaced: The files that are to be replaced or removed, that one perhaps among them.
        """


def check_replaced(
    path: Any,
    reading: Reading,
    overwrite: bool | None,
    atomic: bool = True,
    others: Iterable[str] = (),
) -> None:
    """Called before anything is written.

    Args:
        path: The output.
        reading: What is read.
        overwrite: Whether what is read may be lost; None where a caller cannot say that.
        atomic: Whether the old files stay until the new ones are complete.
        others: The files that are replaced or removed besides.

    Raises:
        CheckpointError: Something would be lost.
        ValueError: What is read would be written into.
    """
    path = os.fsdecode(os.fspath(path))
    files = (path, *others)
    there = {file: found for file in files if (found := _identity(file)) is not None}
    read = reading.files(set(there.values())) if there else set()
    if not read:
        return
    if not atomic and _identity(path) in read:
        raise ValueError(f"{path}: {reading.in_place}")
    lost = [] if overwrite else list(reading.lost(path, there))
    if lost:
        names = _few([os.path.basename(file) for file, found in there.items() if found in read])
        how = "" if overwrite is None else ", or pass overwrite=True (--overwrite)"
        raise not_damaged(
            CheckpointError(
                f"this replaces {names}, part of what is read, and would lose "
                f"{'; '.join(lost)}: name another target{how}",
                path,
            )
        )


def _without_strays(
    path: str, replaced: Mapping[str, _Identity], read: set[_Identity]
) -> Mapping[str, _Identity]:
    """Leaves out the shards that a killed save left, which no reader opens: all of them beside a
    whole file, and those that the index does not name.
    """
    if replaced.get(path) in read:
        return {path: replaced[path]}
    index = path + INDEX_ENDING
    return {
        file: found
        for file, found in replaced.items()
        if found in read or file in (path, index) or is_named(os.path.basename(file), index)
    }


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


# -- a checkpoint ----------------------------------------------------------------------------------


class OfCheckpoint(Reading):
    """A checkpoint, which is written again.

    Args:
        given: What the caller named.
        checkpoint: What that is.
        not_written: What is in the checkpoint and not in the new one, by the reason.
    """

    in_place = "atomic=False writes into the file itself, which is being read: name another target"

    def __init__(
        self, given: Any, checkpoint: Checkpoint, not_written: Mapping[str, list[str]]
    ) -> None:
        self._given = given
        self._checkpoint = checkpoint
        self._not_written = not_written

    def files(self, replaced: set[_Identity]) -> set[_Identity]:
        found = self._files() & replaced
        for place in {source_of(self._given).name, self._checkpoint.path}:
            folder = os.path.dirname(place) if os.path.basename(place) == ".metadata" else place
            for home, _, names in os.walk(folder):
                found |= _identities(os.path.join(home, name) for name in names) & replaced
        return found

    def _files(self) -> set[_Identity]:
        """Those that have the entries, and the index of shards."""
        files: set[Any] = {self._checkpoint.path}
        for entry in self._checkpoint.entries.values():
            files.update(entry.files or (entry.file,))
        try:
            files.add(self._given.fileno())
        except (AttributeError, OSError):
            pass
        return _identities(files)

    def lost(self, path: str, replaced: Mapping[str, _Identity]) -> Iterator[str]:
        of_tensors = self._files()
        replaced = _without_strays(path, replaced, of_tensors)
        if not of_tensors.isdisjoint(replaced.values()):
            yield from self._lost()
        read = self.files(set(replaced.values()))
        others = [
            os.path.basename(file)
            for file, found in replaced.items()
            if found not in of_tensors and (file != path or found in read)
        ]
        if others:
            yield f"all that is in {_few(others)}"

    def _lost(self) -> Iterator[str]:
        for reason, names in self._not_written.items():
            yield f"{_few([shortened(name) for name in names])} ({reason})"
        if self._checkpoint.format not in _FORMATS:
            yield f"what a checkpoint of the format {self._checkpoint.format} has beside tensors"
        if self._checkpoint.foreign:
            yield "objects that are neither tensors nor plain"


# -- tensors in memory -----------------------------------------------------------------------------


class OfTensors(Reading):
    """Tensors that are in maps of files.

    Args:
        values: An object with tensors in it.
        is_written: Whether it is this that is written.
    """

    in_place = (
        "tensors of this process are in the map of the file, and atomic=False writes into it: copy "
        "them first (clone(), copy.deepcopy()), and let go of these"
    )

    def __init__(self, values: Any, is_written: bool = True) -> None:
        self._values = values
        self._is_written = is_written

    def files(self, replaced: set[_Identity]) -> set[_Identity]:
        places = _Places(replaced)
        if not places.has_maps:
            return set()
        found = (places.of(value) for _, value in _leaves(self._values))
        return {place[0] for place in found if place is not None}

    def lost(self, path: str, replaced: Mapping[str, _Identity]) -> Iterator[str]:
        read = self.files(set(replaced.values()))
        replaced = _without_strays(path, replaced, read)
        for file, found in replaced.items():
            if file.endswith(INDEX_ENDING) or (file == path and found not in read):
                continue  # what an index says is made anew, and an output that is not read may go
            with open_parts(file) as checkpoint:
                names = list(self._lost(checkpoint.contents(), set(replaced.values())))
            if names:
                yield f"{_few(names)} (in {os.path.basename(file)}, and not written)"

    def _lost(self, old: Any, replaced: set[_Identity]) -> Iterator[str]:
        places = _Places(replaced)
        written = _leaves(self._values) if self._is_written else ()
        new = {name: places.of(value) for name, value in written}
        kept = set(new.values()) - {None}
        for name, value in _leaves(old):
            place = places.of(value)
            # A new value may have its name, but not another part of what is read.
            has_value = name in new and (place is None or new[name] is None)
            if place not in kept and not has_value:
                yield shortened(".".join(map(str, name)))


class _Places:
    """Where in the maps of some files tensors are."""

    def __init__(self, files: set[_Identity]) -> None:
        self._maps = []
        for found in maps_in_use():
            identity = found.status.st_dev, found.status.st_ino
            if identity in files:
                start = np.frombuffer(found, np.uint8, 1).__array_interface__["data"][0]
                self._maps.append((start, start + len(found), identity))
        self.has_maps = bool(self._maps)

    def of(self, value: Any) -> tuple[_Identity, int, int] | None:
        """The file of a tensor, where in it its values begin, and their bytes; None of others."""
        address, nbytes = _address(value), getattr(value, "nbytes", 0)
        for start, end, identity in self._maps if nbytes else ():
            if start <= address < end:
                return identity, address - start, nbytes
        return None


def _address(value: Any) -> int:
    """The address of the values of a tensor in main memory; 0 of everything else."""
    if isinstance(value, np.ndarray):
        return int(value.__array_interface__["data"][0])
    if family_of(value) is None:
        return 0
    try:
        pointer = getattr(value, "data_ptr", None) or value.unsafe_buffer_pointer
        return int(pointer())
    except Exception:  # libraries have many errors for tensors whose values are elsewhere
        return 0


def _leaves(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What is in containers and state dicts, with the keys on the way."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    seen: dict[int, Any] = {}
    while waiting:
        name, value = waiting.pop()
        if family_of(value) is None and callable(getattr(value, "state_dict", None)):
            value = value.state_dict()
        if isinstance(value, Mapping):
            items: Iterable[tuple[Any, Any]] = value.items()
        elif isinstance(value, (list, tuple, set, frozenset)):
            items = enumerate(value)
        else:
            yield name, value
            continue
        if id(value) not in seen:
            seen[id(value)] = value  # no other object gets its number
            waiting += reversed([((*name, key), item) for key, item in items])
