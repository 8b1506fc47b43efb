# SPDX-License-Identifier: BSD-3-Clause
"""Files behind the addresses that the package fsspec knows: ``s3://``, ``hf://``, ``gs://``, ..."""

from __future__ import annotations

import importlib
from typing import Any

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.sources.errors import RemoteError, missing, refused_access, shown_name
from modtree.files.sources.patience import Attempts, Passing, say_copied
from modtree.files.sources.stores import RangeStore, Store, copied

__all__ = ["store_of"]


def store_of(address: str) -> Store:
    """The bytes behind an address.

    Raises:
        CheckpointError: fsspec, or the package that it needs for this address, is not installed.
        FileNotFoundError: There is nothing.
        IsADirectoryError: There is a folder.
        PermissionError: It takes an account.
        RemoteError: The bytes cannot be had.
    """
    protocol = address.partition(":")[0]
    try:
        fsspec = importlib.import_module("fsspec.core")
    except ImportError:
        raise CheckpointError(
            f"reading {protocol}:// takes the package fsspec: pip install 'modtree[url]'",
            shown_name(address),
        ) from None
    try:
        system, path = fsspec.url_to_fs(address)
    except (ImportError, ValueError) as error:  # its words name the package to install
        raise CheckpointError(
            f"fsspec cannot read {protocol}://: {error}", shown_name(address)
        ) from None
    except Exception as error:  # what the packages of others raise
        raise _converted(error, address) from None
    return _RemoteFile(address, system, path).store()


class _RemoteFile:
    def __init__(self, address: str, system: Any, path: str) -> None:
        self._name = address
        self._system = system
        self._path = path

    def store(self) -> Store:
        try:
            facts = self._system.info(self._path)
        except Exception as error:
            raise _converted(error, self._name) from None
        if facts.get("type") == "directory":
            raise IsADirectoryError(None, "a folder", shown_name(self._name))
        size = facts.get("size")
        if type(size) is int and size >= 0:
            return RangeStore(size, self.fetch)
        say_copied(self._name, "its size is not known", None)
        try:
            with self._system.open(self._path, "rb") as file:
                return copied(file.read, self._name)
        except Exception as error:
            raise _converted(error, self._name) from None

    def fetch(self, at: int, place: memoryview) -> None:
        """Fills memory with the bytes from a place on."""
        attempts = Attempts(self._name)
        while True:
            try:
                found = self._system.cat_file(self._path, start=at, end=at + len(place))
            except Exception as error:
                attempts.failed(Passing(_words(error)))
                continue
            if len(found) == len(place):
                place[:] = found
                return
            attempts.failed(Passing(f"{len(found):,} bytes came for {len(place):,}"))


def _converted(error: Exception, name: str) -> Exception:
    """An error of any package, as one of this."""
    if isinstance(error, RemoteError):
        return error
    words = _words(error)
    if isinstance(error, FileNotFoundError):
        return missing(name)
    return (
        refused_access(name, words)
        if isinstance(error, PermissionError)
        else RemoteError(words, name)
    )


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300] if str(error) else type(error).__name__
