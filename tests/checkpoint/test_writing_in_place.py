# SPDX-License-Identifier: BSD-3-Clause
"""Folders in which no file can be made or replaced, interrupts, and files that become shorter."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import modtree as mt
from modtree import nn
from modtree.checkpoints import CheckpointError, convert
from modtree.cli import main
from modtree.files.checkpoint.atomic import atomic_file

posix = pytest.mark.skipif(os.name == "nt", reason="permissions and signals of POSIX")


def state_of(value, count=1000):
    return {"a": mt.full((count,), float(value)), "b": mt.arange(4)}


def is_state(read, value, count=1000):
    return read["a"].tolist() == [float(value)] * count and read["b"].tolist() == [0, 1, 2, 3]


SAVES = {
    "save_file": lambda path, **how: mt.save_file(state_of(2), path, **how),
    "save": lambda path, **how: mt.save(state_of(2), path, **how),
    "save of torch's form": lambda path, **how: mt.save(state_of(2), path, format="torch", **how),
    "convert": lambda path, **how: convert(f"{path}.source", path, format="safetensors", **how),
}


def sources(tmp_path):
    path = tmp_path / "file"
    mt.save_file(state_of(1), path)
    mt.save_file(state_of(2), f"{path}.source")
    return path


@posix
@pytest.mark.parametrize("name", SAVES)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EPERM, errno.EXDEV])
def test_a_file_that_cannot_be_replaced(code, name, tmp_path, monkeypatch):
    """A file that is mounted by itself, one of somebody else in a sticky folder."""
    path = sources(tmp_path)

    def refuse(old, new):
        raise OSError(code, os.strerror(code), old, None, new)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=r"atomic=False \(--in-place\) writes into") as caught:
        SAVES[name](path)
    assert caught.value.errno == code and str(caught.value.filename) == str(path)
    assert str(caught.value).endswith(f"interrupted: {str(path)!r}")
    assert is_state(mt.load_file(path), 1)
    assert sorted(os.listdir(tmp_path)) == ["file", "file.source"]
    SAVES[name](path, atomic=False)
    assert is_state(mt.load_file(path), 2)
    assert sorted(os.listdir(tmp_path)) == ["file", "file.source"]


IN_A_FOLDER = """
import os, sys
import modtree as mt
folder = sys.argv[1]
path = os.path.join(folder, "a.safetensors")
mt.save_file({"a": mt.ones(3)}, path)
mt.load_file(path)  # imports what it needs, as another user may not see where it is
os.chmod(path, 0o666)
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    mt.save_file({"a": mt.zeros(3)}, path)
except PermissionError as error:
    assert "atomic=False" in str(error) and error.filename == path, error
else:
    raise SystemExit("no error")
try:
    mt.save_file({"a": mt.zeros(3)}, os.path.join(folder, "new"))
except PermissionError as error:
    assert "atomic=False" not in str(error) and "None" not in str(error), error
mt.save_file({"a": mt.zeros(5)}, path, atomic=False)
assert mt.load_file(path)["a"].tolist() == [0.0] * 5
os.seteuid(os.getuid())
os.chmod(folder, 0o755)
"""


@posix
def test_a_folder_that_may_not_be_written():
    with tempfile.TemporaryDirectory() as folder:  # those of pytest are closed to others
        subprocess.run([sys.executable, "-c", IN_A_FOLDER, folder], check=True)
        assert os.listdir(folder) == ["a.safetensors"]


def test_a_file_in_place_keeps_nothing_of_a_longer_one(tmp_path):
    path = tmp_path / "a"
    for size in (5_000_000, 3, 0):
        with atomic_file(path, atomic=False) as file:
            file.write(bytes(size))
        assert path.stat().st_size == size and os.listdir(tmp_path) == ["a"]


@posix
def test_a_file_whose_tensors_are_in_use_is_not_written_in_place(tmp_path):
    path = tmp_path / "a.safetensors"
    mt.save_file(state_of(1, 300_000), path)
    state = mt.load_file(path)
    with pytest.raises(ValueError, match="tensors of this process are in the map of the file"):
        mt.save_file({"a": state["a"][:10]}, path, atomic=False)
    assert is_state(state, 1, 300_000)
    first = state["a"].clone()
    ring = [state]
    ring.append(ring)  # which the collector finds
    del state, ring
    mt.save_file({"a": first[:10]}, path, atomic=False)
    assert mt.load_file(path)["a"].tolist() == [1.0] * 10


def test_a_file_is_not_converted_into_itself_in_place(tmp_path, capsys):
    path = tmp_path / "a.safetensors"
    mt.save_file(state_of(1), path)
    with pytest.raises(ValueError, match="which is being read"):
        convert(path, path, dtype="float16", atomic=False)
    assert main(["convert", str(path), str(path), "--in-place"]) == 2
    assert "name another target" in capsys.readouterr().err
    assert is_state(mt.load_file(path), 1)
    assert main(["convert", str(path), str(tmp_path / "b.pt"), "--in-place"]) == 0
    assert is_state(mt.load(tmp_path / "b.pt"), 1)


def test_shards_are_not_written_in_place(tmp_path):
    with pytest.raises(ValueError, match="atomic=False writes into one file"):
        mt.save_file(state_of(1), tmp_path / "a", atomic=False, max_shard_size=1000)
    assert os.listdir(tmp_path) == []
    mt.save_file(state_of(1), tmp_path / "a", atomic=False, max_shard_size="1GB")
    assert is_state(mt.load_file(tmp_path / "a"), 1)


# -- interrupts ------------------------------------------------------------------------------------

INTERRUPTED = """
import os, random, signal, sys, threading, time
import numpy as np
import modtree as mt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
path, shard = sys.argv[1], int(sys.argv[2]) or None
rng = random.Random(7)
state = {f"layer{k}": np.zeros(30_000, np.float32) for k in range(8)}
mt.save_file(state, path, max_shard_size=shard)
start = time.perf_counter()
mt.save_file(state, path, max_shard_size=shard)
usual = time.perf_counter() - start
interrupts = 0
for _ in range(60):
    def send(wait=rng.random() * usual):
        time.sleep(wait)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=send)
    try:
        thread.start()
        for _ in range(500):  # CPython drops an interrupt that comes in a callback of its WeakSets
            mt.save_file(state, path, max_shard_size=shard)
    except KeyboardInterrupt:
        interrupts += 1
    thread.join()
    left = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".tmp")]
    assert left == [], left
    assert len(mt.load_file(path)) == 8
