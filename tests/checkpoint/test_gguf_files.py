# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files: plain tensors are read and converted, quantized ones say what they are."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.gguf_files import gguf, text

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify

TENSORS = {
    "token_embd.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.arange(4, dtype=np.float16),
    "ints": np.arange(6, dtype=np.int32).reshape(1, 2, 3),
    "double": np.array(2.5),
}
Q8_0, Q4_K = 8, 12
QUANTIZED = [("blk.0.q.weight", (2, 64), Q8_0, bytes(range(136)))]
SETTINGS = [
    ("general.architecture", 8, text("llama")),
    ("tokens", 9, struct.pack("<IQ", 8, 20) + b"".join(text(f"t{i}") for i in range(20))),
    ("scores", 9, struct.pack("<IQ2f", 6, 2, 0.5, 1.5)),
    ("flag", 7, b"\1"),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(TENSORS, SETTINGS, raw=QUANTIZED))
    return path


def test_plain_tensors_have_their_shape_outermost_first(path):
    state = mt.load_file(path)
    for key, array in TENSORS.items():
        assert np.array_equal(state[key].numpy(), array) and state[key].shape == array.shape
    assert str(state["blk.0.q.weight"]) == ("‹Q8_0 tensor [2, 64], 136 B, 8.5 bits an element›")
    assert verify(path) == []


def test_bytes_are_read_as_files_are(path, tmp_path):
    state = mt.load_file(path.read_bytes())
    for key, array in TENSORS.items():
        assert np.array_equal(state[key].numpy(), array)
        state[key].zero_()  # memory of its own
    assert verify(path.read_bytes()) == []
    convert(path.read_bytes(), tmp_path / "plain.safetensors")
    assert mt.load_file(tmp_path / "plain.safetensors")["ints"].flatten().tolist() == [*range(6)]


def test_load_says_what_reads_it(path):
    with pytest.raises(pickle.UnpicklingError, match=r"a GGUF file: read it with modtree.load_f"):
        mt.load(path)


def test_settings_are_the_metadata(path, capsys):
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.metadata["general.architecture"] == "llama"
        assert checkpoint.metadata["flag"] == "True"
        assert checkpoint.metadata["tokens"].endswith(',"t19"]')
        assert checkpoint.metadata["scores"] == "[0.5,1.5]"
    done = CommandLine(capsys)("inspect", path)
    assert "[3, 4]     float32" in done.out and "Q8_0 tensor [2, 64], 136 B" in done.out


def test_plain_tensors_are_converted_and_the_others_named(path, tmp_path, capsys):
    done = CommandLine(capsys)("convert", path, tmp_path / "out.safetensors")
    assert "left out, neither tensors nor plain: blk.0.q.weight" in done.out
    state = mt.load_file(tmp_path / "out.safetensors")
    assert list(state) == list(TENSORS)
    convert(path, tmp_path / "out.pt", dtype="float16")
    assert mt.load_file(tmp_path / "out.pt")["token_embd.weight"].dtype is mt.float16


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "GGUF of version 9; versions 2 and 3 are known"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensors are announced, and 8 bytes"),
        (b"GGUF\3", "the file is truncated: its header goes on behind its end"),
        (gguf(TENSORS)[:-1], "the file is truncated: the values are at"),
        (gguf({}, raw=[("x", (2, 33), Q8_0, b"")]), "its rows have 33 elements"),
        (gguf({}, raw=[("x", (2,), 99, b"")]), "it is of type 99"),
        (gguf({}, raw=[("x", (1 << 62, 8), 0, b"")]), "no memory holds the shape"),
        (gguf({}, raw=2 * [("x", (1,), 0, bytes(4))]), "the header names it twice"),
    ],
)
def test_reasons(content, reason, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(path)


def test_a_file_of_the_library(tmp_path, gguf):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b"])
    for key, array in TENSORS.items():
        writer.add_tensor(key, array.reshape(array.shape or (1,)))
    kind = gguf.GGMLQuantizationType
    ones = np.ones((2, 256), np.float32)
    for name in ("Q8_0", "Q4_0", "BF16"):
        values = gguf.quants.quantize(ones, kind[name])
        writer.add_tensor(name, values, raw_dtype=kind[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    state = mt.load_file(path)
    for key, array in TENSORS.items():
        assert np.array_equal(state[key].numpy().reshape(array.shape), array)
    assert state["BF16"].float().tolist() == ones.tolist()
    assert "288 B, 4.5 bits" in str(state["Q4_0"]) and verify(path) == []


def test_types_have_the_sizes_of_the_library(gguf):
    from modtree.files.gguf import PLAIN, QUANTIZED

    for kind, (block, nbytes) in gguf.constants.GGML_QUANT_SIZES.items():
        if kind.value in PLAIN:
            assert (block, nbytes) == (1, PLAIN[kind.value].itemsize)
        else:
            assert QUANTIZED[kind.value] == (kind.name, block, nbytes)
