# SPDX-License-Identifier: BSD-3-Clause
"""Private modules under the names that they had: pickles of earlier versions hold some of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["MOVED"]

#: Old name of a module or package -> its name now; the longest that fits decides.
MOVED = {
    "modtree._checkpoint": "modtree.files.checkpoint",
    "modtree._checkpoint.safetensors_header": "modtree.files.safetensors.header",
    "modtree._checkpoint.safetensors_reader": "modtree.files.safetensors.reader",
    "modtree._checkpoint.safetensors_writer": "modtree.files.safetensors.writer",
    "modtree._checkpoint.torch_reader": "modtree.files.torch.checkpoint",
    "modtree._inspection": "modtree.inspection",
    "modtree._inspection.diff": "modtree.inspection.comparison",
    "modtree._inspection.diff_result": "modtree.inspection.comparison.result",
    "modtree._inspection.value_change": "modtree.inspection.comparison.value_change",
    "modtree._module": "modtree.core",
    "modtree._module.parameter": "modtree._tensor.parameter",
    "modtree._module.uninitialized": "modtree._tensor.uninitialized",
    "modtree._serialization": "modtree.files.pickled",
    "modtree._serialization.archive": "modtree.files.torch.archive",
    "modtree._serialization.torch_archive": "modtree.files.torch.load",
    "modtree._serialization.torch_storages": "modtree.files.torch.storages",
    "modtree._tensor.handles": "modtree.core.handles",
    "modtree.families.base": "modtree.core.family",
    "modtree.families.module_tap": "modtree._tensor.module_tap",
    "modtree.nn.lazy": "modtree.core.lazy",
}


class _Alias:
    """Gives the module of another name, which stays what it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder:
    """Comes last, so that it is asked only for what no other finder has. Once a package was found
    it comes first: the package has the path of the new one, where others would find its files.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("modtree."):
            return None
        old = name
        while old not in MOVED:
            old = old.rpartition(".")[0]
            if not old:
                return None
        if sys.meta_path[0] is not self:
            sys.meta_path.insert(0, self)
        loader: Any = _Alias(MOVED[old] + name[len(old) :])
        return ModuleSpec(name, loader)


sys.meta_path.append(_Finder())
