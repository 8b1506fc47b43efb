# SPDX-License-Identifier: BSD-3-Clause
"""Writing a checkpoint again in another format, in other dtypes, shards, or under other keys."""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from modtree.core.loading.codes import find_codes
from modtree.core.loading.rename import rename_keys
from modtree.core.patterns import matching_paths
from modtree.core.state_dict import StateDict
from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    View,
    bytes_of,
)
from modtree.files.checkpoint.dtypes import (
    BY_NAME,
    FileDtype,
    array_dtype,
    is_floating,
    known_dtype,
)
from modtree.files.checkpoint.reader import INDEX_ENDING, open_checkpoint
from modtree.files.checkpoint.record import Record, not_json
from modtree.files.checkpoint.replacing import OfCheckpoint
from modtree.files.checkpoint.save import (
    Contents,
    SafetensorsContents,
    full_metadata,
    write_checkpoint,
)
from modtree.files.checkpoint.shards import as_size, split
from modtree.files.pickled.stand_in import holds_stand_in

_ENDINGS = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".ckpt": "torch",
}
_OTHER_FILES = "other files"
_Types = Mapping[str, str]
_IN_FOLDERS = {"safetensors": "model.safetensors", "torch": "pytorch_model.bin"}


def convert(
    source: Any,
    target: Any,
    *,
    dtype: Any = None,
    rename: Any = None,
    max_shard_size: int | str | None = None,
    format: str | None = None,  # noqa: A002
    at: str | None = None,
    join: Any = None,
    progress: bool | None = None,
    atomic: bool = True,
    overwrite: bool = False,
    keep: Any = None,
) -> Changes:
    """See modtree.checkpoints.convert. Returns what became of the entries."""
    path, format = _target(target, format)  # noqa: A001
    name = None if dtype is None else _dtype_name(dtype)
    largest = None if max_shard_size is None else as_size(max_shard_size)
    with open_checkpoint(source, at, join) as checkpoint:
        checkpoint.compare_checksums()
        values = checkpoint.plain_values() if format == "torch" else checkpoint.raw_values
        keys, record, not_wanted = _renamed(checkpoint, rename, values)
        if at is not None and not keys and not record.values:
            reason = f"its part {at!r:.100} has nothing that can be written"
            raise CheckpointError(reason, checkpoint.path)
        changes = Changes(*_kept(checkpoint, keep, name))
        changes.part_of = checkpoint.part_of
        types = {
            key: _target_dtype(checkpoint, old, None if old in changes.kept else name)
            for key, old in keys.items()
        }
        contents: Contents
        texts: list[str] = []
        others: list[str] = []
        if format == "torch":
            # On top of this: the writer knows the records of files of torch.
            home = importlib.import_module("modtree.files.torch.converted")
            pieces = functools.partial(_counted, checkpoint, changes)
            metadata = _plain(checkpoint.metadata)
            contents = home.TorchContents(checkpoint, keys, record, types, pieces, metadata)
            has_index = len(split(contents.sizes.items(), largest)) > 1
            texts = [] if has_index else [name for name in metadata if name != "format"]
        else:
            if checkpoint.format == "distributed":  # which has an entry for each setting
                others = record.without_values(lambda value: not_json(value) is not None)
            contents = _safetensors(checkpoint, keys, record, types, path, changes)
        lost = changes.left_out = _left_out(checkpoint, not_wanted, texts, others)
        changed = [old for new, old in keys.items() if types[new] != checkpoint.entries[old].dtype]
        lost = {reason: names for reason, names in lost.items() if reason != _OTHER_FILES}
        if changed:
            lost[f"{name} now"] = changed
        leaves = {old: checkpoint.leaf(old) for old in keys.values()}
        with_attributes = [
            old for old, leaf in leaves.items() if leaf is not None and leaf.attributes
        ]
        if with_attributes and format != "torch":
            lost["their attributes"] = with_attributes
        reading = OfCheckpoint(source, checkpoint, lost)
        write_checkpoint(path, contents, reading, largest, progress, atomic, overwrite)
        return changes


