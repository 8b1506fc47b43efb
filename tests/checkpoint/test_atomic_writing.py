# SPDX-License-Identifier: BSD-3-Clause
"""A file is there whole or not at all: killed processes, full disks, two writers at once."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import modtree as mt
from modtree.files.checkpoint.atomic import AtomicFiles, atomic_file

posix = pytest.mark.skipif(os.name == "nt", reason="signals, links and limits of POSIX")

#: Saves states of one value for as long as it lives; the value says which save it was.
WRITER = """
import sys
import numpy as np
import modtree as mt
path, start, shard = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) or None
print("ready", flush=True)
for i in range(10**6):
    value = start + i % 1000
    state = {f"layer{k}": np.full(50_000, value, np.float32) for k in range(8)}
    state["count"] = np.array([value])
    mt.save_file(state, path, max_shard_size=shard)
"""


STATE = {f"layer{k}": np.zeros(50_000, np.float32) for k in range(8)} | {"count": np.zeros(1)}


def start_writer(path, start, shard):
    command = [sys.executable, "-c", WRITER, str(path), str(start), str(shard)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def assert_whole(path):
    """Every value of the checkpoint is from one save."""
    read = mt.load_file(path)
    assert len(read) == 9
    found = {float(v) for tensor in read.values() for v in np.unique(tensor.numpy())}
    assert len(found) == 1, found


def bytes_in(folder):
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def leftovers(folder):
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


@posix
@pytest.mark.parametrize("shard", [0, 500_000], ids=["one file", "shards"])
def test_killed_at_random_moments(shard, tmp_path, rounds):
    rng = random.Random(11 + shard)
    path = tmp_path / "model.safetensors"
    mt.save_file(STATE, path)
    for _ in range(rounds(3, 15)):
        process = start_writer(path, 0, shard)
        time.sleep(rng.random() * 0.1)
        process.kill()
        process.wait()
        process.stdout.close()
        assert_whole(path)
        assert bytes_in(tmp_path) < 3 * 1_700_000  # old, new, and what one dead process left
    mt.save_file(mt.load_file(path), path, max_shard_size=shard or None)
    assert leftovers(tmp_path) == []
    assert_whole(path)


@pytest.mark.slow(keep=1)
@posix
@pytest.mark.parametrize("shards", [(500_000, 500_000), (500_000, 0), (0, 500_000)])
def test_killed_between_any_two_changes_of_the_folder(shards, tmp_path):
    old, new = shards
    path = tmp_path / "modèle.safetensors"
    step = 0
    while True:
        mt.save_file(STATE, path, max_shard_size=old or None)
        if saves_until(path, step, new or None):
            break
        assert_whole(path)
        mt.save_file(mt.load_file(path), path, max_shard_size=old or None)
        assert_whole(path)
        step += 1
    assert step > 3


def saves_until(path, step, shard):
    """Saves in a process that dies before its change of that number; whether it lived."""
    process = os.fork()
    if not process:
        changes = itertools.count()
        for name in ("unlink", "replace", "rename", "link"):
            setattr(os, name, dying(getattr(os, name), changes, step))
        mt.save_file({key: value + 1 for key, value in STATE.items()}, path, max_shard_size=shard)
        os._exit(0)
    return os.waitpid(process, 0)[1] == 0


def dying(change, changes, step):
    def changed(*args, **kwargs):
        if next(changes) == step:
            os._exit(1)
        return change(*args, **kwargs)

    return changed


@posix
@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("shards", [(0, 0), (500_000, 500_000), (0, 500_000)])
def test_two_processes_that_save_to_one_path(shards, tmp_path):
    path = tmp_path / "model.safetensors"
    writers = [start_writer(path, 1000.0 * (i + 1), shard) for i, shard in enumerate(shards)]
    try:
        seen = 0
        begin = time.monotonic()
        while time.monotonic() < begin + 2 or (not seen and time.monotonic() < begin + 120):
            try:
                assert_whole(path)
                seen += 1
            except (FileNotFoundError, mt.CheckpointError) as error:
                # Between the opening of one file and the next, all of them may be replaced.
                assert isinstance(error, FileNotFoundError) or "index" in str(error), error
    finally:
        for process in writers:
            process.kill()
            process.wait()
            process.stdout.close()
    assert seen
    assert_whole(path)


@posix
def test_the_old_file_stays_where_there_is_no_space(tmp_path):
    path = tmp_path / "model.safetensors"
    mt.save_file({"a": mt.ones(10)}, path)
    code = """
