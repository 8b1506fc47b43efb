# SPDX-License-Identifier: BSD-3-Clause
"""The line that names a checkpoint."""

from __future__ import annotations

from modtree.files.checkpoint.base import Checkpoint
from modtree.inspection.printable import entries_text, printable

__all__ = ["headline"]


def headline(checkpoint: Checkpoint, shown: int | None = None) -> str:
    """``model.safetensors: safetensors, 2 files, 8 of 24 entries``.

    Args:
        checkpoint: an open checkpoint.
        shown: how many of its entries are meant; None for all.
    """
    every = len(checkpoint.keys())
    entries = entries_text(every)
    if shown is not None and shown != every:
        entries = f"{shown:,} of {entries}"
    entries_of = checkpoint.entries.values()
    files = len({entry.file for entry in entries_of}.union(*{entry.files for entry in entries_of}))
    parts = f", {files:,} files" if files > 1 else ""
    return f"{printable(str(checkpoint.path))}: {checkpoint.format}{parts}, {entries}"
