# SPDX-License-Identifier: BSD-3-Clause
"""Commands that want a model, ``module:factory``: ``summary``, ``check`` and ``draw``."""

from __future__ import annotations

import json

import pytest
from helpers.implementations import needs_torch


def test_a_class_a_function_and_a_model(cli, models):
    for name in ("Net", "wide", "net"):
        ended = cli("summary", f"{models}:{name}")
        assert ended.status == 0 and ended.err in ("imported\n", "")
        assert ended.lines[1].split()[:2] == ["Net", "Net"]
        assert any(line.split()[:3] == ["0-5", "x", "6"] for line in ended.lines)


def test_a_file(cli, models, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / f"{models}.py").rename(tmp_path / "below" / "own.py")
    assert cli("summary", "below/own.py:Net").status == 0


def test_shapes_depth_times(cli, models):
    ended = cli("summary", f"{models}:Net", "--input-shape", "3,4", "--depth", 1, "--times")
    assert ended.status == 0 and "(3, 2)" in ended.out and "0-5" not in ended.out
    assert "time" in ended.lines[0]
    assert len(cli("summary", f"{models}:Net", "--all").lines) > len(
        cli("summary", f"{models}:Net").lines
    )


def test_json(cli, models):
    ended = cli("summary", f"{models}:Net", "--input-shape", "3,4", "--json")
    answer = json.loads(ended.out)
    assert answer["class"] == "Net" and answer["parameters"] == 6 * 20 + 10


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net", "expected module:factory, such as mypackage.models:build, got 'net'"),
        (":net", "expected module:factory, such as mypackage.models:build, got ':net'"),
        ("{}:", "expected module:factory"),
        ("no_such_module:net", "cannot import no_such_module: ModuleNotFoundError: No module"),
        ("no/file.py:net", "cannot import no/file.py: "),
        ("{}:nett", "module {} has no attribute 'nett'; did you mean net?"),
        ("{}:Net.x", "has no attribute 'x'"),
        ("{}:number", "{}:number is of type int: expected a model, or what returns one"),
        ("{}:nothing", "{}:nothing() returned None: expected a model"),
        ("{}:failing", "{}:failing() raised ValueError: no weights ("),
        ("{}:leaving", "{}:leaving() raised SystemExit: 3 ("),
    ],
)
def test_no_model(cli, models, name, message):
    assert message.format(models) in cli.trouble("summary", name.format(models))


def test_a_module_that_fails(cli, tmp_path):
    (tmp_path / "broken_models.py").write_text("x = 1\n\n1 / 0\n")
    message = cli.trouble("summary", "broken_models:x")
    assert message.startswith("cannot import broken_models: ZeroDivisionError: division by zero (")
    assert message.endswith("broken_models.py, line 3)")
    (tmp_path / "wrong_models.py").write_text("def x(:\n")
    assert "SyntaxError" in cli.trouble("summary", "wrong_models:x")


def test_an_input_that_does_not_fit(cli, models):
    message = cli.trouble("summary", f"{models}:Net", "--input-shape", "3,5")
    assert "layers.0" in message and "(3, 5)" in message
    assert "--input-shape once for each" in message and "example=" not in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input-shape", "3,"], "expected sizes such as 1,3,224,224, got '3,'"),
        (["--input-shape", "3,-1"], "expected sizes such as 1,3,224,224, got '3,-1'"),
        (["--times"], "--times needs --input-shape"),
        (["--dtype", "int64"], "--dtype needs --input-shape"),
        (["--dtype", "itn64", "--input-shape", "1"], "expected a name such as int64, got 'itn64'"),
        (
            ["--dtype", "int64", "--dtype", "int64", "--input-shape", "1"],
            "--dtype is given 2 times, and --input-shape 1 times",
        ),
    ],
)
def test_wrong_options(cli, models, options, message):
    ended = cli("summary", f"{models}:Net", *options)
    assert ended.status == 2 and message in ended.err


@needs_torch
def test_a_model_of_torch(cli, tmp_path):
    (tmp_path / "torch_models.py").write_text(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())\n"
    )
    ended = cli("summary", "torch_models:net", "--input-shape", "5,2")
    assert ended.status == 0 and "(5, 3)" in ended.out


def test_modules_that_match_a_pattern(cli, models):
    ended = cli("summary", f"{models}:net", "--find", "layers[1:]", "--find", "nothing.*")
    assert ended.status == 0 and ended.lines[0].startswith("5 modules of Net: ")
    assert ended.lines[3] == "      1-5 x 5: Linear  <--"
    found = json.loads(cli("summary", f"{models}:net", "--find", "head", "--json").out)
    assert found == [{"path": "head", "class": "Linear"}]
    ended = cli("summary", f"{models}:net", "--find", "nothing.*")
    assert ended.status == 1 and "nothing there matches 'nothing'" in ended.out
    ended = cli("summary", "x:y", "--find", "{a")
    assert ended.status == 2 and "'{a' has a '{' without its '}'" in ended.err


# -- check and draw --------------------------------------------------------------------------------

MISTAKEN = """
import modtree as mt
from modtree import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
        self.scales = [mt.ones(2)]

    def forward(self, x):
        return self.used(x)


def words():
    return nn.Embedding(5, 3)
"""


def test_check(cli, models, tmp_path):
    ended = cli("check", f"{models}:Net", "--input-shape", "3,4")
    assert (ended.status, ended.out) == (0, "nothing found\n")
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    ended = cli("check", "mistaken.py:Net")
    assert ended.status == 1 and ended.lines[0] == "hidden-tensor (1)"
    found = json.loads(cli("check", "mistaken.py:Net", "--input-shape", "1,2", "--json").out)
    assert {finding["kind"] for finding in found} == {"hidden-tensor", "unused-parameter"}
    assert "--dtype int64 for indices" in cli.trouble(
        "check", "mistaken.py:words", "--input-shape", "1,2"
    )
    assert cli("check", "mistaken.py:words", "--input-shape", "1,2", "--dtype", "int64").status == 0


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ([], "<svg"),
        (["--format", "dot"], "digraph"),
        (["model.svg"], "<svg"),
        (["model.gv"], "digraph"),
        (["model.mmd", "--depth", "1", "--theme", "dark"], "%%{init"),
    ],
)
def test_draw(cli, models, tmp_path, arguments, begins):
    ended = cli("draw", f"{models}:Net", *arguments)
    files = [tmp_path / name for name in arguments if name.startswith("model.")]
    assert ended.status == 0 and (ended.out == "" or not files)
    assert (files[0].read_text() if files else ended.out).startswith(begins)
