# SPDX-License-Identifier: BSD-3-Clause
"""Folders that are checkpoints as a whole: which format the names in them are of."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["WEIGHTS_IN_ORDER", "Folder", "folder_format"]

_MOST_READ = 10_000  # names of a folder that are read


#: The names of weights in a folder, those of adapters apart; the first that is there counts.
WEIGHTS_IN_ORDER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
WEIGHTS = frozenset(WEIGHTS_IN_ORDER)
_ADAPTERS = frozenset(("adapter_model.safetensors", "adapter_model.bin"))


_STEP = re.compile(r"global_step\d+")
_STATES = re.compile(r"(?:\w+_)?mp_rank_\d+_(?:model|optim)_states\.pt")


def _is_of_deepspeed(names: frozenset[str]) -> bool:
    has_steps = "latest" in names and any(map(_STEP.fullmatch, names))
    return has_steps or any(map(_STATES.fullmatch, names))


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
    Folder(
        lambda names: "trainer_state.json" in names,
        "modtree.files.hugging_face.trainer",
        "TrainerCheckpoint",
    ),
    Folder(
        lambda names: (
            "adapter_config.json" in names
            and not _ADAPTERS.isdisjoint(names)
            and WEIGHTS.isdisjoint(names)
        ),
        "modtree.files.hugging_face.adapter",
        "AdapterCheckpoint",
    ),
    Folder(_is_of_deepspeed, "modtree.files.deepspeed.reader", "DeepSpeedCheckpoint"),
)


def folder_format(path: str) -> Folder | None:
    """The format of a folder; None where it is not a checkpoint as a whole, but may hold one."""
    try:
        with os.scandir(path) as entries:
            names = frozenset(e.name for e in itertools.islice(entries, _MOST_READ))
    except OSError:
        return None
    return next((form for form in _FORMATS if form.has(names)), None)
