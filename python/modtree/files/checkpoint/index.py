# SPDX-License-Identifier: BSD-3-Clause
"""The index of a sharded checkpoint: JSON that names the file of each key.

It is Hugging Face's: ``weight_map`` maps keys to names of files beside the index, ``metadata`` has
the bytes of all tensors as ``total_size``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from modtree.files.checkpoint.atomic import atomic_file
from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.beside import file_beside
from modtree.files.checkpoint.json_text import parsed_json
from modtree.files.checkpoint.mapped import open_regular

__all__ = ["Index", "read_index", "write_index"]

#: A header of 100 MB has no more keys than an index of this size.
_LONGEST = 200_000_000


class Index(NamedTuple):
    """An index that was checked: the path of the file for each key, and the text beside them."""

    files: dict[str, str]
    metadata: dict[str, str]


def read_index(path: str, file: Any = None) -> Index:
    """Reads an index and checks that it names files beside itself.

    Args:
        path: Its path.
        file: The open file, where there is one.

    Raises:
        CheckpointError: It is damaged, or leads out of its folder.
    """
    with open_regular(path) if file is None else contextlib.nullcontext(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > _LONGEST:
            raise CheckpointError(f"no index of shards: it has {size} bytes", path)
        data = opened.read(size)
    content = parsed_json(data, "index", path)
    files = content.get("weight_map")
    if type(files) is not dict:
        raise CheckpointError("no index of shards: it has no weight_map", path)
    checked: dict[Any, str] = {}
    for key, name in files.items():
        if type(name) is not str or name not in checked:
            checked[name] = file_beside(name, path, "the index", key)
    metadata = content.get("metadata")
    return Index(
        {key: checked[name] for key, name in files.items()},
        _texts(metadata) if type(metadata) is dict else {},
    )


def _texts(metadata: dict[str, Any]) -> dict[str, str]:
    return {
        key: value if type(value) is str else shortened(value) for key, value in metadata.items()
    }


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
                f"keys are written as UTF-8, which has no {wrong!a}", path
            ) from None
