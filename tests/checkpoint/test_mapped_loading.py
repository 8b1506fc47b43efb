# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of a file lie in a map of it: no copy, no second model in memory, no way to the file."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers.implementations import not_under_a_sanitizer

import modtree as mt
from modtree import nn

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")


def saved(state, tmp_path):
    path = tmp_path / "a.safetensors"
    mt.save_file(state, path)
    return path


def test_writing_into_a_tensor_stays_in_this_process(tmp_path):
    path = saved({"a": mt.arange(6.0), "b": mt.arange(3)}, tmp_path)
    content = path.read_bytes()
    read = mt.load_file(path)
    read["a"].fill_(9)
    read["b"].numpy()[:] = 7
    assert path.read_bytes() == content
    assert read["a"].tolist() == [9.0] * 6 and read["b"].tolist() == [7] * 3
    assert mt.load_file(path)["a"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_file_without_write_permission_is_mapped(tmp_path):
    path = saved({"a": mt.arange(6.0)}, tmp_path)
    path.chmod(0o444)
    mt.load_file(path)["a"].fill_(1)


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be replaced")
def test_the_file_may_be_removed_or_replaced(tmp_path):
    path = saved({"a": mt.full((100_000,), 1.0)}, tmp_path)
    first = mt.load_file(path)
    saved({"a": mt.full((100_000,), 2.0)}, tmp_path)
    second = mt.load_file(path)
    path.unlink()
    assert (first["a"] == 1).all() and (second["a"] == 2).all()


def test_a_file_can_be_written_from_its_own_tensors(tmp_path):
    path = saved({"a": mt.arange(6.0), "b": mt.ones(3)}, tmp_path)
    mt.save_file(mt.load_file(path), path)
    assert mt.load_file(path)["a"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_map_is_not_shared_memory(tmp_path):
    tensor = mt.load_file(saved({"a": mt.ones(3)}, tmp_path))["a"]
    assert not tensor.is_shared()
    assert tensor.share_memory_().is_shared() and tensor.tolist() == [1.0] * 3


def test_assigning_takes_the_tensors_of_the_map(tmp_path):
    read = mt.load_file(saved(nn.Linear(3, 2), tmp_path))
    model = nn.Linear(3, 2, device="meta")
    model.load_state_dict(read, assign=True)
    assert np.shares_memory(model.weight.detach().numpy(), read["weight"].numpy())
    model.weight.detach().fill_(1)
    assert model(mt.ones(1, 3)).shape == (1, 2)


def test_a_closed_checkpoint_keeps_its_tensors(tmp_path):
    path = saved({"a": mt.ones(3), "b": mt.ones(3)}, tmp_path)
    checkpoint = mt.checkpoints.open_checkpoint(path)
    tensor = checkpoint.tensor("a")
    checkpoint.close()
    checkpoint.close()
    assert tensor.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="is closed"):
        checkpoint.tensor("b")
    with pytest.raises(KeyError):
        checkpoint.tensor("c")


def test_a_damaged_file_leaves_the_model_as_it_was(tmp_path):
    model = nn.Linear(3, 2)
    path = saved(model, tmp_path)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(mt.CheckpointError, match=r"a\.safetensors: tensor 'bias': the file is tr"):
        model.load_state_dict(mt.load_file(path))
    for key, value in model.state_dict().items():
        assert mt.equal(value, before[key])


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be shortened")
def test_a_file_cut_off_behind_an_open_checkpoint(tmp_path):
    path = saved({"a": mt.ones(100_000), "b": mt.ones(10)}, tmp_path)
    with mt.checkpoints.open_checkpoint(path) as checkpoint:
        os.truncate(path, 2000)
        with pytest.raises(mt.CheckpointError, match="its values are not there"):
            checkpoint.tensor("a")
        with pytest.raises(mt.CheckpointError, match="truncated"):
            list(checkpoint.chunks("a"))


# -- memory ----------------------------------------------------------------------------------------

SIZE = 200_000_000
TENSORS = 50

START = """
import gc, resource, sys
import modtree as mt
import numpy as np
from modtree import nn

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024

def make(device):
    return nn.ParameterList([nn.Parameter(mt.empty(1000, 1000, device=device)) for _ in range(50)])

path, size = sys.argv[1], 200_000_000
mt.load_file(path)  # what is imported on first use
"""

ASSIGN = """
before = status("VmRSS")
model = make("meta")
model.load_state_dict(mt.load_file(path), assign=True)
loaded = status("VmHWM") - before
total = sum(float(p.detach().sum()) for p in model.parameters())
assert total == 0
used = status("VmHWM") - before
assert loaded < 0.1 * size, loaded
assert used < 1.2 * size, used
"""

COPY = """
model = make("cpu")
for p in model.parameters():
    p.detach().fill_(1)
before = status("RssAnon")
model.load_state_dict(mt.load_file(path))
used = status("RssAnon") - before
assert float(next(model.parameters()).detach().sum()) == 0
assert used < 0.1 * size, used
"""

TRAIN = """
model = make("meta")
model.load_state_dict(mt.load_file(path), assign=True)
before = status("VmHWM")
for p in model.parameters():
    p.detach().add_(1)
gc.collect()
used = status("VmRSS") - before
assert float(next(model.parameters()).detach().sum()) == 1e6
assert used < 1.2 * size, used
assert float(mt.load_file(path)["0"].sum()) == 0
"""

SAVE = """
state = mt.load_file(path)
target = sys.argv[2]
before = status("RssAnon")
mt.save_file(state, target)
used = status("RssAnon") - before
assert used < 0.1 * size, used
"""


def sparse_file(path):
    """Zeros that take no room on the disk."""
    nbytes = SIZE // TENSORS
    parts = [
        f'"{i}":{{"dtype":"F32","shape":[1000,1000],'
        f'"data_offsets":[{i * nbytes},{(i + 1) * nbytes}]}}'
        for i in range(TENSORS)
    ]
    text = f"{{{','.join(parts)}}}".encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + SIZE)


@linux
@not_under_a_sanitizer
@pytest.mark.parametrize(
    "code", [ASSIGN, COPY, TRAIN, SAVE], ids=["assign", "copy", "train", "save"]
)
def test_memory(code, tmp_path):
    sparse_file(tmp_path / "large.safetensors")
    command = [sys.executable, "-c", START + code]
    files = [str(tmp_path / "large.safetensors"), str(tmp_path / "target.safetensors")]
    subprocess.run(command + files, check=True)
