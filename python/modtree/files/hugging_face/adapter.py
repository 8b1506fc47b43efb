# SPDX-License-Identifier: BSD-3-Clause
"""Reading a folder of peft: the weights of an adapter, and the configuration beside them."""

from __future__ import annotations

import os
from typing import Any

from modtree.files.hugging_face.folder import PartsFolder, words_of

__all__ = ["AdapterCheckpoint", "add_adapter"]

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
        try:
            add_adapter(self, "adapter", path)
            self._enter(at or "adapter")
        except BaseException:
            self.close()
            raise


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
