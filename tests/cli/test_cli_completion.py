# SPDX-License-Identifier: BSD-3-Clause
"""``modtree completion``: the scripts, in the shells that are there."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from modtree.cli import COMMANDS

BASH = """
try() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _modtree
    echo "${COMPREPLY[*]}"
}
"""
TYPED = {
    ("",): [*COMMANDS, "--help", "--version"],
    ("in",): ["inspect"],
    ("inspect", "--s"): ["--sort"],
    ("inspect", "--sort", ""): ["size", "name"],
    ("inspect", "--sort", "n"): ["name"],
    ("convert", "a", "b", "--dtype", "b"): ["bfloat16"],
    ("completion", ""): ["bash", "zsh", "fish"],
    ("completion", "z"): ["zsh"],
    ("inspect", "model"): [],
    ("diff", "--rtol", ""): [],
}


def run(shell, script):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    settings = {"fish": ["--no-config"], "zsh": ["-f"], "bash": ["--norc"]}[shell]
    done = subprocess.run([shell, *settings, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.splitlines()


def test_bash(cli):
    script = cli("completion", "bash").out + BASH
    for words in TYPED:
        script += "try modtree " + " ".join(f"'{word}'" for word in words) + "\n"
    answers = run("bash", script)
    assert dict(zip(TYPED, map(str.split, answers), strict=True)) == TYPED


def test_fish(cli):
    script = cli("completion", "fish").out
    for typed in ("in", "inspect --s", "inspect --sort n", "completion z"):
        script += f"complete -C 'modtree {typed}'\n"
    answers = [line.split("\t")[0] for line in run("fish", script)]
    assert answers == ["inspect", "--sort", "name", "zsh"]


def test_zsh(cli):
    script = "autoload -U compinit; compinit -u -D\n" + cli("completion", "zsh").out
    assert run("zsh", script + "echo ${_comps[modtree]}; whence -w _modtree") == [
        "_modtree",
        "_modtree: function",
    ]


def test_an_unknown_shell(cli):
    ended = cli("completion", "csh")
    assert ended.status == 2 and "invalid choice: 'csh'" in ended.err
