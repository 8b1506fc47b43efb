# SPDX-License-Identifier: BSD-3-Clause
"""Reading a folder of transformers' Trainer: the model, and all that training goes on with."""

from __future__ import annotations

import os
import re
from typing import Any

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.folders import folder_format
from modtree.files.checkpoint.reader import weights_in
from modtree.files.hugging_face.adapter import add_adapter
from modtree.files.hugging_face.folder import PartsFolder, words_of

__all__ = ["TrainerCheckpoint"]

#: Files of torch, in the order in which they are shown.
_FILES = re.compile(
    r"(?:(optimizer|scheduler|scaler|rng_state(?:_\d+)?)\.(?:pt|pth|bin)|(training_args)\.bin)"
)
_ORDER = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")
#: Folders that hold the model or the optimizer of several ranks.
_OF_RANKS = re.compile(r"(pytorch_model_fsdp|global_step|optimizer)_?\d+")
_MOST = 256  # parts of one kind
_STATE = {"global_step": "step", "epoch": "epoch", "best_metric": "best metric"}


class TrainerCheckpoint(PartsFolder):
    """A folder with ``trainer_state.json``.

    Args:
        path: The folder.
        at: The part to read, such as "optimizer"; None for the model.
    """

    format = "trainer"

    def __init__(self, path: str, at: str | None = None) -> None:
        super().__init__(path)
        try:
            names = sorted(os.listdir(path))
            self._add_model(path, names)
            found = [(match, name) for name in names if (match := _FILES.fullmatch(name))]
            found.sort(key=lambda item: (_ORDER.index(_kind(item[0])), len(item[1]), item[1]))
            for match, name in found[:_MOST]:
                self.add_torch(match[1] or match[2], os.path.join(path, name))
            self.add_json("trainer_state", os.path.join(path, "trainer_state.json"), _state_words)
            if "config.json" in names:
                self.add_json("config", os.path.join(path, "config.json"), _config_words)
            self._enter(at)
        except BaseException:
            self.close()
            raise

    def _add_model(self, path: str, names: list[str]) -> None:
        weights = weights_in(path)
        if weights is not None:
            self.add_weights("model", weights)
        elif "adapter_config.json" in names:
            add_adapter(self, "model", path)
        for name in names:
            folder = os.path.join(path, name)
            match = _OF_RANKS.fullmatch(name)
            if match is not None and folder_format(folder) is not None:
                kind = "optimizer" if match[1] == "optimizer" else "model"
                self.add_weights(name if kind in self._object else kind, folder)

    def _enter(self, at: str | None) -> None:
        if at is None and "model" not in self._object:
            raise CheckpointError(
                f"the folder has no model; its parts are {', '.join(self._object)}: name one with "
                f"at= or --at",
                self.path,
            )
        super()._enter(at)


def _kind(match: re.Match[str]) -> str:
    return re.sub(r"_\d+$", "", match[1] or match[2])


def _state_words(content: dict[str, Any]) -> str:
    words = words_of(content, _STATE)
    return f"at {', '.join(words)}" if words else "a dict"


def _config_words(content: dict[str, Any]) -> str:
    return ", ".join(words_of(content, {"architectures": "", "model_type": "type"})) or "a dict"
