# SPDX-License-Identifier: BSD-3-Clause
"""An HTTP server on this machine that serves files as well, or as badly, as it is told."""

from __future__ import annotations

import contextlib
import http.server
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["FileServer", "serving"]


class FileServer:
    """What is served, and how.

    Attributes:
        files: The bytes by path.
        ranges: Whether ranges are served.
        answer: Instead of the usual answer: called with the handler, the data, and the first and
            the last byte that are wanted (None without a range). Returns True to leave the answer
            to the usual way.
        requests: The ranges that were asked for, by path.
        sent: The bytes that were sent as contents.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.answer: Callable[..., bool | None] | None = None
        self.requests: list[tuple[str, str | None]] = []
        self.sent = 0

    def add(self, path: str, data: bytes) -> str:
        """Serves a file, and returns its address."""
        self.files[f"/{path}"] = data
        return f"{self.address}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        state: FileServer = self.server.state
        path = self.path.partition("?")[0]
        wanted = self.headers.get("Range")
        state.requests.append((path, wanted))
        data = state.files.get(path)
        if data is None:
            self.send_error(404)
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted or "") if state.ranges else None
        first, last = (int(found[1]), min(int(found[2]), len(data) - 1)) if found else (None, None)
        if state.answer is None or state.answer(self, data, first, last):
            self.usual(data, first, last)

    def usual(self, data: bytes, first: int | None, last: int | None) -> None:
        if first is None or last is None:
            self.reply(200, data)
        elif first >= len(data):
            self.reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
            self.reply(206, data[first : last + 1], place)

    def reply(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int = -1
    ) -> None:
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        self.server.state.sent += len(body)  # before the other side has all of it
        self.wfile.write(body)

    def drip(self, data: bytes, seconds: float = 0.05) -> None:
        """Sends a byte now and then, until the other side has gone."""
        for at in range(len(data)):
            self.wfile.write(data[at : at + 1])
            self.wfile.flush()
            time.sleep(seconds)


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        pass  # of clients that hang up


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """A server for as long as the block lasts."""
    server = _Server(("127.0.0.1", 0), Handler)
    state = FileServer(f"http://127.0.0.1:{server.server_port}")
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
