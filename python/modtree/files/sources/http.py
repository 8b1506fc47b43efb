# SPDX-License-Identifier: BSD-3-Clause
"""Files behind ``http://`` and ``https://``, read in ranges.

The standard library does it, proxies and redirects included. What a server answers is not believed:
each answer must be for the range that was asked for, of a file that is still the same, and come at
a pace. A range that fails is asked for again, from where it broke off.
"""

from __future__ import annotations

import functools
import http.client
import io
import re
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from modtree.files.sources.errors import RemoteError, missing, refused_access, shown_name
from modtree.files.sources.patience import Attempts, Pace, Passing, TooSlow, say_copied
from modtree.files.sources.stores import BytesStore, RangeStore, Store, copied

__all__ = ["store_of"]

#: What the first request asks for: the header of most files.
_HEAD = 1 << 16
#: Of the file, in one read from a connection.
_CHUNK = 1 << 20
_SAFE = ":/?#[]@!$&'()*+,;=%~"
_TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_NO_BYTES = re.compile(r"bytes \*/0", re.ASCII)


class _Paced(io.RawIOBase):
    """What a socket receives, as long as it comes at a pace."""

    def __init__(self, raw: Any, sock: Any) -> None:
        self._raw = raw
        self._socket = sock
        self._pace = Pace()

    def readable(self) -> bool:
        return True

    def readinto(self, place: Any) -> int | None:
        self._socket.settimeout(self._pace.seconds())
        count: int | None = self._raw.readinto(place)
        self._pace.advance(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Paced(self.fp.detach(), sock), _HEAD)


class _Connection(http.client.HTTPConnection):
    response_class = _Response


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, request: Any) -> Any:
        return self.do_open(_Connection, request)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: Any) -> Any:
        return self.do_open(_SecureConnection, request, context=_trust())


@functools.cache
def _trust() -> ssl.SSLContext:
    """The certificates of the system, which take a while to read."""
    return ssl.create_default_context()


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, request: Any, file: Any, code: int, message: str, headers: Any, url: str
    ) -> Any:
        file.close()  # else all that it says would be read
        if not url.startswith("https://" if request.type == "https" else ("http://", "https://")):
            raise RemoteError(f"the server leads to {shown_name(url)!r:.200}", request.full_url)
        code = 307 if code == 308 else code  # which Python 3.10 does not know
        return super().redirect_request(request, file, code, message, headers, url)

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302


