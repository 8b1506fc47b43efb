# SPDX-License-Identifier: BSD-3-Clause
"""Answers of a server that is wrong in ways that a number chooses, but sends no byte that is not
the file's: what is read from it nevertheless is right.
"""

from __future__ import annotations

import socket

__all__ = ["lying"]


def _place(first, last, size):
    return {"Content-Range": f"bytes {first}-{last}/{size}"}


def _other_place(rng, handler, data, first, last):
    numbers = [first, last, len(data)]
    numbers[rng.integers(3)] += int(rng.choice([-1, 1, 1 << 20, 1 << 62, -(1 << 40)]))
    handler.reply(206, data[first : last + 1], _place(*numbers))


def _odd_place(rng, handler, data, first, last):
    words = ("", "bytes", f"bytes {first}-{last}/*", f"bits {first}-{last}/9", "bytes */0", "x" * 9)
    words += (f"bytes {first}-{last}/{'9' * 30}", f"bytes -{first}-{last}/{len(data)}")
    body = data[first : last + 1]
    handler.reply(206, body, {"Content-Range": words[rng.integers(len(words))]})


def _other_length(rng, handler, data, first, last):
    body = data[first : last + 1]
    length = max(0, len(body) + int(rng.choice([-3, -1, 1, 100, 1 << 40])))
    handler.close_connection = True
    handler.reply(206, body, _place(first, last, len(data)), length=length)


def _less(rng, handler, data, first, last):
    handler.usual(data, first, first + int(rng.integers(last + 1 - first)))


def _cut(rng, handler, data, first, last):
    body = data[first : last + 1]
    handler.close_connection = True
    some = body[: rng.integers(len(body))]
    handler.reply(206, some, _place(first, last, len(data)), length=len(body))


def _status(rng, handler, data, first, last):
    codes = (100, 204, 206, 301, 304, 308, 400, 401, 403, 404, 408, 410, 416, 429, 500, 503, 599)
    headers = {} if rng.integers(2) else {"Retry-After": "0", "Location": "/other"}
    handler.close_connection = True
    handler.reply(int(codes[rng.integers(len(codes))]), b"no", headers)


def _whole(rng, handler, data, first, last):
    handler.reply(200, data)


def _cut_whole(rng, handler, data, first, last):
    handler.close_connection = True
    handler.reply(200, data[: rng.integers(len(data))], length=len(data))


def _packed(rng, handler, data, first, last):
    headers = {"Content-Encoding": "gzip", **_place(first, last, len(data))}
    handler.reply(206, data[first : last + 1], headers)


def _other_tag(rng, handler, data, first, last):
    tag = {"ETag": f'"{rng.integers(3)}"'}
    handler.reply(206, data[first : last + 1], {**tag, **_place(first, last, len(data))})


def _hangs_up(rng, handler, *_):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def _no_http(rng, handler, *_):
    handler.close_connection = True
    handler.wfile.write(rng.bytes(int(rng.integers(1, 200))))


def _odd_head(rng, handler, data, first, last):
    lines = (b"HTTP/1.1 206\r\n", b"HTTP/1.1 2060 OK\r\n", b"HTTP/9 206 OK\r\n", b"ICY 200\r\n")
    heads = (b"X" * 70_000 + b": y\r\n", b"X: y\r\n" * 120, b"Content-Length: -5\r\n", b": \r\n")
    heads += (b"Content-Length: 5, 6\r\n", b"Transfer-Encoding: chunked\r\n", b"\0: \xff\r\n")
    place = f"Content-Range: bytes {first}-{last}/{len(data)}\r\n".encode()
    handler.close_connection = True
    line = lines[rng.integers(len(lines))] if rng.integers(2) else b"HTTP/1.1 206 OK\r\n"
    handler.wfile.write(line + place + heads[rng.integers(len(heads))] + b"\r\n")
    handler.wfile.write(data[first : last + 1])


_WAYS = (
    _other_place, _odd_place, _other_length, _less, _cut, _status, _whole, _cut_whole, _packed,
    _other_tag, _hangs_up, _no_http, _odd_head,
)  # fmt: skip


def lying(rng):
    """What to set as ``answer`` of a server: lies now and then, always in one or two ways."""
    ways = [_WAYS[number] for number in rng.integers(len(_WAYS), size=2)]
    rate = rng.choice([0.2, 0.5, 1.0])

    def answer(handler, data, first, last):
        if first is None or first > last or rng.random() >= rate:
            return True
        ways[rng.integers(2)](rng, handler, data, first, last)
        return False

    return answer
