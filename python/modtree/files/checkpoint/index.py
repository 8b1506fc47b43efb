# SPDX-License-Identifier: BSD-3-Clause
"""The index of a sharded checkpoint: JSON that names the file of each key.

It is Hugging Face's: ``weight_map`` maps keys to names of files beside the index, ``metadata`` has
the bytes of all tensors as ``total_size``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from modtree.files.checkpoint.atomic import atomic_file
from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.beside import file_beside, plain_name
from modtree.files.checkpoint.json_text import parsed_json
from modtree.files.sources.source import PathSource, Source, source_of

__all__ = ["Index", "read_index", "write_index"]

#: A header of 100 MB has no more keys than an index of this size.
_LONGEST = 200_000_000


class Index(NamedTuple):
    """An index that was checked.

    Attributes:
        files: The path or address of the file for each key.
        metadata: The text beside them.
        sources: The files by their paths.
    """

    files: dict[str, str]
    metadata: dict[str, str]
    sources: dict[str, Source]


def read_index(source: Source, file: Any) -> Index:
    """Reads an index and checks that it names files beside itself.

    Args:
        source: Where it is.
        file: What opening that gave.

    Raises:
        CheckpointError: It is damaged, or leads out of its folder.
    """
    path = source.name
    size = file.seek(0, os.SEEK_END)
    if size > _LONGEST:
        raise CheckpointError(f"no index of shards: it has {size} bytes", path)
    file.seek(0)
    content = parsed_json(file.read(size), "index", path)
    files = content.get("weight_map")
    if type(files) is not dict:
        raise CheckpointError("no index of shards: it has no weight_map", path)
    checked: dict[Any, Source] = {}
    for key, name in files.items():
        if type(name) is not str or name not in checked:
            checked[name] = _shard(name, source, key)
    metadata = content.get("metadata")
    return Index(
        {key: checked[name].name for key, name in files.items()},
        _texts(metadata) if type(metadata) is dict else {},
        {shard.name: shard for shard in checked.values()},
    )


def _texts(metadata: dict[str, Any]) -> dict[str, str]:
    return {
        key: value if type(value) is str else shortened(value) for key, value in metadata.items()
    }


def _shard(name: Any, index: Source, key: str) -> Source:
    if isinstance(index, PathSource):
        path = file_beside(name, index.name, "the index", key)
        return source_of(PathSource(path), index.large_header)
    plain = plain_name(name, index.name, "the index", key)
    shard = source_of(index.beside(plain), index.large_header)
    if shard.name == index.name:
        raise CheckpointError("the index names itself", index.name, key)
    return shard


def write_index(path: str, files: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
    """Writes an index, whole or not at all; ``files`` maps keys to names of files."""
    import json  # takes a while, and few programs need it

    content = {"metadata": dict(metadata), "weight_map": dict(files)}
    with atomic_file(path) as file:
        try:
            file.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise CheckpointError(
                f"keys are written as UTF-8, which has no {wrong!a}",
                path,
                next((key for key in files if wrong in key), None),
            ) from None
