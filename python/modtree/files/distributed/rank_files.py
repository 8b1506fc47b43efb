# SPDX-License-Identifier: BSD-3-Clause
"""Which files of a folder are those of ranks: their names differ in a number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_FILE = re.compile(
    r"((?:.*?[_.-])?(?:rank|shard|consolidated|tp|mp|part)[_.-]?)(\d{1,6})"
    r"((?:[_-]of[_-]\d+)?\.(?:pt|pth|bin))"
)
#: Of Megatron: a folder for each rank, of which the second number is that of a pipeline's stage.
_FOLDER = re.compile(r"mp_rank_(\d{2,6})(?:_(\d{3,6}))?")
_MOST = 100_000


def families(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The names of files by what they have in common, and by their numbers, which begin with 0."""
    found: dict[str, dict[int, str]] = {}
    for name in sorted(names)[:_MOST]:
        if (match := _FILE.fullmatch(name)) is not None:
            label = re.sub(r"[_.-]*(?:rank|shard|part|tp|mp)?[_.-]*$", "", match[1])
            found.setdefault(label or match[1].strip("_.-"), {})[int(match[2])] = name
    return {label: files for label, files in found.items() if 0 in files and len(files) > 1}


def rank_folders(names: Iterable[str]) -> dict[tuple[int, int], str]:
    """The names of Megatron's folders, by rank and stage."""
    matches = ((name, _FOLDER.fullmatch(name)) for name in sorted(names)[:_MOST])
    return {(int(m[1]), int(m[2] or 0)): name for name, m in matches if m is not None}


def has_rank_files(names: frozenset[str]) -> bool:
    """Whether a folder with these names has files of ranks and nothing else."""
    return bool(rank_folders(names)) or bool(families(names))


def files_of(path: str) -> dict[str, dict[int, str]]:
    """The paths of the files of a folder, by family and rank; those of stages behind each other."""
    names = os.listdir(path)
    folders = rank_folders(names)
    if not folders:
        return {
            label: {rank: os.path.join(path, name) for rank, name in files.items()}
            for label, files in families(names).items()
        }
    found: dict[str, dict[int, str]] = {}
    for (rank, stage), name in folders.items():
        for file in sorted(os.listdir(os.path.join(path, name))):
            if file.endswith((".pt", ".pth", ".bin")):
                label = os.path.splitext(file)[0]
                found.setdefault(f"{label}.{stage}", {})[rank] = os.path.join(path, name, file)
    one_stage = {label.rpartition(".")[0]: files for label, files in found.items()}
    return one_stage if len(one_stage) == len(found) else found
