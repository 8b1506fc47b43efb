# SPDX-License-Identifier: BSD-3-Clause
"""Folders that are checkpoints as a whole: which format the names in them are of."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Folder", "folder_format"]

_MOST_READ = 10_000  # names of a folder that are read


class Folder(NamedTuple):
    """What is in a folder of a format, and who reads it."""

    has: Callable[[frozenset[str]], bool]
    module: str
    reader: str


#: In the order in which they are asked. A module is imported when a folder of its format is opened.
_FORMATS = (
    Folder(
        lambda names: ".metadata" in names,
        "modtree.files.distributed.reader",
        "DistributedCheckpoint",
    ),
)


def folder_format(path: str) -> Folder | None:
    """The format of a folder; None where it is not a checkpoint as a whole, but may hold one."""
    try:
        with os.scandir(path) as entries:
            names = frozenset(e.name for e in itertools.islice(entries, _MOST_READ))
    except OSError:
        return None
    return next((form for form in _FORMATS if form.has(names)), None)
