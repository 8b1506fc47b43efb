# SPDX-License-Identifier: BSD-3-Clause
"""Files with many entries, long texts and large storages are shown in few lines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import modtree as mt
from modtree.inspection.entries import folded

ONE = np.ones((2, 2), np.float32)


@pytest.mark.parametrize("mark", ["_", "-", "/", "."])
def test_names_are_folded_by_common_parts_whatever_the_separator(mark, cli):
    numbers = itertools.product(range(4), range(3), ("q", "k"))
    keys = [mark.join(["blocks", str(a), "attn", str(b), name, "w"]) for a, b, name in numbers]
    mt.save_file({key: ONE.copy() for key in keys}, "model.safetensors")
    assert len(cli("inspect", "model.safetensors").lines) <= 8
    mt.save_file({f"other.{key}": ONE.copy() for key in keys}, "other.safetensors")
    assert len(cli("diff", "model.safetensors", "other.safetensors").lines) <= 10
    assert len(cli("inspect", "model.safetensors", "--all").lines) >= 24


def test_numbers_fold_where_they_are_parts_of_names():
    assert [text for text, _ in folded(["a_0_b", "a_1_b", "a_2_b"])] == ["a_0-2_b"]
    assert [text for text, _ in folded(["x.0/w", "x.1/w"])] == ["x.0-1/w"]
    assert len(folded(["conv1", "conv2", "conv_01", "conv_02"])) == 4


def test_texts_are_cut_and_full_ones_are_not(cli):
    mt.save_file({"w": ONE, "note": "n" * 5000}, "model.safetensors", {"long": "x" * 5000})
    lines = cli("inspect", "model.safetensors", "--metadata").lines
    assert max(map(len, lines)) < 240 and any(line.endswith("x...") for line in lines)
    assert "x" * 5000 in cli("inspect", "model.safetensors", "--metadata", "--full").out
    assert "n" * 5000 in cli("inspect", "model.safetensors", "--full").out


def test_no_line_is_longer_than_three_lines_of_the_screen(cli, tmp_path, monkeypatch):
    names = [f"{'long' * 20}_{letter}" for letter in "abcdefgh"]
    mt.save({name: {"a.b": mt.ones(1)} for name in names}, "parts.pt", format="torch")
    mt.save_file({"w": ONE}, "model.safetensors")
    for name in names:
        mt.save_file({"w": ONE}, f"{name}.safetensors")
    monkeypatch.setattr("modtree.cli.terminal.sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for command in (["inspect", "parts.pt"], ["inspect", "."], ["verify", "."],
                    ["convert", ".", "new.pt"], ["diff", ".", "new.pt"]):  # fmt: skip
        assert max(map(len, cli(*command).lines)) <= 240


def test_a_storage_behind_small_tensors_is_named(cli, torch):
    large = torch.zeros(1 << 16)
    torch.save({"w": large[:32], "v": large[32:64]}, "views.pt")
    last = cli("inspect", "views.pt").lines[-1]
    assert last.startswith("the file has 256.0 KiB of storage, of which tensors use 256 B: they")
    torch.save({"w": large, "v": large[32:64]}, "whole.pt")
    assert cli("inspect", "whole.pt").lines[-1].startswith("total: ")