assert interrupts > 50, interrupts
print("raising", flush=True)
while True:
    threading.Timer(usual / 2, os.kill, (os.getpid(), signal.SIGINT)).start()
    for _ in range(500):
        mt.save_file(state, path, max_shard_size=shard)
"""


@posix
@pytest.mark.parametrize("shard", [0, 300_000], ids=["one file", "shards"])
def test_an_interrupt_leaves_no_file_and_no_traceback_of_a_thread(shard, tmp_path):
    path = tmp_path / "model.safetensors"
    command = [sys.executable, "-c", INTERRUPTED, str(path), str(shard)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "raising\n", done.stderr
    assert "Exception in thread" not in done.stderr
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []
    assert len(mt.load_file(path)) == 8


# -- files that become shorter ---------------------------------------------------------------------


def shortened_after_load(tmp_path, kind):
    net = nn.Sequential(nn.Linear(200, 200), nn.Linear(200, 200))
    path = tmp_path / f"a.{kind}"
    if kind == "safetensors":
        mt.save_file(net, path)
    else:
        mt.save(net.state_dict(), path, format="torch")
    state = mt.load_file(path)
    os.truncate(path, 5000)
    return net, path, state


@posix
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_file_that_was_truncated_under_its_map_is_not_loaded(kind, assign, tmp_path):
    net, path, state = shortened_after_load(tmp_path, kind)
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(CheckpointError, match="was truncated after it was opened: .* 5,000 are"):
        net.load_state_dict(state, assign=assign)
    with pytest.raises(CheckpointError, match="truncated"):
        net.load_state_dict(state, partial=True)
    with pytest.raises(CheckpointError, match="truncated"):
        copy.deepcopy(state)
    with pytest.raises(CheckpointError, match="truncated"):
        pickle.dumps(state)
    after = net.state_dict()
    assert all(np.array_equal(before[k].numpy(), after[k].numpy()) for k in before)


@posix
def test_a_shard_that_was_truncated(tmp_path):
    net = nn.Sequential(nn.Linear(200, 200), nn.Linear(200, 200))
    mt.save_file(net, tmp_path, max_shard_size="200kB")
    state = mt.load_file(tmp_path)
    os.truncate(tmp_path / "model-00002-of-00002.safetensors", 3000)
    with pytest.raises(CheckpointError, match="00002-of-00002.safetensors: the file was truncated"):
        net.load_state_dict(state)


def test_the_versions_of_a_loaded_file_go_with_its_copies(tmp_path):
    net = nn.Sequential(nn.BatchNorm1d(3))
    mt.save_file(net, tmp_path / "a.safetensors")
    state = mt.load_file(tmp_path / "a.safetensors")
    versions = {"": {"version": 1}, "0": {"version": 2}}
    for same in (state, copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert dict(same._metadata) == versions
        assert net.load_state_dict(same).missing_keys == []
    state._metadata["0"]["version"] = 7
    assert state._metadata["0"] == {"version": 7}
    state._metadata = {}
    assert state._metadata == {}
    del state._metadata
    assert not hasattr(state, "_metadata")
    state = mt.load_file(tmp_path / "a.safetensors")
    del state._metadata
    assert not hasattr(state, "_metadata") and net.load_state_dict(state).missing_keys == []
