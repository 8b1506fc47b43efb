# SPDX-License-Identifier: BSD-3-Clause
"""Which files of DeepSpeed are in a folder."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.beside import file_beside

__all__ = ["Files", "files_in", "layers_in", "step_folder"]

_NAME = re.compile(
    r"(?:(?:bf16_|fp16_)?zero_pp_rank_(\d{1,6})_)?mp_rank_(\d{1,6})_(model|optim)_states\.pt"
)
_LAYER = re.compile(r"layer_\d{1,6}-model_\d{1,6}-model_states\.pt")
_LONGEST_TAG = 200


class Files(NamedTuple):
    """The files of states, by rank: what the model has, and what the optimizer has."""

    model: dict[int, str]
    optimizer: dict[int, str]


def step_folder(path: str) -> str:
    """The folder of the step that the file ``latest`` names; the folder itself without one.

    Raises:
        CheckpointError: It is not there.
    """
    latest = os.path.join(path, "latest")
    if not os.path.isfile(latest):
        return path
    with open(latest, "rb") as file:
        tag = file.read(_LONGEST_TAG + 1).decode("utf-8", "replace").strip()
    if len(tag) > _LONGEST_TAG:
        raise CheckpointError("it does not name a folder", latest)
    folder = file_beside(tag, latest, "the file latest")
    if not os.path.isdir(folder):
        raise CheckpointError(f"it names the folder {shortened(tag)}, which is not there", latest)
    return folder


def files_in(folder: str) -> dict[int, Files]:
    """The files of a step, by the number of the model-parallel rank.

    Raises:
        CheckpointError: There are none of the model.
    """
    found: dict[int, Files] = {}
    for name in sorted(os.listdir(folder)):
        if (match := _NAME.fullmatch(name)) is None:
            continue
        rank, model_rank, kind = match.groups()
        files = found.setdefault(int(model_rank), Files({}, {}))
        own = files.model if kind == "model" else files.optimizer
        own.setdefault(int(rank or 0), os.path.join(folder, name))
    lacking = [rank for rank, files in found.items() if not files.model]
    if lacking or not found:
        of_rank = f" of model-parallel rank {lacking[0]}" if len(found) > 1 else ""
        there = " and files of optimizer states" if found else ""
        raise CheckpointError(f"no file *_model_states.pt{of_rank} is in the folder{there}", folder)
    return dict(sorted(found.items()))


def layers_in(folder: str) -> list[str]:
    """The names of the files of a pipeline's layers."""
    return sorted(filter(_LAYER.fullmatch, os.listdir(folder)))
