# SPDX-License-Identifier: BSD-3-Clause
"""Writing state dicts as safetensors files, one or several with an index.

A checkpoint has one path, that of its file. Its shards stand beside it, and their index at the path
and ``.index.json``. Readers take the file where it is there and the index where it is not, so each
change from one checkpoint to the next is one rename or one removal:

- A file takes the place of whatever was there by its rename; the index and its shards are removed
  afterwards.
- Shards are written under names that no index has, then the index is renamed, which is the change;
  then what the older index named is removed, and a single file, too.
- Then the new shards get their usual names as second names, an index with those replaces the first
  one, and the first names are removed. At each moment all files that the index names are there.
"""

from __future__ import annotations

import abc
import contextlib
import math
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import IO, Any

from modtree.files.checkpoint.atomic import (
    AtomicFiles,
    atomic_file,
    folder_lock,
    remove_leftovers,
    sync_folder,
)
from modtree.files.checkpoint.base import without_collections
from modtree.files.checkpoint.dtypes import FileDtype
from modtree.files.checkpoint.leaves import leaves_of
from modtree.files.checkpoint.progress import progress_bar
from modtree.files.checkpoint.reader import INDEX_ENDING
from modtree.files.checkpoint.record import RECORD_KEY, Record
from modtree.files.checkpoint.replacing import OfTensors, Reading, check_replaced
from modtree.files.checkpoint.shards import (
    as_size,
    is_named,
    is_shard_of,
    shard_names,
    split,
    write_index,
)
from modtree.files.safetensors import write_safetensors

# -- what is written -------------------------------------------------------------------------------

#: What other programs look for in the metadata: in whose layout tensors are written.
FORMAT = {"format": "pt"}


class Contents(abc.ABC):
    """The tensors of a checkpoint.

    Attributes:
        sizes: The bytes of each tensor by key, in the order of the state dict.
        metadata: Text that stands beside them, the record of ties, values and versions too.
    """

    sizes: Mapping[str, int]
    metadata: Mapping[str, str]

    @abc.abstractmethod
    def write(
        self,
        file: IO[bytes],
        path: str,
        keys: Sequence[str],
        metadata: Mapping[str, str],
        advance: Callable[[int], None],
    ) -> None:
        """Writes some of the tensors into an open file.

        Args:
            file: The file.
            path: Its path, for errors.
            keys: Those of the tensors.
            metadata: What stands beside them in this file.
            advance: Called with the number of bytes that were written.
        """

    def names(self, keys: Sequence[str]) -> Sequence[str]:
        """All keys that are read from a file with these."""
        return keys


class SafetensorsContents(Contents):
    """Tensors for safetensors files.

    Args:
        tensors: dtype and shape by key.
        pieces: Gives the bytes of tensors one after the other, in pieces.
        metadata: The text beside them.
    """

    def __init__(
        self,
        tensors: Mapping[str, tuple[FileDtype, tuple[int, ...]]],
        pieces: Callable[[Sequence[str]], Iterable[Any]],
        metadata: Mapping[str, str],
    ) -> None:
        self.sizes = {
            key: math.prod(shape) * dtype.bits // 8 for key, (dtype, shape) in tensors.items()
        }
        self.metadata = metadata
        self._tensors = tensors
        self._pieces = pieces

    def write(
        self,
        file: IO[bytes],
        path: str,
        keys: Sequence[str],
        metadata: Mapping[str, str],
        advance: Callable[[int], None],
    ) -> None:
        tensors = {key: self._tensors[key] for key in keys}
        write_safetensors(file, path, tensors, metadata, self._pieces, advance)


# -- files -----------------------------------------------------------------------------------------


def save_state(
    model_or_state: Any,
    path: Any,
    metadata: Mapping[str, str] | None,
    max_shard_size: Any,
    progress: bool | None,
    atomic: bool,
    overwrite: bool,
) -> None:
    """See modtree.save_file."""
    file = target_path(path)
    largest = None if max_shard_size is None else as_size(max_shard_size)
    state = _state_of(model_or_state)
    with without_collections():
        leaves, record = leaves_of(state, file)
        contents = SafetensorsContents(
            leaves.tensors, leaves.pieces, full_metadata(metadata, leaves.tensors, record, file)
        )
        reading = OfTensors(state)
        write_checkpoint(file, contents, reading, largest, progress, atomic, overwrite)


def target_path(path: Any) -> str:
    """The file that a path names: in a folder that is there, model.safetensors."""
    file = os.fsdecode(os.fspath(path))
    return os.path.join(file, "model.safetensors") if os.path.isdir(file) else file


def _state_of(value: Any) -> Mapping[str, Any]:
    if callable(getattr(value, "state_dict", None)):
        value = value.state_dict()
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a module or a state dict, got {type(value).__name__}")
    return value


def full_metadata(
    metadata: Mapping[str, str] | None,
    keys: Container[str],
    record: Record,
    path: str,
    advice: str | None = None,
) -> dict[str, str]:
    """A user's metadata, after a check, with what the record adds.

    Args:
        metadata: The user's.
        keys: Those of the tensors.
        record: What there is besides.
        path: Of the file, for errors.
        advice: What to do about values that cannot be written.

    Raises:
        TypeError: It is more than text.
        ValueError: One of its names is taken.
        CheckpointError: The record cannot be written.
    """
    given = {} if metadata is None else dict(metadata)
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"metadata maps text to text, got {key!r:.80}: {value!r:.80}; write other values "
                f"with str() or json.dumps()"
            )
    own = record.metadata(path, advice)
    if clash := given.keys() & (own.keys() | {RECORD_KEY}):
        raise ValueError(f"the name {min(clash)!r} is taken in the metadata of this file")
    if any(value in keys and key not in keys for key, value in given.items()):
        own.setdefault(RECORD_KEY, "{}")  # else it would read as the name of a tie
    return FORMAT | given | own


