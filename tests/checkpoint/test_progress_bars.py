# SPDX-License-Identifier: BSD-3-Clause
"""Progress: where a terminal watches and the work is long, or where it was asked for."""

from __future__ import annotations

import sys
import types

import pytest

import modtree as mt
from modtree.files.checkpoint import progress
from modtree.files.checkpoint.convert import convert
from modtree.files.checkpoint.verify import verify


class Bars(list):
    """A tqdm that notes what it was told."""

    def __call__(self, *, total, desc, unit, unit_scale, unit_divisor):
        bar = types.SimpleNamespace(total=total, desc=desc, done=0, is_open=True)
        bar.update = lambda n: setattr(bar, "done", bar.done + n)
        bar.close = lambda: setattr(bar, "is_open", False)
        self.append(bar)
        return bar


@pytest.fixture
def bars(monkeypatch):
    bars = Bars()
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=bars))
    return bars


@pytest.fixture
def watched(monkeypatch):
    stderr = types.SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=stderr))


STATE = {"a": mt.ones(100), "b": mt.ones(50)}


def test_on_request(bars, tmp_path):
    path = tmp_path / "model.safetensors"
    mt.save_file(STATE, path, progress=True)
    mt.save_file(STATE, path, max_shard_size=400, progress=True)
    mt.load_file(path, progress=True)
    convert(path, tmp_path / "b.safetensors", progress=True)
    verify(path, finite=True, progress=True)
    assert [bar.desc for bar in bars] == [
        "Writing model.safetensors",
        "Writing model.safetensors",
        "Reading model.safetensors.index.json",
        "Writing b.safetensors",
        "Reading values",
    ]
    assert all(bar.total == bar.done == 600 and not bar.is_open for bar in bars)


def test_nobody_watches(bars, tmp_path):
    mt.save_file(STATE, tmp_path)
    mt.load_file(tmp_path)
    assert bars == []


def test_short_work_on_a_terminal(bars, watched, tmp_path):
    mt.save_file(STATE, tmp_path)
    mt.load_file(tmp_path)
    assert bars == []


def test_large_work_on_a_terminal(bars, watched):
    with progress.progress_bar(2_000_000_000, "Work", None) as advance:
        assert len(bars) == 1
        advance(5)
    assert bars[0].done == 5 and not bars[0].is_open


def test_long_work_on_a_terminal(bars, watched, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress_bar(1000, "Work", None) as advance:
        for _ in range(10):  # a second for a tenth: ten seconds in all
            now[0] += 0.1
            advance(10)
    assert len(bars) == 1 and bars[0].done == 100


def test_switched_off_on_a_terminal(bars, watched):
    with progress.progress_bar(2_000_000_000, "Work", False) as advance:
        advance(5)
    assert bars == []


def test_without_tqdm(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(progress, "_STEP_SECONDS", 0.0)
    mt.save_file(STATE, tmp_path, progress=True)
    assert list(mt.load_file(tmp_path, progress=True)) == ["a", "b"]
    lines = [line.rstrip() for line in capsys.readouterr().err.split("\r")]
    assert "Reading model.safetensors: 67%, 0.0 of 0.0 MB, 0 s left" in lines
    assert lines[-1] == "Reading model.safetensors: 100%, 0.0 of 0.0 MB"
    monkeypatch.setattr(sys, "stderr", None)
    mt.save_file(STATE, tmp_path, progress=True)


def test_without_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress.may_show(None) and progress.may_show(True)


def test_the_bar_is_closed_by_an_error(bars):
    with pytest.raises(ZeroDivisionError), progress.progress_bar(10, "Work", True):
        raise ZeroDivisionError
    assert not bars[0].is_open
