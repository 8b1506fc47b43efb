# SPDX-License-Identifier: BSD-3-Clause
"""Opening a checkpoint: which format a path holds, found in its content."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from modtree._checkpoint.base import Checkpoint, CheckpointError, Entry

__all__ = ["Checkpoint", "CheckpointError", "Entry", "open_checkpoint"]

#: What a folder may hold, the first that is there counts.
_IN_FOLDERS = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
_HEAD = 64


def _is_torch(head: bytes, path: str) -> bool:
    return head.startswith(b"PK\x03\x04")


def _is_pickle(head: bytes, path: str) -> bool:
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _is_safetensors(head: bytes, path: str) -> bool:
    return head[8:9] == b"{" or path.endswith(".safetensors")


def _is_index(head: bytes, path: str) -> bool:
    return head.lstrip()[:1] == b"{" or path.endswith(".json")


#: (does a file begin so, module, class in it), in the order in which they are asked. The modules
#: are imported when a file of theirs is opened.
_FORMATS: tuple[tuple[Callable[[bytes, str], bool], str, str], ...] = (
    (_is_torch, "modtree._checkpoint.torch_reader", "TorchCheckpoint"),
    (_is_safetensors, "modtree._checkpoint.safetensors_reader", "SafetensorsCheckpoint"),
    (_is_index, "modtree._checkpoint.sharded_reader", "ShardedCheckpoint"),
    (_is_pickle, "modtree._checkpoint.torch_reader", "TorchCheckpoint"),
)


def open_checkpoint(path: Any) -> Checkpoint:
    """Opens a file, the index of a sharded checkpoint, or a folder that holds one of them.

    Args:
        path: Where it is. The name decides only where the content does not.

    Raises:
        OSError: It cannot be opened.
        CheckpointError: It is damaged, or no checkpoint.
    """
    file = os.fspath(path)
    if isinstance(file, bytes):
        file = os.fsdecode(file)
    if os.path.isdir(file):
        file = _in_folder(file)
    with open(file, "rb") as opened:
        head = opened.read(_HEAD)
    for begins_so, module, name in _FORMATS:
        if begins_so(head, file):
            return getattr(importlib.import_module(module), name)(file)
    raise CheckpointError(_unknown(head), file)


def _in_folder(folder: str) -> str:
    for name in _IN_FOLDERS:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    names = sorted(os.listdir(folder))
    for ending in (".safetensors.index.json", ".safetensors", ".bin.index.json", ".bin"):
        found = [name for name in names if name.endswith(ending)]
        if len(found) == 1:
            return os.path.join(folder, found[0])
        if found:
            raise CheckpointError(
                f"the folder holds {len(found)} files that end in {ending}, {found[0]} and "
                f"{found[1]} among them: name the one to read",
                folder,
            )
    raise CheckpointError(
        "the folder holds no checkpoint: expected model.safetensors or "
        "model.safetensors.index.json, pytorch_model.bin or pytorch_model.bin.index.json",
        folder,
    )


def _unknown(head: bytes) -> str:
    if not head:
        return "the file is empty"
    return (
        f"not a checkpoint that is known: it begins with {head[:8]!r}; expected safetensors, the "
        f"index of shards, or a file of torch.save() or modtree.save()"
    )
