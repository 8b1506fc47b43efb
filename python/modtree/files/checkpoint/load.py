# SPDX-License-Identifier: BSD-3-Clause
"""Reading a checkpoint as a state dict."""

from __future__ import annotations

import os
from typing import Any

from modtree.files.checkpoint.base import Checkpoint, without_collections
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.checkpoint.progress import may_show, progress_bar
from modtree.files.checkpoint.reader import open_checkpoint
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.devices import as_device


def load_state(source: Any, device: Any, at: str | None, join: Any, progress: bool | None) -> Any:
    """See modtree.load_file."""
    wanted = as_device("cpu" if device is None else device)
    with open_checkpoint(source, at, join) as checkpoint, without_collections():
        if wanted.type == "meta":
            return checkpoint.complete(_meta_tensors(checkpoint))
        if not may_show(progress):
            return checkpoint.state_dict()
        return checkpoint.complete(_tensors(checkpoint, progress))


def _tensors(checkpoint: Checkpoint, progress: bool | None) -> dict[str, Any]:
    entries = checkpoint.entries
    total = sum(entry.nbytes for entry in entries.values())
    tensors = {}
    what = f"Reading {os.path.basename(checkpoint.path)}"
    with progress_bar(total, what, progress) as advance:
        for key, entry in entries.items():
            tensors[key] = checkpoint.tensor(key)
            advance(entry.nbytes)
    return tensors


def _meta_tensors(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        key: empty(entry.shape, dtype=DTYPES[entry.dtype], device="meta")
        for key, entry in checkpoint.entries.items()
    }
