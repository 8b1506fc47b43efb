# SPDX-License-Identifier: BSD-3-Clause
"""``modtree verify``."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from helpers.command_line import save_model

import modtree as mt


@pytest.fixture
def model(cli):
    return save_model("model.safetensors")


def test_whole(cli, model):
    ended = cli("verify", model, "--finite")
    assert ended == (0, "model.safetensors: no problem\n", "")
    assert cli("verify", model, "--quiet").out == ""


def test_damaged(cli, model):
    os.truncate(model, 800)
    ended = cli("verify", model)
    assert ended.status == 1 and len(ended.lines) == 2
    assert ended.lines[0].startswith("damaged: model.safetensors: ")
    assert ended.lines[1] == "model.safetensors: 1 problem"
    answer = json.loads(cli("verify", model, "--json").out)
    assert answer["path"] == "model.safetensors"
    assert [problem["kind"] for problem in answer["problems"]] == ["damaged"]
    assert (cli("verify", model, "--quiet").status, cli("verify", model, "--quiet").out) == (1, "")


def test_rules_for_ranks_of_one_file(cli, model):
    ended = cli("verify", model, "--join", "*=0")
    text = "--join puts files of several ranks together, and this is one checkpoint already"
    assert ended == (2, "", f"modtree verify: {model}: {text}\n")


def test_values_that_are_not_finite(cli):
    bad = np.array([[1.0, np.nan, np.inf, 0.0]] * 2, np.float32)
    model = save_model("model.safetensors", **{"head.weight": bad})
    assert cli("verify", model).status == 0
    ended = cli("verify", model, "--finite")
    assert ended.status == 1 and ended.lines[0] == (
        "not finite: model.safetensors: 'head.weight': 2 values are NaN, 2 are infinite"
    )


def test_shards(cli, model):
    assert cli("convert", model, "s.safetensors", "--max-shard-size", "200B").status == 0
    assert cli("verify", "s.safetensors.index.json").status == 0
    shard = sorted(name for name in os.listdir() if name.startswith("s-"))[1]
    os.unlink(shard)
    ended = cli("verify", "s.safetensors.index.json")
    assert ended.status == 1 and ended.lines[0].startswith(f"missing: {shard}: ")


def test_a_model(cli, model, models):
    assert cli("verify", model, "--model", f"{models}:Net").status == 0
    ended = cli("verify", model, "--model", f"{models}:wide")
    assert ended.status == 1
    assert ended.lines == [
        "shape: 'layers.0-5.weight': its shape is [4, 4], that of the model [8, 8] (6 entries)",
        "shape: 'layers.0-5.bias': its shape is [4], that of the model [8] (6 entries)",
        "shape: 'head.weight': its shape is [2, 4], that of the model [2, 8]",
        "likely cause: the model was built with other sizes: 4 in the checkpoint is 8 in the "
        "model, in 13 entries. Try: build the model with 4",
        "model.safetensors: 13 problems",
    ]
    assert len(cli("verify", model, "--model", f"{models}:wide", "--all").lines) == 15


def test_trouble(cli, model, models):
    assert cli.trouble("verify", "nowhere") == "nowhere: No such file or directory"
    assert "has no attribute 'x'" in cli.trouble("verify", model, "--model", f"{models}:x")


def test_no_checkpoint(cli, tmp_path):
    (tmp_path / "text").write_text("words")
    ended = cli("verify", "text")
    assert ended.status == 1 and ended.lines[0].startswith("not read: text: not a known checkpoint")
    mt.save_file({}, "empty.safetensors")
    assert cli("verify", "empty.safetensors").status == 0
