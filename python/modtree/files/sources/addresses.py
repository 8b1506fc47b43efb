# SPDX-License-Identifier: BSD-3-Clause
"""Files behind addresses, which the package fsspec reads: ``https://``, ``s3://``, ``hf://``, ...

fsspec does not compare the answer of a web server with what the server was asked for. ``_Answers``
does, so that a server that ignores ranges and a file that changes while it is read give an error
and not the bytes of another place.
"""

from __future__ import annotations

import functools
import importlib
import re
import time
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.sources.stores import (
    BytesStore,
    RangeStore,
    RemoteError,
    Store,
    copied,
    is_http,
    missing,
    refused_access,
    shown_name,
)

_Result = TypeVar("_Result")

#: How often the same bytes are asked for, and the seconds before the second time: then doubled.
_ATTEMPTS = 4
_PAUSE = 0.25
#: Bytes of one request, and of the first one to a web server: the header of most files.
_PIECE = 1 << 24
_HEAD = 1 << 16
#: Seconds in which a web server must send something, and in which it must send a piece.
_SILENCE = 30.0
_LONGEST = 300.0

_TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
_WANTED = re.compile(r"bytes=(\d+)-(\d+)", re.ASCII)
_SENT = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_ADDRESS = re.compile(r"\w+://[^\s'\"]*")


def store_of(address: str) -> Store:
    """The bytes behind an address: ranges of them, or a temporary copy where the server does not
    serve ranges.

    Raises:
        CheckpointError: fsspec, or the package that it needs for this address, is not installed.
        FileNotFoundError: There is nothing.
        IsADirectoryError: There is a folder.
        PermissionError: It takes an account.
        RemoteError: The server cannot be reached, or its answers are wrong.
    """
    protocol = address.partition(":")[0]
    answers = _Answers(address) if is_http(address) else None
    try:
        fsspec = importlib.import_module("fsspec.core")
    except ImportError:
        raise _uninstalled(protocol, "fsspec", address) from None
    try:
        system, path = fsspec.url_to_fs(address, **(answers.options() if answers else {}))
    except ImportError as error:  # its words name the package to install
        if answers:
            raise _uninstalled(protocol, "aiohttp", address) from None
        raise _unreadable(protocol, error, address) from None
    except ValueError as error:
        raise _unreadable(protocol, error, address) from None
    except Exception as error:  # what the packages of others raise
        raise _converted(error, address) from None
    file = _RemoteFile(address, system, path)
    return file.web_store(answers) if answers else file.store()


def _uninstalled(protocol: str, package: str, address: str) -> CheckpointError:
    return CheckpointError(
        f"reading {protocol}:// takes the package {package}: pip install 'modtree[url]'",
        shown_name(address),
    )


def _unreadable(protocol: str, error: Exception, address: str) -> CheckpointError:
    return CheckpointError(f"fsspec cannot read {protocol}://: {error}", shown_name(address))


class _WithoutRanges(Exception):
    """The server sends all of a file, of so many bytes, to whoever asks for a few of them."""

    def __init__(self, size: int | None) -> None:
        self.size = size


class _Answers:
    """What a web server says about a file: checked before a byte of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tag = ""
        self.size = -1  # not known yet

    def options(self) -> dict[str, Any]:
        """The arguments for fsspec's file system, and with them for the sessions of aiohttp."""
        try:
            aiohttp = importlib.import_module("aiohttp")
        except ImportError:
            return {}  # fsspec says so in a moment
        client = {
            "raise_for_status": self.check,
            "headers": {"Accept-Encoding": "identity", "User-Agent": "modtree"},
            "auto_decompress": False,
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE),
        }
        return {"client_kwargs": client, "proxy": self._proxy(), "skip_instance_cache": True}

    def _proxy(self) -> str | None:
        """As the environment has it. aiohttp would read the passwords in .netrc too."""
        parts = urllib.parse.urlsplit(self._name)
        if urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        return urllib.request.getproxies().get(parts.scheme.lower())

    async def check(self, answer: Any) -> None:
        """Raises an error unless an answer is what was asked for. aiohttp calls it."""
        try:
            self._check_status(answer)
            wanted = _WANTED.fullmatch(answer.request_info.headers.get("Range", ""))
            if wanted is not None and not self._is_all_of_a_short_file(answer):
                self._check_range(answer, int(wanted[1]), int(wanted[2]))
        except Exception:
            answer.close()
            raise

    def _check_status(self, answer: Any) -> None:
        status, words = answer.status, f"the server answers {answer.status}"
        if status in (404, 410):
            raise missing(self._name)
        if status in (401, 403, 407):
            words += ": it takes an address with a signature, or an account"
            raise refused_access(self._name, words)
        if status in _TRY_AGAIN:
            raise ConnectionError(words)
        if status == 416 and self.size < 0:  # no bytes from the first one on
            raise _WithoutRanges(0)
        if status not in (200, 206):
            raise RemoteError(words, self._name)
        packed = answer.headers.get("Content-Encoding", "identity")
        if packed != "identity":
            raise RemoteError(f"the server sends it packed as {packed!r:.40}", self._name)

    def _is_all_of_a_short_file(self, answer: Any) -> bool:
        if answer.status != 200:
            return False
        if self.size >= 0:
            raise ConnectionError("the server serves ranges now and then")
        if answer.content_length is None or answer.content_length > _HEAD:
            raise _WithoutRanges(answer.content_length)
        self.size = int(answer.content_length)
        return True

    def _check_range(self, answer: Any, first: int, last: int) -> None:
        words = answer.headers.get("Content-Range", "")
        match = _SENT.fullmatch(words)
        begin, end, size = map(int, match.groups()) if match else (-1, -1, -1)
        if begin != first or not begin <= end <= min(last, size - 1):
            raise RemoteError(
                f"the server was asked for the bytes {first} to {last}, and says that it sends "
                f"{words!r:.80}",
                self._name,
            )
        if answer.content_length != end + 1 - begin:
            raise RemoteError(
                f"the server says that it sends {words!r:.80}, in {answer.content_length} bytes",
                self._name,
            )
        tag = answer.headers.get("ETag", "")
        tag = "" if tag.startswith("W/") else tag
        if self.size >= 0 and (size, tag) != (self.size, self._tag):
            raise RemoteError("the file on the server changed while it was read", self._name)
        self.size, self._tag = size, tag


