# SPDX-License-Identifier: BSD-3-Clause
"""The files of torch in a folder, whose tensors are read when they are asked for."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, checkpoint_error
from modtree.files.checkpoint.mapped import MappedFiles
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.torch.checkpoint import ObjectCheckpoint
from modtree.files.torch.contents import tensors_in
from modtree.files.torch.load import Contents, read_contents
from modtree.files.torch.records import TensorRecord, replaced
from modtree.files.torch.sources import LateSource, Source, aligned

#: How many files, or parts of files, stay parsed.
_KEPT = 64
#: More bytes than that are not made of an expanded tensor.
_LARGEST_REPEATED = 1 << 26


class TorchFiles:
    """Reads files of torch, and parts of files that are such themselves. Nothing is executed."""

    def __init__(self) -> None:
        self._files = MappedFiles()
        self._kept: collections.OrderedDict[Any, Contents] = collections.OrderedDict()
        self._used: list[Contents] = []
        self._compares = False

    def contents(
        self, path: str, offset: int = 0, length: int | None = None, keep: bool = False
    ) -> Contents:
        """What a file, or a part of it, holds.

        Args:
            path: The file.
            offset: Where the part begins.
            length: Its bytes; None for all.
            keep: Whether the caller goes on using what it gets.

        Raises:
            CheckpointError: It is not there, or damaged.
        """
        key = path, offset, length
        known = self._kept.pop(key, None)
        if known is None:
            with errors_of(path):
                size = os.stat(path).st_size if length is None else length
                known = read_contents(self._files.window(path, offset, size), mapped=True)
            if self._compares:
                known.storages.compare_checksums()
        if keep:
            self._used.append(known)
            return known
        self._kept[key] = known
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return known

    def bound(self, contents: Contents, path: str) -> Any:
        """The object of a file, whose tensors know themselves where they are."""

        def late(record: Any) -> Any:
            if type(record) is not TensorRecord or record.source is None:
                return record
            source = LateSource(lambda: aligned(self.array(contents, record, path)), path)
            return record.with_source(source)

        return replaced(contents.obj, late, {})

    def array(self, contents: Contents, record: TensorRecord, path: str) -> np.ndarray:
        """The values of a record of a file."""
        if record.nbytes > max(_LARGEST_REPEATED, record.reach * record.dtype.itemsize):
            raise CheckpointError(
                f"{record.nbytes:,} bytes are to be made of {record.reach:,} elements, which an "
                f"expanded tensor repeats",
                path,
            )
        with errors_of(path):
            return record.array(contents.storages)

    def compare_checksums(self) -> None:
        """From now on, of what is read."""
        self._compares = True
        for contents in (*self._kept.values(), *self._used):
            contents.storages.compare_checksums()

    def let_go(self) -> None:
        self._files.let_go()

    def close(self) -> None:
        self._kept.clear()
        self._used.clear()
        self._files.close()


@contextlib.contextmanager
def errors_of(path: str) -> Iterator[None]:
    """What is wrong with a file, as an error of checkpoints."""
    try:
        yield
    except UnpicklingError as error:
        raise checkpoint_error(error, path) from None
    except RecursionError:
        raise CheckpointError("containers are nested too deeply", path) from None
    except FileNotFoundError:
        raise CheckpointError("the file is not there", path) from None
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", path) from None


class AssembledCheckpoint(ObjectCheckpoint):
    """A checkpoint of several files of torch, whose tensors are put together of pieces in them.

    Args:
        path: The folder.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._files_of_torch = TorchFiles()
        self._broken: list[CheckpointError] = []  # what is wrong with parts that are not read

    def compare_checksums(self) -> None:
        self._check_open()
        self._files_of_torch.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        yield from self._broken
        self.compare_checksums()
        for record in tensors_in(self._object):
            if isinstance(record.source, Source):
                yield from record.source.check()
            advance(record.nbytes)
            self.let_go()

    def let_go(self) -> None:
        if self._is_open:
            self._files_of_torch.let_go()

    def close(self) -> None:
        super().close()
        self._files_of_torch.close()
