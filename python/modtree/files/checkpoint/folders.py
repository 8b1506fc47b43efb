# SPDX-License-Identifier: BSD-3-Clause
"""Folders that are checkpoints as a whole: which format the names in them are of."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from typing import NamedTuple

from modtree.files.distributed.rank_files import has_rank_files

__all__ = ["WEIGHTS_IN_ORDER", "Folder", "folder_format"]

_MOST_READ = 200_000  # names of a folder that are read


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


class Folder(NamedTuple):
    """What is in a folder of a format, who reads it, and whether that takes rules by which ranks
    are put together.
    """

    has: Callable[[frozenset[str]], bool]
    module: str
    reader: str
    takes_rules: bool = False


def _is_distributed(names: frozenset[str]) -> bool:
    has_chunks = any(name.endswith(".distcp") for name in names)
    return has_chunks or (".metadata" in names and WEIGHTS.isdisjoint(names))


def _is_adapter(names: frozenset[str]) -> bool:
    has_files = "adapter_config.json" in names and not _ADAPTERS.isdisjoint(names)
    return has_files and WEIGHTS.isdisjoint(names)


def _is_of_deepspeed(names: frozenset[str]) -> bool:
    has_steps = "latest" in names and any(map(_STEP.fullmatch, names))
    has_states = has_steps or any(map(_STATES.fullmatch, names))
    return has_states and WEIGHTS.isdisjoint(names)


def _is_of_ranks(names: frozenset[str]) -> bool:
    has_weights = any(name.endswith(".safetensors") for name in names)
    return not has_weights and WEIGHTS.isdisjoint(names) and has_rank_files(names)


#: In the order in which they are asked. A module is imported when a folder of its format is opened.
_FORMATS = (
    Folder(_is_distributed, "modtree.files.distributed.reader", "DistributedCheckpoint"),
    Folder(
        lambda names: "trainer_state.json" in names,
        "modtree.files.hugging_face.trainer",
        "TrainerCheckpoint",
    ),
    Folder(_is_adapter, "modtree.files.hugging_face.adapter", "AdapterCheckpoint"),
    Folder(
        lambda names: "_CHECKPOINT_METADATA" in names or names >= {"_METADATA", "_sharding"},
        "modtree.files.libraries.orbax",
        "OrbaxCheckpoint",
    ),
    Folder(
        _is_of_deepspeed,
        "modtree.files.deepspeed.reader",
        "DeepSpeedCheckpoint",
        takes_rules=True,
    ),
    Folder(_is_of_ranks, "modtree.files.distributed.ranks", "RanksCheckpoint", takes_rules=True),
)


def folder_format(path: str) -> Folder | None:
    """The format of a folder; None where it is not a checkpoint as a whole, but may hold one."""
    try:
        with os.scandir(path) as entries:
            names = frozenset(e.name for e in itertools.islice(entries, _MOST_READ))
    except OSError:
        return None
    return next((form for form in _FORMATS if form.has(names)), None)