def write_checkpoint(
    path: str,
    contents: Contents,
    reading: Reading,
    largest: int | None,
    progress: bool | None,
    atomic: bool,
    overwrite: bool,
) -> None:
    """Writes a checkpoint, in several files where one would be larger than wanted.

    Args:
        path: Of its file, or of what would be its file.
        contents: What to write.
        reading: What is read for it.
        largest: The most bytes of tensors in a file; None writes one file.
        progress: Whether to show a bar.
        atomic: Whether the file takes the place of the old one when it is complete.
        overwrite: Whether something of what is read may be lost.
    """
    groups = split(contents.sizes.items(), largest)
    check_replaced(path, reading, overwrite, atomic, replaced_with(path, len(groups) > 1))
    total = sum(contents.sizes.values())
    with progress_bar(total, f"Writing {os.path.basename(path)}", progress) as advance:
        if len(groups) > 1:
            if not atomic:
                raise ValueError(
                    f"{path}: atomic=False writes into one file, and these would be {len(groups)}: "
                    f"give no max_shard_size"
                )
            _write_shards(path, contents, groups, total, advance)
            return
        with atomic_file(path, atomic) as file:
            contents.write(file, path, groups[0], contents.metadata, advance)
    if os.path.exists(path + INDEX_ENDING):
        with folder_lock(os.path.dirname(path) or "."):
            if os.path.exists(path):  # else another process has put its shards in its place
                _remove(path + INDEX_ENDING)
                _remove_shards(path)


def replaced_with(path: str, in_shards: bool) -> list[str]:
    """The files that are replaced or removed when a checkpoint is written to a path."""
    index, folder = path + INDEX_ENDING, os.path.dirname(path)
    if not in_shards and not os.path.exists(index):
        return []
    shards = sorted(name for name in os.listdir(folder or ".") if is_shard_of(name, path))
    return [index, *(os.path.join(folder, name) for name in shards)]


def _write_shards(
    path: str,
    contents: Contents,
    groups: list[list[str]],
    total: int,
    advance: Callable[[int], None],
) -> None:
    folder = os.path.dirname(path) or "."
    first = shard_names(path, len(groups), os.urandom(4))
    with folder_lock(folder):
        _remove_abandoned(path)
        try:
            with AtomicFiles() as files:
                for name, keys in zip(first, groups, strict=True):
                    shard = os.path.join(folder, name)
                    with files.open(shard) as file:
                        contents.write(file, shard, keys, FORMAT, advance)
            places = {key: i for i, keys in enumerate(groups) for key in contents.names(keys)}
            publish_shards(path, first, places, {"total_size": total, **contents.metadata})
        except BaseException:
            # An interrupt may come right behind a rename of the index.
            if not is_named(first[0], path + INDEX_ENDING):
                for name in first:
                    _remove(os.path.join(folder, name))
            raise


def publish_shards(
    path: str, first: list[str], places: Mapping[str, int], metadata: Mapping[str, Any]
) -> None:
    """Puts shards in the place of the checkpoint that a path has.

    Args:
        path: Of what would be the file of the checkpoint.
        first: The temporary names of the shards.
        places: For each key, the number of its shard.
        metadata: What is written into the index.
    """
    folder, index = os.path.dirname(path) or ".", path + INDEX_ENDING
    usual = shard_names(path, len(first))
    write_index(index, {key: first[i] for key, i in places.items()}, metadata)
    _remove(path)
    _remove_shards(path, *first)
    if _link_all(folder, first, usual):
        write_index(index, {key: usual[i] for key, i in places.items()}, metadata)
        _remove_shards(path, *usual)


def _link_all(folder: str, names: list[str], others: list[str]) -> bool:
    """Gives files second names. False where the file system has no such thing: then the first ones
    stay, which readers take from the index as well.
    """
    try:
        for name, other in zip(names, others, strict=True):
            os.link(os.path.join(folder, name), os.path.join(folder, other))
    except (OSError, NotImplementedError, AttributeError):
        return False
    sync_folder(folder)
    return True


def _remove(file: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file)


def _remove_abandoned(path: str) -> None:
    """Removes what saves to this path left that were killed: shards under temporary names that no
    index came to name. Else each of them would leave as much as a whole checkpoint.
    """
    folder = os.path.dirname(path)
    remove_leftovers(folder, lambda name: is_shard_of(name, path))
    for name in os.listdir(folder or "."):
        if is_shard_of(name, path, only_temporary=True):
            if not is_named(name, path + INDEX_ENDING):
                _remove(os.path.join(folder, name))


def _remove_shards(path: str, *kept: str) -> None:
    """Removes shards of other saves to this path, and what is left of those that were killed."""
    folder = os.path.dirname(path)
    remove_leftovers(folder, lambda name: is_shard_of(name, path))
    for name in os.listdir(folder or "."):
        if name not in kept and is_shard_of(name, path):
            _remove(os.path.join(folder, name))
