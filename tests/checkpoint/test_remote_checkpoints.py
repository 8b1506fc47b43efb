# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints behind addresses: headers are read in ranges, a range that fails is asked for again,
and a server that lies, stops or sends without end gives an error that names the address.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import socket
import sys

import numpy as np
import pytest
from helpers.gguf_files import gguf
from helpers.needs import needs
from helpers.remote_checkpoints import KINDS, assert_same, busy, file_of, state_of

import modtree as mt
from modtree.checkpoints import CheckpointError, convert, open_checkpoint, verify
from modtree.cli import main
from modtree.files.sources import stores
from modtree.files.sources.stores import RemoteError, shown_name

pytestmark = pytest.mark.usefixtures("quick")


# -- well-behaved ones -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[:3])
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
    with pytest.raises(OSError, match="NonHttpUrlRedirect"):
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
    assert (
        f"{server.address}/file?...: not a known checkpoint format" in shown
        and "secret" not in shown
    )
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
    assert len(server.requests) == 2  # for a range, and for the whole
    assert main(["inspect", address]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"modtree inspect: {address}: the server does not serve ranges, so that the whole file of "
        f"{len(data):,} bytes is copied to a temporary one first"
    ]
    assert len(server.requests) == 4


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
    assert caught.value.filename == address
    assert len(server.requests) in (4, 8)  # aiohttp itself asks a server again that hangs up
    assert main(["inspect", address]) == 2
    assert capsys.readouterr().err.startswith(f"modtree inspect: {address}: ")


# -- other addresses -------------------------------------------------------------------------------


def test_addresses_of_fsspec(tmp_path, fsspec):
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


def test_a_file_system_that_fails_is_asked_again(tmp_path, monkeypatch, fsspec):
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


@pytest.mark.parametrize("package", ["fsspec.core", "aiohttp"])
@needs("fsspec", "aiohttp")
def test_without_the_packages_of_the_web_the_error_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    registry = importlib.import_module("fsspec.registry")
    monkeypatch.setattr(registry, "_registry", {})
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(CheckpointError, match=r"reading https:// takes .* 'modtree\[url\]'"):
        mt.load_file("https://host/model.safetensors")


@needs("fsspec")
def test_an_address_of_a_kind_that_nobody_knows():
    with pytest.raises(CheckpointError, match="fsspec cannot read nosuch://"):
        mt.load_file("nosuch://x/y")


def test_an_address_of_a_file_of_this_machine(tmp_path):
    mt.save_file(state := state_of(), tmp_path / "a b.safetensors")
    assert_same(mt.load_file((tmp_path / "a b.safetensors").as_uri()), state)


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
