# SPDX-License-Identifier: BSD-3-Clause
"""``modtree run --compare``: what it measures, and what it says of outputs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from helpers.launchers import environment, ran


def compared(tmp_path, code, *words, given=""):
    """How a comparison of a program ends."""
    (tmp_path / "program.py").write_text(f"import os, sys\n{code}\n")
    # -S: torch is not found, whose import takes most of the time.
    command = [sys.executable, "-m", "modtree", "run", "--compare", *words, "-S"]
    return ran([*command, "program.py"], tmp_path, given)


def side(code):
    """A program that does something only if the environment has the drop-in."""
    return f"if 'MODTREE_DROPIN' in os.environ: {code}"


def test_table_and_identical_output(tmp_path):
    ended = compared(tmp_path, "print('one'); print('to stderr', file=sys.stderr)")
    assert (ended.status, ended.out) == (0, "one\n")
    lines = ended.err.splitlines()
    assert lines[-1] == "output: identical"
    assert [line for line in lines if line.startswith("modtree run: run")] == [
        f"modtree run: run {number} of 3 on {name}"
        for number in (1, 2, 3)
        for name in ("torch", "modtree")
    ]
    assert lines.count("to stderr") == 1
    cell = r" +[\d.,]+ (s|MiB) \([\d.,]+-[\d.,]+\)"
    names = ("CPU time", "  of which start-up", "wall time", "  of which start-up", "peak memory")
    table = lines[-6:-1]
    if "unknown" not in ended.err:
        for name, line in zip(names, table, strict=True):
            assert re.fullmatch(rf"{name}{cell}{cell} +[\d.]+", line), line


def test_output_that_differs(tmp_path):
    code = "print('same')\n" + side("print('native')") + "\nelse: print('plain')"
    ended = compared(tmp_path, code, "--rounds", "2")
    assert ended.status == 1
    assert ended.err.splitlines()[-3:] == [
        "output: differs from line 2 on",
        "  torch    'plain'",
        "  modtree  'native'",
    ]
    assert ended.err.count("modtree run: run") == 4


def test_output_that_ends_early(tmp_path):
    ended = compared(tmp_path, side("print('more')"), "--rounds=2")
    assert ended.status == 1
    assert ended.err.splitlines()[-3:] == [
        "output: differs from line 1 on",
        "  torch    ''",
        "  modtree  'more'",
    ]


def test_one_round_that_differs_is_run_once_more(tmp_path):
    varies = "with open('count', 'a+') as f: f.write('x'); print(f.tell())"
    ended = compared(tmp_path, varies, "--rounds", "1")
    assert (ended.status, "once more on torch" in ended.err) == (0, True)
    assert ended.err.splitlines()[-1] == (
        "output: varies by itself on torch, from line 1 on: not compared"
    )
    ended = compared(tmp_path, side("print(1)"), "--rounds", "1")
    assert (ended.status, "once more on torch" in ended.err) == (1, True)


def test_program_that_fails(tmp_path):
    ended = compared(tmp_path, "print('said'); sys.exit(3)")
    assert (ended.status, ended.out) == (3, "said\n")
    assert "on torch the program ended with status 3" in ended.err
    ended = compared(tmp_path, side("sys.exit('broken')"))
    assert ended.status == 1
    assert "broken\nmodtree run: on modtree the program ended with status 1" in ended.err


def test_program_of_the_standard_input(tmp_path):
    command = [sys.executable, "-m", "modtree", "run", "--compare", "--rounds", "1", "-S", "-"]
    ended = ran(command, tmp_path, "print('from the input')")
    assert (ended.status, ended.out) == (0, "from the input\n")
    assert ended.err.endswith("output: identical\n")


def test_each_run_reads_the_same_file(tmp_path):
    (tmp_path / "program.py").write_text("print(input())")
    (tmp_path / "input").write_text("a line\n")
    command = [sys.executable, "-m", "modtree", "run", "--compare", "-S", "program.py"]
    with open(tmp_path / "input") as file:
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment(), stdin=file, capture_output=True, text=True
        )
    assert (ended.returncode, ended.stdout) == (0, "a line\n"), ended.stderr
    assert ended.stderr.endswith("output: identical\n")


@pytest.mark.parametrize("words", [("--rounds", "0"), ("--rounds", "many"), ("--rounds",)])
def test_rounds_are_a_number(tmp_path, words):
    ended = ran([sys.executable, "-m", "modtree", "run", "--compare", *words], tmp_path)
    assert ended.status == 2
    assert "--rounds expects a number of runs, such as 3" in ended.err
    ended = ran([sys.executable, "-m", "modtree", "run", "--rounds", "2", "-c", "1"], tmp_path)
    assert (ended.status, "--rounds goes with --compare" in ended.err) == (2, True)
