# SPDX-License-Identifier: BSD-3-Clause
"""What messages about files and names advise."""

from __future__ import annotations

import pytest

import modtree as mt
from modtree import nn

SD = nn.Linear(2, 2).state_dict()


@pytest.fixture
def files(cli):
    mt.save(SD, "m.pt")
    mt.save({"model": SD, "ema": SD}, "run.pt")
    return cli


def test_a_state_dict_in_a_dict_is_to_be_saved_itself(files):
    state = {"model": SD, "epoch": 3}
    with pytest.raises(mt.CheckpointError, match=r"save_file\(state\['model'\], path\), and num"):
        mt.save_file(state, "m.safetensors")
    mt.save_file(state["model"], "m.safetensors", metadata={"epoch": "3"})
    assert list(mt.load_file("m.safetensors")) == list(SD)


def test_what_can_be_compared_is_named():
    with pytest.raises(TypeError, match="^only models, state dicts and checkpoints, by their pat"):
        mt.compare(3, SD)


def test_a_path_that_is_not_there_is_not_taken_for_a_state_dict():
    with pytest.raises(TypeError, match="this is a path, and a state dict is expected.*no file 'f"):
        nn.Linear(2, 2).load_state_dict("file.pt")


def test_a_repr_before_init_says_what_is_missing():
    class Late(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"was super\(\).__init__\(\) called"):
        repr(Late())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--match", "weigth"], "weight"),
        (["--match", "*.baas"], "bias"),
        (["--find", "**.weihgt"], "weight"),
        (["--dtype", "fp32"], "float32"),
        (["--dtype", "flaot32"], "float32"),
    ],
)
def test_names_that_match_nothing_give_near_ones(options, name, files):
    ended = files("inspect", "m.pt", *options)
    assert (ended.status, ended.lines[1:]) == (1, [f"  no entry matches; there is {name}"])
    assert files("inspect", "m.pt", "--match", "zzz").lines[1:] == ["  no entry matches"]


def test_a_file_in_the_place_of_a_command(files):
    ended = files("m.pt")
    assert ended.status == 2 and ended.err.endswith(": modtree inspect m.pt\n")
    assert "there is no command 'inspct'" in files("inspct", "m.pt").err


def test_a_part_that_one_of_two_files_has(files):
    message = files.trouble("diff", "m.pt", "run.pt", "--at", "ema")
    assert message.endswith("; of A and of B: --at '' --at ema, where '' is the model")
    assert files("diff", "m.pt", "run.pt", "--at", "", "--at", "ema").status == 0
    message = files.trouble("diff", "run.pt", "m.pt", "--at", "ema")
    assert message.endswith("; of A and of B: --at ema --at '', where '' is the model")
    assert files("diff", "run.pt", "m.pt", "--at", "ema", "--at", "").status == 0