class Changes:
    """What a conversion did to values.

    Args:
        codes: Entries that were not converted, since they are codes or belong to codes.
        wanted: Entries that were to keep their dtype.

    Attributes:
        part_of: What the source is a part of, if it is not the whole.
        left_out: What was not written, by the reason.
        infinite: How many values of an entry became infinite.
        zero: How many became zero.
    """

    def __init__(self, codes: list[str], wanted: set[str]) -> None:
        self.codes = codes
        self.kept = wanted.union(codes)
        self.part_of = ""
        self.left_out: dict[str, list[str]] = {}
        self.infinite: Counter[str] = Counter()
        self.zero: Counter[str] = Counter()

    def note(self, key: str, before: np.ndarray, after: np.ndarray) -> None:
        """Counts what became of the values of an entry, or of some of them."""
        finite = np.count_nonzero(np.isfinite(before)) - np.count_nonzero(np.isfinite(after))
        self.infinite += Counter({key: int(finite)})  # only what is positive stays
        self.zero += Counter({key: int(np.count_nonzero(before) - np.count_nonzero(after))})


def _kept(checkpoint: Checkpoint, keep: Any, name: str | None) -> tuple[list[str], set[str]]:
    """Codes and what belongs to them, where that would be converted; and what is to be kept.

    Raises:
        ValueError: No entry is.
    """
    wanted = set() if keep is None else matching_paths(keep, checkpoint.keys())
    if keep is not None and not wanted:
        raise ValueError(f"no entry matches what is to be kept, {keep!r:.100}")
    if name is None:
        return [], wanted
    codes = find_codes({key: entry.dtype for key, entry in checkpoint.entries.items()})
    alone = {*codes.beside, *codes.belonging}
    return [key for key in checkpoint.entries if key in alone], wanted


def _left_out(
    checkpoint: Checkpoint, not_wanted: list[str], texts: list[str], others: list[str]
) -> dict[str, list[str]]:
    """What a checkpoint has that is not written, by the reason.

    Args:
        checkpoint: The checkpoint.
        not_wanted: Keys that get no new one.
        texts: The names of text in its metadata that is not written.
        others: Keys of values that the format does not hold.
    """
    found = {"not wanted": not_wanted}
    beside = repr(checkpoint.found_under) if checkpoint.found_under else "the state dict"
    found[f"beside {beside}"] = list(map(str, checkpoint.left_out))
    found[_OTHER_FILES] = list(checkpoint.passed_over)
    foreign = [key for key, value in checkpoint.raw_values.items() if holds_stand_in(value)]
    found["neither tensors nor plain"] = foreign
    found["not tensors, nor JSON"] = others
    found["of the metadata"] = texts
    return {reason: keys for reason, keys in found.items() if keys}


def _target(target: Any, format: str | None) -> tuple[str, str]:  # noqa: A002
    """The file to be written, and its format."""
    path = os.fsdecode(os.fspath(target)).removesuffix(INDEX_ENDING)
    if format is None:
        ending = os.path.splitext(path)[1]
        format = "safetensors" if os.path.isdir(path) else _ENDINGS.get(ending)  # noqa: A001
    if format not in _IN_FOLDERS:
        raise ValueError(
            f"the format is to be 'safetensors' or 'torch', got {format!r}"
            if format
            else f"{path!r} does not say in which format to write: end it in .safetensors, .pt, "
            f".pth or .bin, or give the format, 'safetensors' or 'torch'"
        )
    return (os.path.join(path, _IN_FOLDERS[format]) if os.path.isdir(path) else path), format


def _dtype_name(dtype: Any) -> str:
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).rpartition(".")[2]
    known = BY_NAME.get(name)
    if known is None or known.bits < 8 or not is_floating(name):
        raise ValueError(f"dtype is to be a floating one, such as 'bfloat16', got {dtype!r}")
    array_dtype(name)  # TypeError where it takes a package that is not there
    return name


def _target_dtype(checkpoint: Checkpoint, key: str, name: str | None) -> str:
    own = checkpoint.entries[key].dtype
    is_converted = name is not None and is_floating(own) and own in BY_NAME
    return str(name) if is_converted and BY_NAME[own].bits >= 8 else own


# -- other keys ------------------------------------------------------------------------------------


