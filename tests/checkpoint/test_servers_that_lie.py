# SPDX-License-Identifier: BSD-3-Clause
"""Servers that lie, stop or send without end: an error names the address."""

from __future__ import annotations

import gzip
import os
import random
import time
import tracemalloc

import numpy as np
import pytest
from helpers.needs import needs
from helpers.remote_checkpoints import KINDS, LARGE, busy, file_of, state_of

import modtree as mt
from modtree import nn
from modtree.checkpoints import CheckpointError, convert
from modtree.cli import main
from modtree.files.sources.stores import RemoteError

pytestmark = pytest.mark.usefixtures("quick")


def other_range(handler, data, first, last):
    place = {"Content-Range": f"bytes {first + 1}-{last + 1}/{len(data)}"}
    handler.reply(206, data[first : last + 1], place)


def no_range(handler, data, first, last):
    handler.reply(206, data[first : last + 1])


def odd_range(handler, data, first, last):
    handler.reply(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/*"})


def beyond_its_size(handler, data, first, last):
    handler.reply(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/3"})


def more_than_asked(handler, data, first, last):
    place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
    handler.reply(206, data[first : last + 1] + b"more", place)


def other_length(handler, data, first, last):
    place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
    handler.reply(206, data[first : last + 1], place, length=last)


def short_for_ever(handler, data, first, last):
    place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
    handler.reply(206, data[first : first + 1], place, length=last + 1 - first)


def byte_by_byte(handler, data, first, last):
    handler.usual(data, first, first)


def packed(handler, data, first, last):
    place = {"Content-Range": f"bytes {first}-{last}/{len(data)}", "Content-Encoding": "gzip"}
    handler.reply(206, gzip.compress(data[first : last + 1]), place)


def changing(handler, data, first, last):
    place = {"Content-Range": f"bytes {first}-{last}/{len(data) + first}"}
    handler.reply(206, data[first : last + 1], place)


def other_tag(handler, data, first, last):
    place = {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": f'"{first}"'}
    handler.reply(206, data[first : last + 1], place)


def now_and_then(handler, data, first, last):
    if first:
        handler.reply(200, data)
    return not first


def slow_headers(handler, *_):
    handler.drip(b"HTTP/1.1 206 " + b"x" * 1000)


def slow_body(handler, data, first, last):
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
    handler.end_headers()
    handler.drip(data[first : last + 1])


def silent(handler, *_):
    time.sleep(3)


def endless_headers(handler, *_):
    handler.wfile.write(b"HTTP/1.1 206 OK\r\n")
    while True:
        handler.wfile.write(b"X: " + b"y" * 1000 + b"\r\n")


def no_http(handler, *_):
    handler.wfile.write(b"\x16\x03\x01\0\xa5" * 20)
    handler.close_connection = True


def enormous(handler, data, first, last):
    """A file of a size that no disk has, whose first bytes are right."""
    body = data[first : last + 1] if first < len(data) else bytes(last + 1 - first)
    end = first + len(body) - 1
    handler.reply(206, body, {"Content-Range": f"bytes {first}-{end}/{10**17}"})


LIES = [other_range, no_range, odd_range, beyond_its_size, more_than_asked, other_length,
        short_for_ever, byte_by_byte, packed, changing, other_tag, now_and_then, slow_headers,
        slow_body, silent, endless_headers, no_http, enormous]  # fmt: skip


@pytest.mark.slow(keep=4)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_server_that_lies_gives_an_error_that_names_the_address(
    lie, kind, server, tmp_path, capsys
):
    address = server.add(f"file.{kind}", file_of(kind, state_of(), tmp_path))
    server.answer = lie
    start = time.monotonic()
    tracemalloc.start()
    with pytest.raises((OSError, CheckpointError)) as caught:
        mt.load_file(address)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert address in str(caught.value)
    assert time.monotonic() - start < 15 and most < 50_000_000
    assert main(["verify", address]) in (1, 2)
    shown = capsys.readouterr()
    assert address in shown.out + shown.err and len((shown.out + shown.err).splitlines()) <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_bytes_on_the_way(kind, server, tmp_path):
    """A byte that another one is, a part that is missing: as from a file, with the address."""
    data = file_of(kind, {"a.weight": mt.ones(40), "b": mt.zeros(3, dtype=mt.int64)}, tmp_path)
    rng = random.Random(5)
    outcomes = set()
    for number in range(150):
        changed = bytearray(data)
        if number % 2:
            changed[rng.randrange(len(data))] = rng.randrange(256)
        else:
            del changed[rng.randrange(len(data)) :]
        address = server.add(f"file{number}", bytes(changed))
        try:
            read = mt.load_file(address)
        except CheckpointError as error:
            outcomes.add("refused")
            assert address in str(error)
        else:
            outcomes.add("read")
            (tmp_path / "same").write_bytes(changed)
            same = mt.load_file(tmp_path / "same")
            assert list(read) == list(same)
    assert outcomes == {"refused", "read"}


@pytest.mark.parametrize("code, kind", [(401, PermissionError), (403, PermissionError),
                                        (404, FileNotFoundError), (410, FileNotFoundError),
                                        (400, RemoteError), (451, RemoteError)])  # fmt: skip
def test_statuses_of_a_server(code, kind, server):
    server.answer = lambda handler, *_: handler.reply(code, b"<html>")
    address = server.add("file", b"x")
    with pytest.raises(kind) as caught:
        mt.load_file(address)
    assert caught.value.filename == address
    assert len(server.requests) == (2 if kind is FileNotFoundError else 1)  # and of an index


def test_a_web_page_is_named(server):
    address = server.add("model.safetensors", b"<!DOCTYPE html><html><body>log in</body></html>")
    with pytest.raises(CheckpointError, match="it is a web page"):
        mt.load_file(address)


def test_an_empty_file(server):
    with pytest.raises(CheckpointError, match="the file is empty"):
        mt.load_file(server.add("file", b""))


@needs("fsspec", "aiohttp")
@pytest.mark.parametrize("address", ["http://", "http://127.0.0.1:1/x", "http://[::1", "http:///x",
                                     "http://127.0.0.1:99999/x", "https://127.0.0.1:1/x",
                                     "http://nowhere.invalid/x", "http://ho st/x",
                                     "http://127.0.0.1:1/\x00é"])  # fmt: skip
def test_addresses_with_nothing_behind_them(address):
    with pytest.raises((OSError, CheckpointError)):
        mt.load_file(address)


def test_a_model_is_not_changed_by_a_file_that_breaks_off(server, tmp_path):
    net = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))
    address = server.add("file", file_of("safetensors", net.state_dict(), tmp_path))

    def answer(handler, data, first, last):
        return True if first == 0 else busy(handler)

    server.answer = answer
    before = {key: value.numpy().copy() for key, value in net.state_dict().items()}
    with pytest.raises(RemoteError, match="503"):
        net.load_state_dict(mt.load_file(address))
    assert all(np.array_equal(before[k], v.numpy()) for k, v in net.state_dict().items())


def test_a_conversion_that_breaks_off_leaves_nothing(server, tmp_path):
    address = server.add("file", file_of("pt", state_of(), tmp_path))
    server.answer = lambda handler, data, first, last: True if last < LARGE else busy(handler)
    with pytest.raises(RemoteError, match="503"):
        convert(address, tmp_path / "new.safetensors")
    assert os.listdir(tmp_path) == ["file.pt"]
