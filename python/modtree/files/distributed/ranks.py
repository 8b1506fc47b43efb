# SPDX-License-Identifier: BSD-3-Clause
"""Reading a folder with a file of torch for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.distributed.joining import HOW_TO_JOIN, Joins
from modtree.files.distributed.merging import Merging
from modtree.files.distributed.rank_files import files_of
from modtree.files.pickled.stand_in import holds_stand_in
from modtree.files.torch.files import AssembledCheckpoint

__all__ = ["RanksCheckpoint"]


class RanksCheckpoint(AssembledCheckpoint):
    """A folder in which each rank wrote a file of its own. DTensors and ShardedTensors in them say
    how their parts are put together; for other tensors, rules do.

    Args:
        path: The folder.
        at: The part to read; None for the model.
        join: The rules, as :class:`Joins` takes them; None for no rules.
    """

    format = "ranks"

    def __init__(self, path: str, at: str | None = None, join: Any = None) -> None:
        joins = None if join is None else Joins(join)
        super().__init__(path)
        try:
            self._unclear: list[CheckpointError] = []
            found = {label: self._merged(files, joins) for label, files in files_of(path).items()}
            if not found:
                raise CheckpointError("no file of torch is in the folders of the ranks", path)
            self._object = next(iter(found.values())) if len(found) == 1 else found
            self.foreign = int(holds_stand_in(self._object))  # those that were not put together
            self._enter(at)
        except BaseException:
            self.close()
            raise

    def _merged(self, files: dict[int, str], joins: Joins | None) -> Any:
        ranks = sorted(files)
        paths = [files[rank] for rank in ranks]
        values = []
        for file in paths:
            contents = self._files_of_torch.contents(file, keep=True)
            values.append(self._files_of_torch.bound(contents, file))
        work = Merging(self.path, ranks, joins)
        merged = work.merged(values, "", 0)
        if not work.has_placements and joins is None and work.has_tensors:
            raise CheckpointError(
                f"it has files of {len(paths)} ranks, whose tensors do not say how they are put "
                f"together: {HOW_TO_JOIN}, or open one of the files",
                self.path,
            )
        self._unclear += work.unclear
        return merged

    def damages(self, advance: Any) -> Iterator[CheckpointError]:
        yield from self._unclear
        yield from super().damages(advance)