class _RemoteFile:
    def __init__(self, address: str, system: Any, path: str) -> None:
        self._name = address
        self._system = system
        self._path = path
        self._options: dict[str, Any] = {}

    def store(self) -> Store:
        """The bytes of a file system that knows the size of its files."""
        try:
            facts = self._system.info(self._path)
            if facts.get("type") != "directory":
                size = facts.get("size")
                if type(size) is int and size >= 0:
                    return RangeStore(size, self.fetch)
                self._warn_of_a_copy("its size is not known", None)
                return self._copy()
        except Exception as error:
            raise _converted(error, self._name) from None
        raise IsADirectoryError(None, "a folder", shown_name(self._name))

    def web_store(self, answers: _Answers) -> Store:
        """The bytes of a web server, of which the first answer tells the size."""
        self._options["timeout"] = _LONGEST
        try:
            head = self._tried(lambda: self._system.cat_file(self._path, 0, _HEAD, **self._options))
        except _WithoutRanges as found:
            size = found.size
        else:
            return RangeStore(answers.size, self.fetch, head)
        if size == 0:
            return BytesStore(b"")
        self._warn_of_a_copy("the server does not serve ranges", size)
        # A size, because fsspec would ask for it again; no blocks, because those are ranges.
        return self._tried(lambda: self._copy(size=size or 1, block_size=0))

    def _warn_of_a_copy(self, reason: str, size: int | None) -> None:
        length = "" if size is None else f" of {size:,} bytes"
        warnings.warn(
            f"{shown_name(self._name)}: {reason}, so that the whole file{length} is copied to a "
            f"temporary one first",
            stacklevel=2,
        )

    def _copy(self, **options: Any) -> Store:
        with self._system.open(self._path, "rb", **options) as file:
            return copied(file.read, self._name)

    def fetch(self, at: int, place: memoryview) -> None:
        """Fills memory with the bytes from a place on."""
        for begin in range(0, len(place), _PIECE):
            piece = place[begin : begin + _PIECE]
            piece[:] = self._tried(functools.partial(self._piece, at + begin, len(piece)))

    def _piece(self, at: int, count: int) -> bytes:
        found: bytes = self._system.cat_file(self._path, start=at, end=at + count, **self._options)
        if len(found) != count:
            raise ConnectionError(f"{len(found):,} bytes came for {count:,}")
        return found

    def _tried(self, read: Callable[[], _Result]) -> _Result:
        """What a function returns, called until it succeeds, or fails in a way that stays."""
        words = ""
        for number in range(_ATTEMPTS):
            if number:
                time.sleep(_PAUSE * 2 ** (number - 1))
            try:
                return read()
            except (RemoteError, FileNotFoundError, PermissionError, _WithoutRanges):
                raise
            except ValueError as error:  # not an address, or the server leads to one that is not
                raise RemoteError(_words(error), self._name) from None
            except Exception as error:  # what the packages of others raise
                words = _words(error)
        raise RemoteError(f"{words}; tried {_ATTEMPTS} times", self._name)


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
    """What an error says, without what is private in the addresses that it names."""
    text = _ADDRESS.sub(lambda found: shown_name(found[0]), str(error))
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
