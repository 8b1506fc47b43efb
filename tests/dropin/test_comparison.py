# SPDX-License-Identifier: BSD-3-Clause
"""What compares the programs sees every kind of difference."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.dropin_programs import (
    PROGRAMS,
    SHARED,
    Outcome,
    command,
    compared,
    library_of,
    names,
    result_of,
    started,
)

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "ecosystem"
VERSIONS = ROOT / "tools" / "torch_versions"


def outcome(native: bool, error: str = "", **facts) -> Outcome:
    return Outcome({"process 0": facts}, native, 1.0, error)


def test_equal_runs_are_equal():
    facts = {"losses": [0.5, "float32[2] ab"], "keys": {"a": None}}
    assert compared(outcome(False, **facts), outcome(True, **facts)) == []


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({"a": [1, 3]}, "/process 0/a/1: 2 | 3"),
        ({"a": [1, 2.0]}, "/process 0/a/1: 2 | 2.0"),
        ({"a": [1]}, "/process 0/a: [1, 2] | [1]"),
        ({}, "/process 0/a: [1, 2] | (absent)"),
        ({"a": [1, 2], "b": None}, "/process 0/b: (absent) | None"),
    ],
)
def test_every_difference_has_its_line(other, line):
    assert compared(outcome(False, a=[1, 2]), outcome(True, **other)) == [line]


def test_a_run_on_the_wrong_class_is_no_comparison():
    assert compared(outcome(False, a=1), outcome(False, a=1)) != []
    assert compared(outcome(True, a=1), outcome(True, a=1)) != []
    assert compared(outcome(False, a=1), outcome(False, a=1), dropin=False) == []


def test_failed_and_empty_runs_are_no_comparison():
    assert compared(outcome(False, "exit status 1"), outcome(True, a=1)) == ["plain: exit status 1"]
    assert compared(outcome(False), outcome(True)) == ["the program reported nothing"]


def test_a_program_that_ends_the_same_way_on_both_sides_is_not_different():
    plain, dropin = ("Signal 6 received by PID 25\n=====\n", "Signal 6 received by PID 7\n==\n")
    assert result_of(outcome(False, plain), outcome(True, dropin))[0] == "plain torch fails too"
    assert result_of(outcome(False, plain), outcome(True, "Signal 11"))[0] == "different"
    assert result_of(outcome(False, a=1), outcome(True, a=1)) == ("equal", [])
    hint = "torch.distributed.elastic.ChildFailedError: \n  To enable traceback see: ...\n"
    plain = f"[rank1]: KeyError: 3\n[rank0]: ValueError: closed\n{hint}"
    assert result_of(outcome(False, plain), outcome(True, f"KeyError: 3\n{hint}"))[0] == "different"
    assert result_of(outcome(False, plain), outcome(True, plain)) == (
        "plain torch fails too",
        ["both: [rank0]: KeyError: 0"],
    )


def test_what_varies_on_plain_torch_is_not_different():
    plain, dropin = outcome(False, a=1, b=[1]), outcome(True, a=2, b=[1])
    assert result_of(plain, dropin, outcome(False, a=3, b=[1])) == ("equal (1 varied)", [])
    line = "/process 0/a: 1 | 2"
    assert result_of(plain, dropin, outcome(False, a=1, b=[2])) == ("different", [line])
    dropin = outcome(True, a=1, b=[2])
    assert result_of(plain, dropin, outcome(False, a=1, b=[1, 2]))[0] == "equal (1 varied)"
    # A plain run that fails, and one that does not.
    again = outcome(False, "KeyError: 3")
    assert result_of(again, outcome(True, "KeyError: 5"), plain)[0] == "plain torch fails too"
    assert result_of(again, outcome(True, "exit status 1"), plain)[0] == "different"
    assert result_of(again, outcome(True, a=1, b=[1]), plain)[0] == "equal"


def test_every_program_is_run_and_belongs_to_a_library():
    every = [*names(), *names(distributed=True)]
    assert sorted(every) == sorted(p.stem for p in PROGRAMS.glob("*.py") if p.stem not in SHARED)
    assert library_of("sentence_transformers_encode") == "sentence_transformers"
    with pytest.raises(ValueError, match=r"unheard_of\.py starts with no library"):
        library_of("unheard_of")


def test_commands_are_those_that_a_user_types():
    script = Path("train.py")
    assert command("python", script, False, 1) == ["python", "train.py"]
    assert command("python", script, True, 1) == ["python", "-m", "modtree", "run", "train.py"]
    line = command("python", script, True, 2)
    assert line[:3] == ["python", "-m", "torch.distributed.run"]
    assert line[-6:] == ["--no-python", "python", "-m", "modtree", "run", "train.py"]


def test_nothing_that_a_program_started_outlives_it(tmp_path):
    sleeper = "import sys, time; print(1, flush=True); time.sleep(30); print(2)"
    parent = f"""if True:
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", {sleeper!r}], stdout=sys.stdout)
        child.wait()
    """
    with started([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
    # The pipe ends with the last process that could write to it.
    assert process.stdout.read() == b""
    process.stdout.close()


@pytest.mark.skipif(not TOOL.is_file(), reason="needs the source tree")
def test_the_tool_names_the_programs_there_are():
    done = subprocess.run(
        [sys.executable, str(TOOL), "--only", "unheard_of"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "'unheard_of'" in done.stderr and "torch_compile" in done.stderr


@pytest.mark.skipif(not VERSIONS.is_file(), reason="needs the source tree")
def test_a_run_on_one_version_keeps_the_others_of_the_table():
    tool = runpy.run_path(str(VERSIONS))
    page = ROOT / "docs" / "dropin.md"
    known = tool["results_of"](page)
    assert tool["markdown"](known) in page.read_text()
    first, *others = known
    new = {f"{first}+cu121": {"torch_fx": "different"}, "2.99.0": {"torch_jit": "equal"}}
    table = tool["combined"](known, new)
    assert table[first] == {**known[first], "torch_fx": "different"}
    assert [table[version] for version in others] == [known[version] for version in others]
    assert tool["markdown"](table).splitlines()[0].endswith("| 2.99.0 |")
