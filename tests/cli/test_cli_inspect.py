# SPDX-License-Identifier: BSD-3-Clause
"""``modtree inspect``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import save_model

import modtree as mt
from modtree.files import safetensors


@pytest.fixture
def model(cli):
    return save_model("model.safetensors")


def test_equal_blocks_are_shown_once(cli, model):
    ended = cli("inspect", model)
    assert ended.status == 0 and ended.err == ""
    assert ended.lines == [
        "model.safetensors: safetensors, 14 entries",
        "  layers                         480 B",
        "    0-5  x 6  6 x 80 B           480 B",
        "      weight  [4, 4]    float32   64 B",
        "      bias    [4]       float32   16 B",
        "  head                            40 B",
        "    weight    [2, 4]    float32   32 B",
        "    bias      [2]       float32    8 B",
        "total: 130 elements, 520 B",
    ]


def test_all_shows_each(cli, model):
    lines = cli("inspect", model, "--all").lines
    assert len(lines) == 24 and "    5                           80 B" in lines
    assert sum(line.startswith("      weight") for line in lines) == 6


def test_only_equal_blocks_fold(cli):
    other = {"layers.2.weight": np.ones((4, 5), np.float32)}
    lines = cli("inspect", save_model("model.safetensors", **other)).lines
    assert lines[2].startswith("    0-1,3-5  x 5  ") and lines[5].startswith("    2   ")


def test_patterns_find_keys_at_and_below_them(cli, model):
    for options, keys in (
        (["--find", "layers[1:3]"], ["layers.1.weight", "layers.1.bias", "layers.2.weight",
                                     "layers.2.bias"]),
        (["--find", "head", "--find", "*.0.bias"], ["layers.0.bias", "head.weight", "head.bias"]),
        (["--find", "head.**", "--match", "*.bias"], ["head.bias"]),
    ):  # fmt: skip
        (answer,) = json.loads(cli("inspect", model, "--json", *options).out)
        assert sorted(entry["key"] for entry in answer["entries"]) == sorted(keys)
    assert cli("inspect", model, "--find", "haed").status == 1
    assert "has an empty part" in cli("inspect", model, "--find", "a..b").err


def test_filters(cli, model):
    lines = cli("inspect", model, "--match", "*.bias", "--match", "head.*").lines
    assert lines[0] == "model.safetensors: safetensors, 8 of 14 entries"
    assert [line.split()[0] for line in lines[1:-1]] == [
        *("layers", "0-5", "bias"),
        *("head", "weight", "bias"),
    ]
    assert cli("inspect", model, "--dtype", "float32").lines == cli("inspect", model).lines
    ended = cli("inspect", model, "--dtype", "int8, float64", "--match", "*")
    assert ended.status == 1 and ended.lines[1:] == ["  no entry matches"]


def test_depth(cli, model):
    assert cli("inspect", model, "--depth", 1).lines[1:-1] == [
        "  layers  12 entries    480 B",
        "  head    2 entries      40 B",
    ]
    assert cli("inspect", model, "--depth", 9).lines == cli("inspect", model).lines


def test_sort(cli):
    tensors = {k: mt.zeros(n) for k, n in {"b.10": 1, "b.9": 2, "a": 2, "c": 9}.items()}
    mt.save_file(tensors, "model.safetensors")

    def names(*options):
        return [
            line.split()[0] for line in cli("inspect", "model.safetensors", *options).lines[1:-1]
        ]

    assert names("--sort", "size") == ["c", "b", "9", "10", "a"]
    assert names("--sort", "name") == ["a", "b", "9", "10", "c"]
    assert sorted(names()) == sorted(names("--sort", "name"))


def test_ties_views_and_values(cli):
    base = mt.arange(6.0)
    state = {"base": base, "tie": base, "part": base[1:3], "note": {"epoch": 3}}
    mt.save_file(state, "model.safetensors")
    text = cli("inspect", "model.safetensors").out
    assert "= base" in text and "[2] in base" in text and "{'epoch': 3}" in text
    answer = json.loads(cli("inspect", "model.safetensors", "--json").out)[0]
    assert answer["others"] == {"tie": "= base", "part": "[2] in base", "note": "{'epoch': 3}"}
    assert cli("inspect", "model.safetensors", "--match", "note").status == 0


def test_metadata(cli):
    mt.save_file({"x": mt.ones(1)}, "model.safetensors", metadata={"note": "a\nb", "step": "3"})
    lines = cli("inspect", "model.safetensors", "--metadata").lines
    assert "  note: a\\nb" in lines and "  step: 3" in lines
    assert "  step: 3" not in cli("inspect", "model.safetensors").lines


def test_the_head_counts_the_part(cli):
    mt.save({"model": {"a": mt.ones(1), "b": mt.ones(1)}, "ema": {"a": mt.ones(1)}}, "run.ckpt")
    assert cli("inspect", "run.ckpt").lines[0] == "run.ckpt: modtree, 2 entries in model"
    ended = cli("inspect", "run.ckpt", "--at", "ema")
    assert ended.lines[0] == "run.ckpt: modtree, 1 entry in ema"


def test_a_folder_says_what_else_is_there(cli, model):
    assert "passed over" not in cli("inspect", ".").out
    save_model(Path("b.pt")), save_model(Path("c.safetensors")), Path("notes.txt").touch()
    assert cli("inspect", ".").lines[1] == "passed over: b.pt, c.safetensors; --at shows one"
    assert "passed over" not in cli("inspect", model).out


def test_json(cli, model):
    ended = cli("inspect", model, model, "--json", "--match", "head.weight")
    answers = json.loads(ended.out)
    assert len(answers) == 2 and answers[0] == answers[1]
    assert answers[0]["format"] == "safetensors" and answers[0]["nbytes"] == 32
    assert answers[0]["entries"] == [
        {
            "key": "head.weight",
            "shape": [2, 4],
            "dtype": "float32",
            "nbytes": 32,
            "file": "model.safetensors",
        }
    ]


def test_shards_and_folders(cli):
    mt.save_file({f"x.{i}": mt.zeros(100) for i in range(4)}, "m.safetensors", max_shard_size=900)
    for path in (".", "m.safetensors.index.json"):
        lines = cli("inspect", path).lines
        assert "m.safetensors.index.json: safetensors, 2 files, 4 entries" in lines[0]
        assert lines[2].split() == ["0-3", "x", "4", "[100]", "float32", "1.6", "KiB"]


def test_chains_of_single_names_are_one_line(cli):
    mt.save_file({"a.b.c.weight": mt.ones(2)}, "model.safetensors")
    assert cli("inspect", "model.safetensors").lines[1].split()[0] == "a.b.c.weight"


def test_a_key_that_is_a_branch_too(cli):
    mt.save_file({"a": mt.ones(1), "a.b": mt.ones(2)}, "model.safetensors")
    lines = cli("inspect", "model.safetensors").lines
    assert [line.split()[0] for line in lines[1:4]] == ["a", "a", "b"]


def test_strange_keys(cli):
    keys = ["", ".", "..", "a..b", "a.\x1b[2J", "x" * 300, ".".join("abc" * 200), "a.0.b", "a.1.b"]
    keys += ["9" * 5000, "a.٣", "a.²"]
    mt.save_file({key: mt.ones(1) for key in keys}, "model.safetensors")
    ended = cli("inspect", "model.safetensors")
    assert ended.status == 0 and "\x1b" not in ended.out and "\\x1b[2J" in ended.out
    assert ended.lines[-1] == f"total: {len(keys)} elements, {4 * len(keys)} B"
    for options in (["--all"], ["--sort", "name"], ["--sort", "size"], ["--depth", 2], ["--json"]):
        assert cli("inspect", "model.safetensors", *options).status == 0


def test_a_long_name_does_not_move_the_columns_of_others(cli):
    mt.save_file({"short": mt.ones(3), "x" * 300: mt.ones(3)}, "model.safetensors")
    lines = cli("inspect", "model.safetensors").lines
    assert lines[1] == "  short  [3]  float32  12 B"
    assert lines[2] == f"  {'x' * 300}  [3]  float32  12 B"


def test_a_large_header_is_read_where_asked(cli, monkeypatch):
    save_model("model.safetensors")
    monkeypatch.setattr(safetensors, "LONGEST_HEADER", 500)
    assert "; --large-header reads it" in cli.trouble("inspect", "model.safetensors")
    assert cli("inspect", "model.safetensors", "--large-header").lines[-1].startswith("total: 130")
    assert cli("verify", "model.safetensors", "--large-header").status == 0
    assert cli("convert", "model.safetensors", "model.pt", "--large-header").status == 0
    assert cli("diff", "model.safetensors", "model.pt", "--large-header").status == 0
    assert len(mt.load_file("model.safetensors", large_header=True)) == 14
    mt.checkpoints.convert("model.safetensors", "model.pt", large_header=True)
    assert mt.checkpoints.verify("model.safetensors", large_header=True) == []
    assert not mt.compare("model.safetensors", "model.pt", large_header=True)
    monkeypatch.setattr(safetensors, "LONGEST_WANTED", 600)
    assert "headers have up to 500" in cli.trouble("inspect", "model.safetensors", "--large-header")
    damaged = b"\xff" * 4 + bytes(4) + b"{}"
    Path("damaged.safetensors").write_bytes(damaged)
    assert "large_header" not in cli.trouble("inspect", "damaged.safetensors")


def test_an_empty_checkpoint(cli):
    mt.save_file({}, "model.safetensors")
    ended = cli("inspect", "model.safetensors")
    assert (ended.status, ended.lines[1:]) == (0, ["  no entries"])


def test_what_cannot_be_read(cli, model, tmp_path):
    (tmp_path / "folder").mkdir()
    assert "nowhere: No such file or directory" in cli.trouble("inspect", "nowhere")
    assert "the folder holds no checkpoint" in cli.trouble("inspect", tmp_path / "folder")
    (tmp_path / "text").write_text("words")
    assert "not a known checkpoint" in cli.trouble("inspect", "text")
    os.truncate(model, 300)
    assert cli.trouble("inspect", model).startswith("model.safetensors: ")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--depth", "0"], "expected a number from 1 on, got '0'"),
        (["--depth", "x"], "expected a number from 1 on, got 'x'"),
        (["--sort", "age"], "invalid choice: 'age'"),
        (["--jsn"], "unrecognized arguments: --jsn"),
        (["--js"], "unrecognized arguments: --js"),
    ],
)
def test_wrong_options(cli, model, option, message):
    ended = cli("inspect", model, *option)
    assert ended.status == 2 and message in ended.err and ended.err.startswith("usage: modtree")


def test_ties_count_where_levels_are_cut(cli):
    base = mt.zeros(2)
    mt.save_file({"a.x": base, "b.x": base, "b.y": base}, "model.safetensors")
    lines = cli("inspect", "model.safetensors", "--depth", 1).lines
    assert lines[0] == "model.safetensors: safetensors, 3 entries"
    assert lines[2].split()[:3] == ["b", "2", "entries"]