import resource, signal, sys
import numpy as np
import modtree as mt
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for shard in (None, 150_000):
    state = {f"a{i}": np.zeros(30_000, np.float32) for i in range(3)}
    state["b"] = np.zeros(60_000, np.float32)
    try:
        mt.save_file(state, sys.argv[1], max_shard_size=shard)
    except OSError as error:
        assert error.filename and "model" in str(error), error
    else:
        raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert mt.load_file(path)["a"].tolist() == [1.0] * 10


def test_a_write_that_fails_names_the_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left") as caught:
        with atomic_file(path) as file:
            file.write(b"new")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(path) or caught.value.filename == path
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_happens_the_old_file_stays(error, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(error):
        with atomic_file(path) as file:
            file.write(b"x" * 3_000_000)
            raise error
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_files_that_are_brought_to_the_disk_together(tmp_path):
    before = threading.active_count()
    with AtomicFiles() as files:
        for i in range(30):  # more than are open at once
            with files.open(tmp_path / f"{i}") as file:
                file.write(b"%d" % i)
    assert threading.active_count() == before
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        f"{i}": b"%d" % i for i in range(30)
    }


def test_an_error_leaves_no_temporary_file_of_several(tmp_path):
    with pytest.raises(KeyError), AtomicFiles() as files:
        for name in "abc":
            with files.open(tmp_path / name) as file:
                file.write(b"x" * 3_000_000)
        raise KeyError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("can_start", [True, False], ids=["in the background", "no threads"])
def test_a_disk_that_fails_at_the_end(can_start, tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)
    if not can_start:
        monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="Input/output error") as caught:
        with AtomicFiles() as files, files.open(path) as file:
            file.write(b"new")
    assert caught.value.filename == str(path) or caught.value.filename == path
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_nothing_has_its_name_before_it_is_on_the_disk(tmp_path, monkeypatch):
    sync, replace, synced = os.fsync, os.replace, []

    def note(descriptor):
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def check(old, new):
        assert os.stat(old).st_ino in synced
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    state = {f"{i}": np.full(1000, i, np.float32) for i in range(20)}
    mt.save_file(state, tmp_path / "model.safetensors", max_shard_size=4000)
    assert len(synced) >= 20
    assert mt.load_file(tmp_path)["7"].tolist() == [7.0] * 1000


def test_an_error_of_the_user_keeps_its_words(tmp_path):
    with pytest.raises(OSError, match="^the text$"):
        with atomic_file(tmp_path / "file"):
            raise OSError("the text")


def test_nothing_is_seen_before_the_end(tmp_path):
    path = tmp_path / "a"
    with atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a"]


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_of_a_new_file_are_those_of_open(mask, tmp_path):
    old = os.umask(mask)
    try:
        with atomic_file(tmp_path / "a"):
            pass
        with open(tmp_path / "b", "wb"):
            pass
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in "ab"]
    assert modes[0] == modes[1]


@posix
def test_an_old_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with atomic_file(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@posix
def test_a_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    os.symlink("there/real", tmp_path / "link")
    for content in (b"first", b"second"):
        with atomic_file(tmp_path / "link") as file:
            file.write(content)
        assert (tmp_path / "there" / "real").read_bytes() == content
    assert (tmp_path / "link").is_symlink() and os.listdir(tmp_path / "there") == ["real"]


@posix
def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    with atomic_file(tmp_path / "pipe") as file:
        file.write(b"through")
    assert reader.communicate()[0] == b"through"
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write all")
def test_a_file_that_may_not_be_written_stays(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError), atomic_file(path):
        pass
    assert path.read_bytes() == b"old"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError), atomic_file(tmp_path):
        pass


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"), atomic_file(tmp_path / "none" / "a"):
        pass


def test_names_of_the_greatest_length(tmp_path):
    path = tmp_path / ("é" * 127)
    with atomic_file(path) as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == [path.name]


@posix
def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path):
    dead = tmp_path / ".a.0123456789ab.tmp"
    dead.write_bytes(b"half")
    others = [".a.tmp", ".a.0123.tmp", ".b.0123456789ab.tmp", "a.0123456789ab.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    with atomic_file(tmp_path / "a") as outer:
        outer.write(b"outer")
        assert not dead.exists()
        with atomic_file(tmp_path / "a") as inner:
            inner.write(b"inner")
        assert (tmp_path / "a").read_bytes() == b"inner"
    assert (tmp_path / "a").read_bytes() == b"outer"
    assert sorted(os.listdir(tmp_path)) == sorted(["a", *others])


@posix
def test_sigkill_is_what_kills(tmp_path):
    """What the tests above stand on: kill() does not let the process clean up."""
    process = start_writer(tmp_path / "model.safetensors", 0, 0)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
