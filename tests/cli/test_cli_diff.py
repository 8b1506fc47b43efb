# SPDX-License-Identifier: BSD-3-Clause
"""``modtree diff``."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from helpers.command_line import save_model

import modtree as mt


@pytest.fixture
def pair(cli):
    """Two checkpoints that differ in two layers."""
    changed = {f"layers.{i}.weight": np.full((4, 4), i + 0.5, np.float32) for i in (2, 3)}
    return save_model("a.safetensors"), save_model("b.safetensors", **changed)


def test_the_same(cli, pair):
    ended = cli("diff", pair[0], pair[0])
    assert ended.status == 0 and ended.err == ""
    assert ended.lines == [
        "a: a.safetensors, 14 entries",
        "b: a.safetensors, 14 entries",
        "no differences",
    ]


def test_different(cli, pair):
    ended = cli("diff", *pair)
    assert ended.status == 1
    assert ended.lines[2:] == [
        "values differ (2 of 14 entries):",
        "  layers.2-3.weight: 2 entries: 32 of 32 elements, by at most 0.5 (relative 0.2)",
    ]
    assert cli("diff", *pair, "--all").lines[3:] == [
        "  layers.2.weight: 16 of 16 elements, by at most 0.5 (relative 0.2)",
        "  layers.3.weight: 16 of 16 elements, by at most 0.5 (relative 0.143)",
    ]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--atol", "0.5"], 0),
        (["--atol", "0.4"], 1),
        (["--rtol", "0.21"], 0),
        (["--rtol=0.15"], 1),
        (["--rtol", "0.15", "--atol", "0.2"], 0),
        (["--no-values"], 0),
    ],
)
def test_tolerance(cli, pair, options, status):
    assert cli("diff", *pair, *options).status == status


def test_quiet(cli, pair):
    ended = cli("diff", *pair, "--quiet")
    assert (ended.status, ended.out, ended.err) == (1, "", "")


def test_json(cli, pair):
    ended = cli("diff", *pair, "--json")
    answer = json.loads(ended.out)
    assert ended.status == 1 and answer["differs"] is True
    assert answer["a"] == {"name": "a.safetensors", "entries": 14}
    assert set(answer["values"]) == {"layers.2.weight", "layers.3.weight"}
    assert json.loads(cli("diff", pair[0], pair[0], "--json").out)["differs"] is False


def test_rename(cli, pair):
    state = mt.load_file(pair[0])
    mt.save_file({f"module.{k}": v for k, v in state.items()}, "ddp.safetensors")
    ended = cli("diff", "ddp.safetensors", pair[0])
    assert ended.status == 1 and "try: --rename module.=" in ended.out
    assert ended.lines[-1] == "try: --rename module.="
    assert cli("diff", pair[0], "ddp.safetensors").lines[-1] == "try: --rename =module."
    assert cli("diff", pair[0], "ddp.safetensors", "--rename", "=module.").status == 0
    assert cli("diff", "ddp.safetensors", pair[0], "--rename", "module.=").status == 0
    rules = ["--rename", "layers.=blocks.", "--rename", "/(\\d)\\.(\\w+)$/=\\1.inner.\\2"]
    text = cli("diff", pair[0], pair[0], *rules, "--all").out
    assert "blocks.0.inner.weight" in text
    problem = cli.trouble("diff", *pair, "--rename", "/weight|bias/=x")
    assert problem == (
        "--rename gives 'layers.0.weight' and 'layers.0.bias' the same key 'layers.0.x'"
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--rename", "module."], "expected OLD=NEW, such as module.= or encoder.=backbone., got"),
        (["--rename", "/(/=x"], "'/(/=x' is not a rule: missing ), unterminated subpattern"),
        (["--rename", "/x/=\\7"], "invalid group reference 7"),
        (["--rename", "/x/=\\g<y>"], "unknown group name"),
        (["--rtol", "-1"], "expected a number of 0 or more, got '-1'"),
        (["--atol", "nan"], "expected a number of 0 or more, got 'nan'"),
        (["--atol", "much"], "expected a number of 0 or more, got 'much'"),
        (["c.safetensors"], "unrecognized arguments: c.safetensors"),
    ],
)
def test_wrong_options(cli, pair, option, message):
    ended = cli("diff", *pair, *option)
    assert ended.status == 2 and message in ended.err and ended.out == ""


def test_what_cannot_be_read(cli, pair):
    assert cli.trouble("diff", pair[0], "nowhere") == "nowhere: No such file or directory"
    os.truncate(pair[1], 500)
    assert cli.trouble("diff", *pair).startswith("b.safetensors: ")
    assert cli.trouble("diff", *reversed(pair), "--json").startswith("b.safetensors: ")
