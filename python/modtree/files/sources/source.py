# SPDX-License-Identifier: BSD-3-Clause
"""What a caller names as a checkpoint: a path, an address, a file object, or the bytes."""

from __future__ import annotations

import abc
import contextlib
import importlib
import io
import os
import posixpath
import urllib.parse
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.mapped import open_regular
from modtree.files.sources.stores import (
    BytesStore,
    FileStore,
    Store,
    copied,
    is_address,
    is_http,
    open_store,
    shown_name,
)


class Source(abc.ABC):
    """Where the bytes of a checkpoint are.

    Attributes:
        name: What it is called: a path, or an address without what is private in it.
        can_be_mapped: True if what :meth:`open` returned is a file on this machine.
        large_header: True if headers of any size are to be read.
        member: The name of the checkpoint in an archive.
    """

    name: str
    can_be_mapped = False
    large_header = False
    member: str | None = None

    @abc.abstractmethod
    def open(self) -> Any:
        """A file that is open for reading bytes, at its beginning.

        Raises:
            OSError: It cannot be opened.
            CheckpointError: It is not a regular file.
        """

    def beside(self, name: str) -> Source:
        """What has another name in the same folder.

        Raises:
            CheckpointError: There is no folder.
        """
        raise CheckpointError(
            "an index names other files, and bytes alone do not tell where they are: give its path "
            "or address",
            self.name,
        )


class PathSource(Source):
    """A file on this machine."""

    can_be_mapped = True

    def __init__(self, path: str) -> None:
        self.name = path

    def open(self) -> Any:
        return open_regular(self.name)

    def beside(self, name: str) -> Source:
        return PathSource(os.path.join(os.path.dirname(self.name), name))


class StoreSource(Source):
    """Bytes that are found once, and opened as often as wanted."""

    _store: Store | None = None

    def open(self) -> Any:
        if self._store is None:
            self._store = self._found()
            self.can_be_mapped = hasattr(self._store, "fileno")
        return open_store(self._store)

    @abc.abstractmethod
    def _found(self) -> Store: ...


class AddressSource(StoreSource):
    """A file behind an address."""

    def __init__(self, address: str) -> None:
        self.name = shown_name(address)
        self._address = address
        try:
            urllib.parse.urlsplit(address)
        except ValueError as error:
            raise CheckpointError(f"not an address: {error}", self.name) from None
        self._is_http = is_http(address)

    @property
    def names_a_folder(self) -> bool:
        """Whether the address alone says that a folder is meant."""
        return urllib.parse.urlsplit(self._address).path.endswith("/")

    def _found(self) -> Store:
        addresses = importlib.import_module("modtree.files.sources.addresses")  # few need it
        store: Store = addresses.store_of(self._address)
        return store

    def beside(self, name: str) -> AddressSource:
        return self._with_path(
            lambda path: posixpath.join(posixpath.dirname(path), self._said(name))
        )

    def inside(self, name: str) -> AddressSource:
        """What has a name in the folder that the address names."""
        return self._with_path(lambda path: posixpath.join(path, self._said(name)))

    def ending(self, text: str) -> AddressSource:
        """What has this name and a text behind it."""
        return self._with_path(lambda path: path + text)

    def _said(self, name: str) -> str:
        """A name as the address has it: those of other kinds have no escapes."""
        return urllib.parse.quote(name, safe="") if self._is_http else name

    def _with_path(self, change: Callable[[str], str]) -> AddressSource:
        if not self._is_http:
            front, _, rest = self._address.rpartition("://")
            return AddressSource(f"{front}://{change(rest)}")
        parts = urllib.parse.urlsplit(self._address)
        return AddressSource(parts._replace(path=change(parts.path)).geturl())


class _ObjectSource(StoreSource):
    """A file object of the caller, or bytes."""

    def __init__(self, given: Any) -> None:
        self._given = given
        named = getattr(given, "name", None)
        self.name = named if isinstance(named, str) else f"<{type(given).__name__}>"

    def _found(self) -> Store:
        if isinstance(self._given, (bytes, bytearray, memoryview)):
            return BytesStore(self._given)
        if isinstance(self._given, io.TextIOBase):
            raise TypeError(
                f"{self.name}: expected a file that is open for reading bytes, not text"
            )
        if _can_seek(self._given):
            return FileStore(self._given, self.name)
        return copied(self._given.read, self.name)


def _can_seek(file: Any) -> bool:
    seekable = getattr(file, "seekable", None)
    return seekable() if callable(seekable) else hasattr(file, "seek")


def opened_as_it_is(given: Any) -> AbstractContextManager[Any]:
    """A file that is not a path, open for reading bytes: one that can seek is where it was, and
    stays open.
    """
    is_bare = is_file(given) and not isinstance(given, (str, bytes, bytearray, memoryview))
    if is_bare and _can_seek(given):
        return contextlib.nullcontext(given)
    return source_of(given).open()


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike))


def is_file(given: Any) -> bool:
    """True for what names or has the bytes of a file."""
    is_object = isinstance(given, (Source, bytes, bytearray, memoryview))
    return is_object or _is_path(given) or callable(getattr(given, "read", None))


def source_of(given: Any, large_header: bool = False, inside: str | None = None) -> Source:
    """The source that a caller means.

    Args:
        given: A path, an address, a file object or bytes.
        large_header: Whether headers of any size are to be read.
        inside: The name of the checkpoint in an archive.

    Raises:
        TypeError: It is nothing of the kind.
    """
    source = given if isinstance(given, Source) else _source_of(given)
    source.large_header |= large_header
    source.member = inside or source.member
    return source


def _source_of(given: Any) -> Source:
    if not is_file(given):
        raise TypeError(
            f"expected a path, an address, a file open for reading bytes, or bytes, got "
            f"{type(given).__name__}"
        )
    if not _is_path(given):
        return _ObjectSource(given)
    path = os.fsdecode(os.fspath(given))
    if not isinstance(given, str) or not is_address(path):
        return PathSource(path)
    if path[:5].lower() == "file:":
        from urllib.request import url2pathname  # takes a while, and few programs need it

        return PathSource(url2pathname(urllib.parse.urlsplit(path).path))
    return AddressSource(path)