def _renamed(
    checkpoint: Checkpoint, rename: Any, values: Mapping[str, Any]
) -> tuple[dict[str, str], Record, list[str]]:
    """New key -> key in the checkpoint, for what is written as tensors; the rest; and the keys that
    get no new one.
    """
    state = StateDict((key, key) for key in checkpoint.keys())
    if checkpoint.versions is not None:
        state._metadata = checkpoint.versions
    if rename is not None:
        state = rename_keys(state, rename)
    record = Record(versions=getattr(state, "_metadata", None))
    new_of = {old: new for new, old in state.items()}
    not_wanted = [key for key in checkpoint.keys() if key not in new_of]
    keys = {new: old for new, old in state.items() if old in checkpoint.entries}
    for place, (new, old) in enumerate(state.items()):
        if old in checkpoint.entries:
            continue
        if old in checkpoint.ties:
            kept = checkpoint.ties[old]
            if kept not in new_of:  # left out; this one takes its place
                keys[new], new_of[kept] = kept, new
                continue
            record.ties[new] = new_of[kept]
        elif old in checkpoint.views:
            record.views[new] = _renamed_view(checkpoint, old, new_of)
        elif holds_stand_in(values[old]):
            continue
        else:
            value = values[old]
            record.values[new] = value.item() if isinstance(value, np.generic) else value
        record.places[new] = place
    return keys, record, not_wanted


def _renamed_view(checkpoint: Checkpoint, key: str, new_of: Mapping[str, str]) -> View:
    view = checkpoint.views[key]
    if view.of not in new_of:
        raise CheckpointError(
            f"it lies in the memory of {view.of!r}, which is to be left out", checkpoint.path, key
        )
    return replace(view, of=new_of[view.of])


# -- safetensors -----------------------------------------------------------------------------------


def _safetensors(
    checkpoint: Checkpoint,
    keys: dict[str, str],
    record: Record,
    types: _Types,
    path: str,
    changes: Changes,
) -> SafetensorsContents:
    def file_dtype(key: str) -> FileDtype:
        if types[key] not in BY_NAME:
            raise CheckpointError(f"safetensors files have no {types[key]}", path, keys[key])
        return BY_NAME[types[key]]

    return SafetensorsContents(
        {key: (file_dtype(key), checkpoint.entries[old].shape) for key, old in keys.items()},
        lambda news: _all_converted(checkpoint, changes, {keys[key]: types[key] for key in news}),
        full_metadata(
            _plain(checkpoint.metadata), keys, record, path, "a target that ends in .pt holds it"
        ),
    )


def _plain(metadata: Mapping[str, str]) -> dict[str, str]:
    """Without what only the files of the source could say."""
    return {key: text for key, text in metadata.items() if key != "total_size"}


def _all_converted(
    checkpoint: Checkpoint, changes: Changes, dtypes: _Types
) -> Iterator[memoryview]:
    """The bytes of entries, one after the other, in the dtype that is named for each."""
    for key, name in dtypes.items():
        yield from _counted(checkpoint, changes, key, name)


def _counted(checkpoint: Checkpoint, changes: Changes, key: str, name: str) -> Iterator[memoryview]:
    """The bytes of an entry in a dtype: as many as it takes."""
    known = BY_NAME.get(name)
    bits = known_dtype(name).itemsize * 8 if known is None else known.bits
    expected = math.prod(checkpoint.entries[key].shape) * bits // 8
    count = 0
    for piece in _converted(checkpoint, changes, key, name):
        count += piece.nbytes
        yield piece
    if count != expected:
        raise CheckpointError(f"{count} bytes came for {expected} of it", checkpoint.path, key)


def _converted(
    checkpoint: Checkpoint, changes: Changes, key: str, name: str
) -> Iterator[memoryview]:
    """The bytes of an entry in another dtype."""
    own = checkpoint.entries[key].dtype
    if own == name:
        yield from _streamed(checkpoint, key)
        return
    try:
        source, target = array_dtype(own), array_dtype(name)
    except TypeError as error:
        raise CheckpointError(str(error), checkpoint.path, key) from None
    for chunk in _streamed(checkpoint, key):
        before = np.frombuffer(chunk, source)
        with np.errstate(over="ignore"):  # what becomes infinite is counted
            after = before.astype(target)
        changes.note(key, before, after)
        yield bytes_of(after)


def _streamed(checkpoint: Checkpoint, key: str) -> Iterator[memoryview]:
    """The bytes of an entry, whose memory is given back piece by piece."""
    for chunk in checkpoint.chunks(key):
        yield chunk
        checkpoint.let_go()
