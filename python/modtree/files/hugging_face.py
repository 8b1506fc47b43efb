# SPDX-License-Identifier: BSD-3-Clause
"""Folders of transformers' Trainer (the model, and all that training goes on with) and of peft (the
weights of an adapter, and their configuration): the files are parts of one object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    View,
    array_view,
    closed_on_error,
    completed,
    shortened,
)
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.checkpoint.reader import (
    folder_format,
    holdings,
    locate,
    open_checkpoint,
    weights_in,
)
from modtree.files.checkpoint.untrusted import json_in
from modtree.files.pickled.stand_in import in_words
from modtree.files.torch.contents import tensors_in
from modtree.files.torch.files import AssembledCheckpoint
from modtree.files.torch.parts import Part
from modtree.files.torch.records import TensorRecord, record_of_source
from modtree.files.torch.sources import LateSource, Source

_MOST = 256  # parts of one kind
_OF_TORCH = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

# -- a checkpoint as a part of another one ---------------------------------------------------------


class _Entry(Source):
    """An entry of a checkpoint, which itself says what is wrong with it."""

    def __init__(self, checkpoint: Checkpoint, key: str) -> None:
        self._checkpoint, self._key = checkpoint, key
        entry = checkpoint.entries[key]
        self.files = entry.files or (entry.file,)

    def array(self) -> np.ndarray:
        return self._checkpoint.array(self._key)

    def part(self, index: Any) -> np.ndarray:
        return self._checkpoint.part(self._key, index)

    def pieces(self, size: int) -> Iterator[memoryview]:
        return self._checkpoint.chunks(self._key, size)

    def check(self) -> Iterator[CheckpointError]:
        return iter(())


def state_of(checkpoint: Checkpoint) -> Any:
    """The state dict of an open checkpoint, which stays open as long as values are read."""
    records: dict[str, Any] = {}
    for key, entry in checkpoint.entries.items():
        dtype = DTYPES.get(entry.dtype)
        if dtype is None:
            text = f"tensor of {entry.dtype} {list(entry.shape)}"
            records[key] = in_words("torch.Tensor", text)
        else:
            records[key] = record_of_source(_Entry(checkpoint, key), dtype, entry.shape)

    def view_of(record: Any, view: View) -> Any:
        if type(record) is not TensorRecord:
            return record
        source = record.source
        late = LateSource(lambda: array_view(source.array(), view), source.files[0])
        return record_of_source(late, record.dtype, view.shape)

    return completed(records, checkpoint, view_of, checkpoint.plain_values())


# -- folders ---------------------------------------------------------------------------------------


class PartsFolder(AssembledCheckpoint):
    """A folder whose files are parts of one checkpoint.

    Args:
        path: The folder.

    Attributes:
        members: The files of weights, which are checkpoints themselves.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._inner: list[Checkpoint] = []
        self._words: dict[str, str] = {}
        self.members: list[str] = []
        self._object: dict[str, Any] = {}

    def add_weights(self, name: str, path: str) -> None:
        """A checkpoint as a part."""
        source = locate(path)
        checkpoint = open_checkpoint(source)
        self._inner.append(checkpoint)
        self.members.append(source.name)
        self.foreign += checkpoint.foreign
        if not self.metadata:
            self.metadata = dict(checkpoint.metadata)
        self._object[name] = state_of(checkpoint)

    def add_torch(self, name: str, file: str) -> None:
        """A file of torch as a part."""
        self.members.append(file)
        try:
            contents = self._files_of_torch.contents(file, keep=True)
            self._object[name] = self._files_of_torch.bound(contents, file)
            self.foreign += contents.foreign
        except CheckpointError as error:
            self._note_broken(name, error)

    def add_json(self, name: str, file: str, words: Callable[[dict[str, Any]], str]) -> None:
        """A file of JSON as a part, and what to say of it."""
        try:
            content = json_in(file)
            self._words[name] = words(content)
            self._object[name] = content
        except CheckpointError as error:
            self._note_broken(name, error)

    def _note_broken(self, name: str, error: CheckpointError) -> None:
        """A part that cannot be read does not keep anybody from the others."""
        self._broken.append(error)
        self._object[name] = in_words("damaged", f"cannot be read: {error.reason:.200}")

    def parts(self) -> list[Part]:
        return [
            part._replace(text=self._words.get(part.name, part.text)) for part in super().parts()
        ]

    def compare_checksums(self) -> None:
        super().compare_checksums()
        for checkpoint in self._inner:
            checkpoint.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        yield from super().damages(advance)
        for checkpoint in self._inner:
            yield from checkpoint.damages(advance)

    def let_go(self) -> None:
        super().let_go()
        for checkpoint in self._inner:
            checkpoint.let_go()

    def close(self) -> None:
        super().close()
        for checkpoint in self._inner:
            checkpoint.close()


