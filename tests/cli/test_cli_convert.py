# SPDX-License-Identifier: BSD-3-Clause
"""``modtree convert``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.command_line import save_model
from helpers.implementations import needs_torch

import modtree as mt


@pytest.fixture
def model(cli):
    return save_model("model.safetensors")


def test_dtype(cli, model):
    ended = cli("convert", model, "half.safetensors", "--dtype", "float16")
    assert ended.status == 0 and ended.err == ""
    assert ended.lines == ["half.safetensors: safetensors, 14 entries, 260 B"]
    found = mt.compare(model, "half.safetensors")
    assert not found.values and set(found.dtypes.values()) == {("float32", "float16")}


def test_shards(cli, model):
    ended = cli("convert", model, "shards.safetensors", "--max-shard-size", "200B", "--json")
    answer = json.loads(ended.out)
    assert answer["entries"] == 14 and answer["nbytes"] == 520
    assert len(answer["files"]) >= 3 and all(map(os.path.exists, answer["files"]))
    assert cli("diff", model, "shards.safetensors.index.json").status == 0
    ended = cli("convert", "shards.safetensors.index.json", "one.safetensors")
    assert ended.lines == ["one.safetensors: safetensors, 14 entries, 520 B"]
    assert Path("one.safetensors").exists() and not mt.compare(model, "one.safetensors")


def test_only_and_drop(cli, model):
    def kept(*options):
        assert cli("convert", model, "some.safetensors", *options).status == 0
        return sorted(mt.load_file("some.safetensors"))

    assert kept("--only", "head") == ["head.bias", "head.weight"]
    assert kept("--only", "layers[-1]", "--only", "head", "--drop", "**.bias") == [
        "head.weight",
        "layers.5.weight",
    ]
    assert kept("--drop", "layers", "--rename", "head.=tail.") == ["tail.bias", "tail.weight"]
    assert cli.trouble("convert", model, "x.safetensors", "--only", "haed", "--drop", "head") == (
        "model.safetensors: no key matches haed, without head; there is head"
    )


def test_rename_and_match(cli, model):
    options = ["--match", "layers.*.bias", "--rename", "layers.=b.", "--rename", "/bias$/=beta"]
    assert cli("convert", model, "some.safetensors", *options).status == 0
    assert list(mt.load_file("some.safetensors")) == [f"b.{i}.beta" for i in range(6)]


@needs_torch
def test_to_torch_and_back(cli, model):
    import torch

    ended = cli("convert", model, "model.pt")
    assert ended.status == 0 and ended.lines == ["model.pt: torch, 14 entries, 520 B"]
    read = torch.load("model.pt", weights_only=True)
    assert read["layers.3.weight"].tolist() == [[3.0] * 4] * 4
    assert cli("convert", "model.pt", "back.safetensors").status == 0
    assert cli("diff", model, "back.safetensors").status == 0
    assert cli("diff", "model.pt", model).status == 0
    assert "float32" in cli("inspect", "model.pt").out


def test_what_is_not_taken_is_named(cli, model):
    state = mt.load_file(model)
    whole = {"epoch": 3, "state_dict": dict(state), "optimizer": {"lr": 0.1}}
    mt.save(whole, "whole.pt", format="torch")
    ended = cli("convert", "whole.pt", "some.safetensors", "--match", "layers.*.weight")
    assert ended.status == 0
    assert ended.lines[0].startswith("some.safetensors: safetensors, 6 entries")
    assert ended.lines[1].startswith("left out, not wanted: ") and "and 3 more" in ended.lines[1]
    assert ended.lines[2:] == ["left out, beside 'state_dict': epoch, optimizer"]
    ended = cli("convert", "whole.pt", "all.safetensors", "--json")
    assert json.loads(ended.out)["left_out"] == {"beside 'state_dict'": ["epoch", "optimizer"]}
    ended = cli("convert", "all.safetensors", "all.safetensors", "--rename", "layers.=b.", "--json")
    assert json.loads(ended.out)["left_out"] == {}


def test_trouble(cli, model):
    target = "out.safetensors"
    assert cli.trouble("convert", "nowhere", target) == "nowhere: No such file or directory"
    message = cli.trouble("convert", model, target, "--max-shard-size", "much")
    assert "'much' is not a size" in message
    assert cli.trouble("convert", model, target, "--match", "x*", "--match", "y") == (
        "model.safetensors: no key matches x* or y"
    )
    assert "'out.zip' does not say in which format to write: end it in" in cli.trouble(
        "convert", model, "out.zip"
    )
    assert "the same key" in cli.trouble("convert", model, target, "--rename", "/weight|bias/=x")
    assert "No such file" in cli.trouble("convert", model, "no/folder/out.safetensors")
    os.truncate(model, 700)
    assert cli.trouble("convert", model, target).startswith("model.safetensors: ")
    assert not os.path.exists(target)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in"], "the following arguments are required: OUT"),
        (["in", "out", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["in", "out", "--format", "zip"], "invalid choice: 'zip'"),
        (["in", "out", "--rename", "x"], "expected OLD=NEW"),
    ],
)
def test_wrong_options(cli, arguments, message):
    ended = cli("convert", *arguments)
    assert ended.status == 2 and message in ended.err
