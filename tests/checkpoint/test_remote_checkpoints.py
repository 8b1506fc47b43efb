# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints behind addresses: headers are read in ranges, a range that fails is asked for again,
and a server that lies, stops or sends without end gives an error that names the address.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import socket
import sys
import time
import tracemalloc

import numpy as np
import pytest
from helpers.file_server import serving
from helpers.gguf_files import gguf

import modtree as mt
from modtree import nn
from modtree.checkpoints import CheckpointError, convert, open_checkpoint, verify
from modtree.cli import main
from modtree.files.sources import patience, stores
from modtree.files.sources.errors import RemoteError, shown_name

LARGE = 300_000  # elements: more than what is read at once of a header


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Servers that do not answer are given up soon."""
    monkeypatch.setattr(patience, "_PAUSE", 0.001)
    monkeypatch.setattr(patience, "_TIMEOUT", 0.5)
    monkeypatch.setattr(patience, "_GRACE", 0.5)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)


@pytest.fixture
def server():
    with serving() as found:
        yield found


def state_of(seed=0):
    rng = np.random.default_rng(seed)
    names = [f"layers.{i}.weight" for i in range(4)]
    state = {name: mt.from_numpy(rng.random(LARGE, np.float32)) for name in names}
    return state | {"layers.0.mask": mt.ones(3, dtype=mt.bool), "step": mt.tensor(3)}


def file_of(kind, state, tmp_path):
    path = tmp_path / f"file.{kind}"
    if kind == "safetensors":
        mt.save_file(state, path)
    elif kind == "pt":
        mt.save(state, path, format="torch")
    elif kind == "old.pt":
        torch = pytest.importorskip("torch")
        plain = {key: torch.from_numpy(value.numpy()) for key, value in state.items()}
        torch.save(plain, path, _use_new_zipfile_serialization=False)
    else:
        mt.save(state, path)
    return path.read_bytes()


def assert_same(read, state):
    assert read.keys() == state.keys()
    for key, value in state.items():
        assert read[key].dtype == value.dtype and np.array_equal(read[key].numpy(), value.numpy())


KINDS = ["safetensors", "pt", "old.pt", "pickle"]


# -- well-behaved ones -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "pt", "old.pt"])
def test_a_header_is_read_and_not_the_file(kind, server, tmp_path, capsys):
    data = file_of(kind, state_of(), tmp_path)
    address = server.add(f"file.{kind}", data)
    assert main(["inspect", address]) == 0
    shown = capsys.readouterr().out
    assert f"{address}: {'safetensors' if kind == 'safetensors' else 'torch'}, 6 entries" in shown
    assert server.sent < len(data) / 8
    assert len(server.requests) < 12


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*does not serve ranges")
def test_whatever_takes_a_path_takes_an_address(kind, ranges, server, tmp_path, capsys):
    state = state_of()
    address = server.add("file", file_of(kind, state, tmp_path))
    server.ranges = ranges
    assert_same(mt.load_file(address), state)
    meta = mt.load_file(address, device="meta")
    assert meta["layers.0.weight"].is_meta
    assert verify(address, state, finite=True) == []
    convert(address, tmp_path / "new.safetensors", dtype="float16")
    assert mt.load_file(tmp_path / "new.safetensors")["layers.1.weight"].dtype == mt.float16
    convert(address, tmp_path / "new.pt")
    assert_same(mt.load(tmp_path / "new.pt"), state)
    assert not mt.compare(address, state)
    assert main(["diff", address, str(tmp_path / "new.pt")]) == 0
    assert main(["verify", address]) == 0
    assert main(["convert", address, str(tmp_path / "third.safetensors")]) == 0
    if kind != "safetensors":
        assert_same(mt.load(address), state)
    assert "Warning" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_conversion_reads_each_byte_once(kind, server, tmp_path):
    data = file_of(kind, state_of(), tmp_path)
    convert(server.add("file", data), tmp_path / "new.safetensors")
    assert server.sent < len(data) * 1.2


def test_shards_are_found_beside_the_index(server, tmp_path):
    state = state_of()
    mt.save_file(state, tmp_path / "model.safetensors", max_shard_size="2MB")
    for name in os.listdir(tmp_path):
        server.add(f"a folder/{name}".replace(" ", "%20"), (tmp_path / name).read_bytes())
    folder = f"{server.address}/a%20folder/"
    for address in (folder, f"{folder}model.safetensors", f"{folder}model.safetensors.index.json"):
        assert_same(mt.load_file(address), state)
        assert verify(address, state) == []
    with open_checkpoint(folder) as checkpoint:
        files = {entry.file for entry in checkpoint.entries.values()}
        assert len(files) > 1 and all(file.startswith(folder) for file in files)
    server.files.pop(second := min(name for name in server.files if "-00002-" in name))
    with pytest.raises(CheckpointError, match=f"{second}, which is not there"):
        mt.load_file(folder)
    assert [problem.kind for problem in verify(folder)] == ["missing"]


@pytest.mark.parametrize("name", ["../a", "/a", "http://localhost/a", "a\\b", "x/../../a", ""])
def test_an_index_names_files_beside_itself_only(name, server):
    index = json.dumps({"weight_map": {"a": name}}).encode()
    address = server.add("folder/model.safetensors.index.json", index)
    server.add("a", b"")
    with pytest.raises(CheckpointError, match="no name of a file beside it"):
        mt.load_file(address)
    assert {path for path, _ in server.requests} == {"/folder/model.safetensors.index.json"}


def test_names_in_an_index_are_escaped(server):
    index = json.dumps({"weight_map": {"a": "%2e%2e?x#y"}}).encode()
    address = server.add("folder/model.safetensors.index.json", index)
    with pytest.raises(CheckpointError, match="not there"):
        mt.load_file(address)
    assert server.requests[-1][0] == "/folder/%252e%252e%3Fx%23y"


def test_an_index_that_names_itself(server):
    name = "model.safetensors.index.json"
    address = server.add(name, json.dumps({"weight_map": {"a": name}}).encode())
    with pytest.raises(CheckpointError, match="names itself"):
        mt.load_file(address)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_followed(code, server, tmp_path):
    state = state_of()
    address = server.add("file", file_of("safetensors", state, tmp_path))

    def answer(handler, data, first, last):
        if handler.path == "/from":
            handler.reply(code, b"", {"Location": address})
            return False
        return True

    server.add("from", b"x")
    server.answer = answer
    assert_same(mt.load_file(f"{server.address}/from"), state)


def test_a_redirect_to_a_file_of_this_machine(server, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    server.answer = lambda handler, *_: handler.reply(302, b"", {"Location": f"file://{tmp_path}"})
    with pytest.raises(OSError, match="Redirection to url 'file:"):
        mt.load_file(server.add("file", b"x"))


def test_a_redirect_with_an_endless_body(server):
    def answer(handler, *_):
        handler.send_response(302)
        handler.send_header("Location", f"{server.address}/nothing")
        handler.end_headers()
        while True:
            handler.wfile.write(bytes(1 << 16))

    server.answer = answer
    with pytest.raises(FileNotFoundError):
        mt.load_file(server.add("file", b"x"))


def test_the_account_in_an_address_is_sent_and_not_shown(server, tmp_path, capsys):
    seen = []

    def answer(handler, *_):
        seen.append(handler.headers.get("Authorization"))
        return True

    server.answer = answer
    server.add("file", b"damaged")
    address = server.address.replace("://", "://me:secret%21@") + "/file?signature=secret"
    assert main(["inspect", address]) == 2
    shown = capsys.readouterr().err
    assert f"{server.address}/file?...: not a checkpoint" in shown and "secret" not in shown
    assert seen[0] == "Basic bWU6c2VjcmV0IQ=="
    server.files.clear()
    assert main(["inspect", address]) == 2
    assert "secret" not in capsys.readouterr().err


def test_names_of_files_are_shown_as_they_are(tmp_path):
    name = str(tmp_path / "me:x@y?z")
    assert shown_name(name) == name
    assert shown_name("https://me:x@y/p?z") == "https://y/p?..."
    with pytest.raises(FileNotFoundError) as caught:
        mt.load_file(name)
    assert caught.value.filename == name


# -- no ranges -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("always:.*does not serve ranges")
def test_a_server_without_ranges_is_said_once(server, tmp_path, capsys):
    state = state_of()
    data = file_of("safetensors", state, tmp_path)
    address = server.add("file.safetensors", data)
    server.ranges = False
    with pytest.warns(UserWarning, match=rf"{address}: the server does not serve ranges"):
        assert_same(mt.load_file(address), state)
    assert server.sent == len(data)
    assert main(["inspect", address]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"modtree inspect: {address}: the server does not serve ranges, so that the whole file of "
        f"{len(data):,} bytes is copied to a temporary one first"
    ]
    assert server.sent == 2 * len(data)


def test_a_small_file_comes_whole_without_a_word(server):
    mt.save({"a": mt.ones(3)}, buffer := io.BytesIO(), format="torch")
    server.ranges = False
    assert mt.load_file(server.add("file", buffer.getvalue()))["a"].tolist() == [1, 1, 1]


def test_a_download_that_is_cut_begins_again(server, tmp_path):
    state = state_of()
    address = server.add("file", file_of("safetensors", state, tmp_path))
    server.ranges = False
    cuts = [1000, 200_000]

    def answer(handler, data, first, last):
        if cuts:
            handler.reply(200, data[: cuts.pop()], length=len(data))
            return False
        return True

    server.answer = answer
    with pytest.warns(UserWarning, match="does not serve ranges"):
        assert_same(mt.load_file(address), state)


def test_a_download_without_end_stops_before_the_disk_is_full(server, monkeypatch):
    monkeypatch.setattr(stores, "_LEAST_FREE", 1 << 60)

    def answer(handler, *_):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(bytes(1 << 16))

    server.answer = answer
    address = server.add("file", b"x")
    with pytest.warns(UserWarning), pytest.raises(OSError, match="disk .* is full") as caught:
        mt.load_file(address)
    assert caught.value.filename == address


# -- failures that pass ----------------------------------------------------------------------------


def cut_short(handler, data, first, last):
    handler.reply(206, data[first:last][: (last - first) // 2],
                  {"Content-Range": f"bytes {first}-{last}/{len(data)}"},
                  length=last + 1 - first)  # fmt: skip


def busy(handler, *_):
    handler.reply(503, b"", {"Retry-After": "0"})


def hangs_up(handler, *_):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def gives_less(handler, data, first, last):
    last = first + (last - first) // 2
    handler.usual(data, first, last)


@pytest.mark.parametrize("failure", [cut_short, busy, hangs_up, gives_less])
@pytest.mark.parametrize("kind", KINDS)
def test_a_range_that_fails_is_asked_for_again(kind, failure, server, tmp_path):
    state = state_of()
    address = server.add("file", file_of(kind, state, tmp_path))
    turn = [0]

    def answer(handler, data, first, last):
        turn[0] += 1
        return failure(handler, data, first, last) if turn[0] % 2 else True

    server.answer = answer
    assert_same(mt.load_file(address), state)
    assert turn[0] > 2


@pytest.mark.parametrize("failure", [busy, hangs_up])
def test_a_failure_that_stays_ends_after_a_few_attempts(failure, server, capsys):
    server.answer = failure
    address = server.add("file", b"x")
    with pytest.raises(RemoteError, match="tried 4 times") as caught:
        mt.load_file(address)
    assert caught.value.filename == address and len(server.requests) == 4
    assert main(["inspect", address]) == 2
    assert capsys.readouterr().err.startswith(f"modtree inspect: {address}: ")


# -- lies ------------------------------------------------------------------------------------------


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


@pytest.mark.slow
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


# -- other addresses -------------------------------------------------------------------------------


def test_addresses_of_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    state = state_of()
    system = fsspec.filesystem("memory")
    for kind in KINDS[:2]:
        system.pipe(f"/tests/file.{kind}", file_of(kind, state, tmp_path))
        assert_same(mt.load_file(f"memory://tests/file.{kind}"), state)
        assert verify(f"memory://tests/file.{kind}") == []
    assert_same(mt.load("memory://tests/file.pt"), state)
    mt.save_file(state, tmp_path / "model.safetensors", max_shard_size="2MB")
    for path in tmp_path.glob("model*"):
        system.pipe(f"/tests/folder/{path.name}", path.read_bytes())
    assert_same(mt.load_file("memory://tests/folder"), state)
    assert_same(mt.load_file("memory://tests/folder/model.safetensors"), state)
    with pytest.raises(FileNotFoundError):
        mt.load_file("memory://tests/nothing")
    with pytest.raises(CheckpointError, match="found none of model.safetensors"):
        mt.load_file("memory://tests")
    system.rm("/tests", recursive=True)


def test_a_file_system_that_fails_is_asked_again(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.pipe("/failing/file", file_of("safetensors", state := state_of(), tmp_path))
    calls = []
    whole = type(system).cat_file

    def cat_file(self, path, start=None, end=None, **options):
        calls.append((start, end))
        if len(calls) % 3 == 1:
            raise ConnectionError("lost")
        found = whole(self, path, start=start, end=end, **options)
        return found[:-1] if len(calls) % 3 == 2 else found

    monkeypatch.setattr(type(system), "cat_file", cat_file)
    assert_same(mt.load_file("memory://failing/file"), state)
    calls.clear()
    monkeypatch.setattr(type(system), "cat_file", lambda *_, **__: b"")
    with pytest.raises(RemoteError, match="0 bytes came .*tried 4 times"):
        mt.load_file("memory://failing/file")
    system.rm("/failing", recursive=True)


def test_without_fsspec_the_error_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert main(["inspect", "s3://bucket/model.safetensors"]) == 2
    assert capsys.readouterr().err == (
        "modtree inspect: s3://bucket/model.safetensors: reading s3:// takes the package fsspec: "
        "pip install 'modtree[url]'\n"
    )


def test_an_address_of_a_kind_that_nobody_knows():
    pytest.importorskip("fsspec")
    with pytest.raises(CheckpointError, match="fsspec cannot read nosuch://"):
        mt.load_file("nosuch://x/y")


def test_an_address_of_a_file_of_this_machine(tmp_path):
    mt.save_file(state := state_of(), tmp_path / "a b.safetensors")
    assert_same(mt.load_file((tmp_path / "a b.safetensors").as_uri()), state)


# -- file objects and bytes ------------------------------------------------------------------------


class OnlyReads:
    """A stream, such as the body of an answer."""

    def __init__(self, data):
        self._file = io.BytesIO(data)
        self.read = self._file.read


class Reads(io.RawIOBase):
    """A file that gives less than was asked for."""

    def __init__(self, data):
        self._file = io.BytesIO(data)

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, at, whence=0):
        return self._file.seek(at, whence)

    def read(self, count=-1):
        return self._file.read(min(count, 1000) if count >= 0 else 1000)


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO, OnlyReads, Reads])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_file_objects(kind, form, tmp_path):
    state = state_of()
    data = file_of(kind, state, tmp_path)
    assert_same(mt.load_file(form(data)), state)
    assert verify(form(data), finite=True) == []
    assert not mt.compare(form(data), state)
    convert(form(data), tmp_path / "new.safetensors")
    assert_same(mt.load_file(tmp_path / "new.safetensors"), state)
    with open_checkpoint(form(data)) as checkpoint:
        assert checkpoint.path == f"<{form.__name__}>" and len(checkpoint.keys()) == 6
    if kind != "safetensors" and form is not Reads:
        assert_same(mt.load(form(data)), state)


def test_a_file_object_is_read_from_its_beginning_and_stays_open(tmp_path):
    mt.save_file(state_of(), tmp_path / "a.safetensors")
    with open(tmp_path / "a.safetensors", "rb") as file:
        file.seek(77)
        assert_same(mt.load_file(file), state_of())
        assert not file.closed
    with pytest.raises(CheckpointError, match=r"a.safetensors: .*the file is truncated"):
        with open(tmp_path / "a.safetensors", "r+b") as file:
            file.truncate(1000)
            mt.load_file(file)


@pytest.mark.parametrize("given", [3, None, [], object(), io.StringIO("{}")])
def test_what_is_no_file(given):
    with pytest.raises(TypeError, match="open for reading bytes"):
        mt.load_file(given)


class Wrong(io.RawIOBase):
    def __init__(self, answer):
        self._answer = answer

    def seekable(self):
        return True

    def seek(self, at, whence=0):
        return 1000

    def tell(self):
        return 1000

    def read(self, count=-1):
        return self._answer


@pytest.mark.parametrize("answer", ["text", None, bytes(10**6), 3])
def test_file_objects_that_give_something_else(answer):
    with pytest.raises(TypeError, match="expected a file that is open for reading bytes"):
        mt.load_file(Wrong(answer))


def test_an_index_in_memory_has_nothing_beside_it():
    with pytest.raises(CheckpointError, match="bytes alone do not tell where"):
        mt.load_file(json.dumps({"weight_map": {"a": "b.safetensors"}}).encode())


# -- other formats ---------------------------------------------------------------------------------


def test_headers_of_gguf_files_and_archives_of_numpy_are_read_in_ranges(server):
    big = np.zeros(1 << 20, np.float32)
    archive = io.BytesIO()
    np.savez(archive, w=np.arange(3.0), big=big)
    files = {
        "a.gguf": gguf({"w": np.arange(3.0), "big": big}),
        "a.npz": archive.getvalue(),
    }
    for name, data in files.items():
        server.sent = 0
        with open_checkpoint(server.add(name, data)) as checkpoint:
            assert checkpoint.entries["big"].shape == (1 << 20,)
            assert checkpoint.tensor("w").tolist() == [0.0, 1.0, 2.0]
        assert server.sent < len(data) // 4


def test_half_an_archive_in_bytes_is_named():
    with pytest.raises(CheckpointError, match="ends before its directory"):
        open_checkpoint(b"PK\x03\x04" + bytes(10))
