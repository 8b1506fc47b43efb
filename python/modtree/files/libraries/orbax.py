# SPDX-License-Identifier: BSD-3-Clause
"""Reading a folder of Orbax: its JSON says which arrays there are, tensorstore reads them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.json_text import parsed_json
from modtree.files.checkpoint.mapped import open_regular
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.libraries.base import LibraryArray, LibraryCheckpoint, described

__all__ = ["OrbaxCheckpoint"]

_LONGEST = 100_000_000
_MOST = 1_000_000


class OrbaxCheckpoint(LibraryCheckpoint):
    """A folder of Orbax. Without the package tensorstore it says which arrays there are.

    Args:
        path: The folder.
        at: The part to read; there are none.
    """

    format = "orbax"

    def __init__(self, path: str, at: str | None = None) -> None:
        super().__init__(path)
        if at is not None:
            raise not_damaged(CheckpointError(f"it holds one tree, and no part {at!r:.100}", path))
        content = self._content(path)
        self._store: Any = None
        try:
            self._store = importlib.import_module("tensorstore")
        except ImportError:
            pass  # its JSON is read without it
        tree = content.get("tree_metadata")
        if type(tree) is not dict or len(tree) > _MOST:
            raise CheckpointError("its _METADATA does not say which arrays there are", path)
        self._is_ocdbt = content.get("use_ocdbt") is not False
        self._driver = "zarr3" if content.get("use_zarr3") is True else "zarr"
        for facts in tree.values():
            self._add_leaf(facts)

    def _content(self, path: str) -> dict[str, Any]:
        file = os.path.join(path, "_METADATA")
        if not os.path.exists(file):
            inside = [n for n in ("default", "state", "params") if self._has_tree(path, n)]
            more = f"open the folder {inside[0]} in it" if inside else "orbax.checkpoint reads it"
            raise CheckpointError(
                f"it is a step of Orbax, which has no _METADATA itself: {more}", path
            )
        with open_regular(file) as opened:
            data = opened.read(_LONGEST + 1)
        if len(data) > _LONGEST:
            raise CheckpointError(f"more than {_LONGEST:,} bytes of JSON", file)
        return parsed_json(data, "file", file)

    def _has_tree(self, path: str, name: str) -> bool:
        return os.path.exists(os.path.join(path, name, "_METADATA"))

    def _add_leaf(self, facts: Any) -> None:
        parts = facts.get("key_metadata") if type(facts) is dict else None
        named = parts if type(parts) is list else []
        names = [str(part.get("key")) for part in named if type(part) is dict]
        value = facts.get("value_metadata") if type(facts) is dict else None
        kind = value.get("value_type") if type(value) is dict else None
        if not names or len(names) != len(named):
            raise CheckpointError(f"its _METADATA names {shortened(facts)}", self.path)
        key = ".".join(names)
        shape = value.get("write_shape") if type(value) is dict else None
        text = f"{shortened(kind, 40)[1:-1]} {shape if type(shape) is list else ''}".strip()
        if type(value) is dict and value.get("skip_deserialize") is True:
            self.add(key, described(f"{text}, which Orbax does not store as an array"))
        elif self._store is None:
            self.add(key, described(f"{text}: pip install tensorstore to read it"))
        else:
            self.add(key, self._opened(names, text))

    def _opened(self, names: list[str], text: str) -> Any:
        name = ".".join(names)
        if any(set(part) & {"/", "\\", "\0"} or part in ("", "..") for part in names):
            raise CheckpointError(f"its _METADATA names {shortened(name)}", self.path)
        folder = os.path.abspath(self.path)
        kvstore: dict[str, Any] = {"driver": "file", "path": f"{os.path.join(folder, name)}/"}
        if self._is_ocdbt:
            kvstore = {
                "driver": "ocdbt",
                "base": {"driver": "file", "path": f"{folder}/"},
                "path": f"{name}/",
            }
        try:
            store = self._store.open(
                {"driver": self._driver, "kvstore": kvstore}, open=True, read=True
            ).result()
            dtype = np.dtype(store.dtype.numpy_dtype)
        except Exception as error:  # whatever the library says of a damaged folder
            return described(f"{text}: cannot be read: {shortened(str(error))}")
        shape = tuple(map(int, store.shape))
        return LibraryArray(shape, dtype.name, self.path, lambda: store.read().result())