class PartsCheckpoint(PartsFolder):
    """A folder with several files or folders, each of which is a part.

    Args:
        path: The folder.
        at: The part to read; None for the only state dict.
    """

    format = "folder"

    def __init__(self, path: str, at: str | None = None) -> None:
        super().__init__(path)
        with closed_on_error(self):
            for name in holdings(path)[:_MOST]:
                self._add(name, path)
            if self._broken and not any(tensors_in(self._object)):
                raise self._broken[0]
            self._enter(at)

    def _add(self, name: str, path: str) -> None:
        stem, ending = os.path.splitext(name.rstrip("/"))
        known = stem if stem not in self._object and not name.endswith("/") else name.rstrip("/")
        file = os.path.join(path, name)
        try:
            if ending in _OF_TORCH and os.path.isfile(file):
                self.add_torch(known, file)
            else:
                self.add_weights(known, file.rstrip("/"))
        except CheckpointError as error:
            self._note_broken(known, error)
        except OSError as error:
            self._note_broken(known, CheckpointError(f"cannot be read: {error.strerror}", file))


def words_of(content: dict[str, Any], named: dict[str, str]) -> list[str]:
    """What some settings say, each with a word in front of it; those that are not there, not."""
    found = []
    for name, word in named.items():
        value = content.get(name)
        if value is None or value == []:
            continue
        if isinstance(value, list):
            more = f" and {len(value) - 6} more" if len(value) > 6 else ""
            text = ", ".join(shortened(item, 40).strip("'") for item in value[:6]) + more
        else:
            text = shortened(value, 80).strip("'")
        found.append(f"{word} {text}".strip())
    return found


# -- adapters of peft ------------------------------------------------------------------------------

_NAMED = {
    "base_model_name_or_path": "of the base model",
    "r": "rank",
    "lora_alpha": "alpha",
    "target_modules": "on",
    "task_type": "for",
}


class AdapterCheckpoint(PartsFolder):
    """A folder with ``adapter_config.json`` and the weights of the adapter.

    Args:
        path: The folder.
        at: The part to read; None for the weights.
    """

    format = "adapter"

    def __init__(self, path: str, at: str | None = None) -> None:
        super().__init__(path)
        with closed_on_error(self):
            add_adapter(self, "adapter", path)
            self._enter(at or "adapter")


def add_adapter(folder: PartsFolder, name: str, path: str) -> None:
    """Weights and configuration of an adapter as parts of a folder.

    Args:
        folder: Gets them.
        name: The name of the weights there.
        path: Where they are.
    """
    for file in ("adapter_model.safetensors", "adapter_model.bin"):
        if os.path.exists(os.path.join(path, file)):
            folder.add_weights(name, os.path.join(path, file))
            break
    config = os.path.join(path, "adapter_config.json")
    folder.add_json("adapter_config", config, _words)


def _words(content: dict[str, Any]) -> str:
    """What the configuration of an adapter says, in a line."""
    kind = content.get("peft_type")
    head = f"{kind} adapter" if type(kind) is str and kind.isidentifier() else "an adapter"
    words = words_of(content, _NAMED)
    return ", ".join([head, *words]).replace("adapter, of", "adapter of", 1)


# -- folders of a Trainer --------------------------------------------------------------------------

#: Files of torch, in the order in which they are shown.
_FILES = re.compile(
    r"(?:(optimizer|scheduler|scaler|rng_state(?:_\d+)?)\.(?:pt|pth|bin)|(training_args)\.bin)"
)
_ORDER = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")
#: Folders that hold the model or the optimizer of several ranks.
_OF_RANKS = re.compile(r"(pytorch_model_fsdp|global_step|optimizer)_?\d+")
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
        with closed_on_error(self):
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
