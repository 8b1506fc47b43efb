# SPDX-License-Identifier: BSD-3-Clause
"""Reading the state dict in a file of torch.save() or modtree.save()."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.pickled.stand_in import StandIn
from modtree.files.sources.source import Source
from modtree.files.torch.load import read_contents
from modtree.files.torch.object_checkpoint import ObjectCheckpoint

__all__ = ["TorchCheckpoint"]

_NAMES_IN_CODE = re.compile(r"^  __(?:parameters|buffers)__ = \[(.*)\]$", re.MULTILINE)
_CLASS_IN_CODE = re.compile(r"^class (\w+)\(Module\):$", re.MULTILINE)


class TorchCheckpoint(ObjectCheckpoint):
    """A file that torch.save(), torch.jit.save() or modtree.save() wrote, or another pickle.
    Nothing in it is executed; the tensors of an archive lie in a private map of the file, those of
    a pickle are read, and so are all of a file that is not on this machine.

    Args:
        source: The file.
        at: The part to read, such as "ema" or "optimizer.state"; None for the model.
    """

    def __init__(self, source: Source, at: str | None = None) -> None:
        super().__init__(source.name)
        self._file: Any = source.open()
        try:
            with self._errors():
                contents = read_contents(self._file, source.can_be_mapped)
            self._object, self._storages = contents.obj, contents.storages
            self.foreign = contents.foreign
            self.format = "torch"
            if contents.form == "pickle":
                self.format = "modtree" if contents.is_own else "pickle"
            elif type(contents.obj) is StandIn and contents.obj.is_script:
                self.format = "torchscript"
            self._enter(at)
        except BaseException:
            self._file.close()
            raise

    def _names_in_code(self, kind: str) -> frozenset[str] | None:
        """The parameters and buffers of a class of TorchScript, as its code lists them."""
        home, _, name = kind.rpartition(".")
        if home not in self._code:
            with self._errors():
                self._code[home] = _names_by_class(self._storages.code(home.replace(".", "/")))
        return self._code[home].get(name)

    @functools.cached_property
    def _code(self) -> dict[str, dict[str, frozenset[str]]]:
        return {}

    def _check_open(self) -> None:
        if self._file.closed:
            raise ValueError(f"the checkpoint {self.path} is closed")

    def compare_checksums(self) -> None:
        self._check_open()
        self._storages.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        self._check_open()
        first: dict[str, str] = {}
        for key, record in self._tensors.items():
            if record.storage is not None:
                first.setdefault(record.storage.key, key)
        for storage, count, reason in self._storages.damages():
            advance(count)
            if reason:
                yield CheckpointError(reason, self.path, storage and first.get(storage))
        self.let_go()

    def maps(self) -> dict[str, Any]:
        file_map = None if self._storages is None else self._storages.file_map
        return {} if file_map is None else {self.path: file_map}

    def let_go(self) -> None:
        if not self._file.closed:
            self._storages.let_go()

    def close(self) -> None:
        self._file.close()
        super().close()


def _names_by_class(code: str) -> dict[str, frozenset[str]]:
    """The parameters and buffers of each class in a module of TorchScript."""
    found = list(_CLASS_IN_CODE.finditer(code))
    ends = [*(match.start() for match in found[1:]), len(code)]
    names = {}
    for match, end in zip(found, ends, strict=False):
        lists = ",".join(_NAMES_IN_CODE.findall(code[match.end() : end]))
        names[match[1]] = frozenset(part.strip(" \"'") for part in lists.split(",")) - {""}
    return names
