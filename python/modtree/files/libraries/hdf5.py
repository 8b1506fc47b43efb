# SPDX-License-Identifier: BSD-3-Clause
"""Reading an HDF5 file with h5py."""

from __future__ import annotations

from typing import Any

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.libraries.base import LibraryArray, LibraryCheckpoint, described, library

__all__ = ["Hdf5Checkpoint"]

_MOST = 1_000_000
_DEEPEST = 64


class Hdf5Checkpoint(LibraryCheckpoint):
    """An HDF5 file. Links, and data in other files, are named and not followed.

    Args:
        path: The file.
    """

    format = "hdf5"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._h5py = library("h5py", "an HDF5 file, as Keras writes it", path)
        try:
            self._file = self._h5py.File(path, "r")
            self._walk(self._file, "", 0)
        except CheckpointError:
            self.close()
            raise
        except Exception as error:  # whatever the library says of a damaged file
            self.close()
            text = f"the file is damaged: {type(error).__name__}: {shortened(str(error))}"
            raise CheckpointError(text, path) from None
        for name, value in list(self._file.attrs.items())[:1000]:
            self.metadata[str(name)] = shortened(value, 1000).strip("'")

    def _walk(self, group: Any, prefix: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise CheckpointError("groups are nested too deeply", self.path)
        for name in group:
            key = f"{prefix}{name}"
            link = group.get(name, getlink=True)
            if not isinstance(link, self._h5py.HardLink):
                self.add(key, described(f"link {type(link).__name__}, which is not followed"))
                continue
            item = group[name]
            if isinstance(item, self._h5py.Group):
                self._walk(item, f"{key}.", depth + 1)
            elif isinstance(item, self._h5py.Dataset):
                self.add(key, self._dataset(item))
            if len(self._arrays) + len(self.values) > _MOST:
                raise CheckpointError(f"it has more than {_MOST:,} arrays", self.path)

    def _dataset(self, item: Any) -> Any:
        if item.external or item.is_virtual:
            return described("array in other files, which are not opened")
        if item.shape is None or item.dtype.kind not in "biufc":
            return described(f"array of {shortened(str(item.dtype), 60)} {shortened(item.shape)}")
        shape = tuple(map(int, item.shape))
        return LibraryArray(shape, item.dtype.name, self.path, lambda: item[()])

    def close(self) -> None:
        super().close()
        if (file := vars(self).pop("_file", None)) is not None:
            file.close()