def _opener() -> urllib.request.OpenerDirector:
    """Without the handlers of urllib for other kinds of addresses."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Handler(),
        _SecureHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def store_of(address: str) -> Store:
    """The bytes behind an address: ranges of them, or a temporary copy where the server does not
    serve ranges.

    Raises:
        FileNotFoundError: There is nothing.
        PermissionError: The server wants to know who asks.
        RemoteError: The server cannot be reached, or lies.
    """
    attempts = Attempts(address)
    while True:
        try:
            return _HttpFile(address).store()
        except Passing as error:
            attempts.failed(error)


class _HttpFile:
    """A file behind an address."""

    def __init__(self, address: str) -> None:
        self._name = address
        parts = urllib.parse.urlsplit(urllib.parse.quote(address, safe=_SAFE))
        account, _, host = parts.netloc.rpartition("@")
        self._account = urllib.parse.unquote_to_bytes(account)
        self._address = parts._replace(netloc=host).geturl()
        self._opener = _opener()
        self._size = -1  # not known yet
        self._tag = ""

    def store(self) -> Store:
        with self._errors(), closing(self._answer(0, _HEAD)) as answer:
            if answer.status != 206:
                return self._whole(answer)
            first, last = self._range(answer, 0, _HEAD)
            head = bytearray(last + 1 - first)
            self._receive(answer, memoryview(head))
            return RangeStore(self._size, self.fetch, head)
        return BytesStore(b"")

    def fetch(self, at: int, place: memoryview) -> None:
        """Fills memory with the bytes from a place on."""
        attempts, done = Attempts(self._name), 0
        while done < len(place):
            before, end = done, at + len(place)
            try:
                with self._errors(), closing(self._answer(at + done, end)) as answer:
                    if answer.status != 206:
                        raise Passing("the server serves ranges now and then")
                    first, last = self._range(answer, at + done, end)
                    done += self._receive(answer, place[done : done + last + 1 - first])
                if done < len(place):
                    raise Passing("the server sends less than it is asked for")
            except Passing as error:
                done += error.received
                attempts.failed(error, done - before)

    def _answer(self, begin: int, end: int) -> Any:
        request = urllib.request.Request(
            self._address,
            headers={
                "Range": f"bytes={begin}-{end - 1}",
                "Accept-Encoding": "identity",
                "User-Agent": "modtree",
            },
        )
        if self._account:  # not for those that the server leads to
            words = f"Basic {b64encode(self._account).decode()}"
            request.add_unredirected_header("Authorization", words)
        answer = self._opener.open(request, timeout=Pace().seconds())
        packed = answer.headers.get("Content-Encoding", "identity")
        if packed != "identity":
            answer.close()
            raise RemoteError(f"the server sends it packed as {packed!r:.40}", self._name)
        return answer

    def _range(self, answer: Any, begin: int, end: int) -> tuple[int, int]:
        """The first and the last byte of an answer, of those that were asked for."""
        words = answer.headers.get("Content-Range", "")
        match = _RANGE.fullmatch(words)
        first, last, size = map(int, match.groups()) if match else (-1, -1, -1)
        if first != begin or not first <= last < min(size, end):
            raise RemoteError(
                f"the server was asked for the bytes {begin} to {end - 1}, and says that it sends "
                f"{words!r:.80}",
                self._name,
            )
        if answer.length is not None and answer.length != last + 1 - first:
            raise RemoteError(
                f"the server says that it sends {words!r:.80}, in {answer.length} bytes", self._name
            )
        tag = answer.headers.get("ETag", "")
        tag = "" if tag.startswith("W/") else tag
        if self._size >= 0 and (size, tag) != (self._size, self._tag):
            raise RemoteError("the file on the server changed while it was read", self._name)
        self._size, self._tag = size, tag
        return first, last

    def _receive(self, answer: Any, place: memoryview) -> int:
        done = 0
        try:
            while done < len(place):
                count = answer.readinto(place[done : done + _CHUNK])
                if not count:
                    break
                done += count
        except (OSError, http.client.HTTPException) as error:
            raise Passing(_words(error), received=done) from None
        if done < len(place):
            raise Passing(
                f"the connection ended after {done:,} of {len(place):,} bytes", received=done
            )
        if answer.length is None and answer.read(1):
            raise RemoteError("the server sends more than it was asked for", self._name)
        return done

    def _whole(self, answer: Any) -> Store:
        """All bytes, in the answer of a server that does not serve ranges."""
        if answer.status != 200:
            raise RemoteError(f"the server answers {answer.status}", self._name)
        length = answer.length
        if length is not None and length <= _HEAD:
            data = bytearray(length)
            self._receive(answer, memoryview(data))
            return BytesStore(data)
        say_copied(self._name, "the server does not serve ranges", length)
        store = copied(answer.read, self._name)
        if length is not None and store.size != length:
            raise Passing(f"the connection ended after {store.size:,} of {length:,} bytes")
        return store

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What goes wrong with a connection, as errors of this package."""
        try:
            yield
        except (RemoteError, Passing):
            raise
        except urllib.error.HTTPError as error:
            error.close()
            if not (error.code == 416 and _NO_BYTES.fullmatch(_range_of(error))):
                raise self._of_status(error) from None
        except TooSlow as error:
            raise RemoteError(str(error), self._name) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            is_final = isinstance(reason, (ssl.SSLCertVerificationError, ValueError))
            is_final |= isinstance(reason, (http.client.InvalidURL, str))
            if isinstance(reason, socket.gaierror):
                is_final = reason.errno != getattr(socket, "EAI_AGAIN", None)
            if is_final:
                raise RemoteError(_words(reason), self._name) from None
            raise Passing(_words(reason)) from None

    def _of_status(self, error: urllib.error.HTTPError) -> Exception:
        words = f"the server answers {error.code} {str(error.reason)[:100]}".rstrip()
        is_known = self._size >= 0  # it was there a moment ago
        if error.code in (404, 410) and not is_known:
            return missing(self._name)
        if error.code in (401, 403, 407) and not is_known:
            return refused_access(
                self._name, f"{words}: it takes an address with a signature, or an account"
            )
        if error.code in _TRY_AGAIN:
            wait = error.headers.get("Retry-After", "")
            return Passing(words, pause=float(wait) if wait.isdecimal() else 0.0)
        return RemoteError(words, self._name)


def _range_of(error: urllib.error.HTTPError) -> str:
    return str(error.headers.get("Content-Range", ""))


def _words(error: Any) -> str:
    if isinstance(error, TimeoutError):
        return "the server does not answer in time"
    return f"{type(error).__name__}: {error}"[:300] if str(error) else type(error).__name__
