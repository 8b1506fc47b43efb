# SPDX-License-Identifier: BSD-3-Clause
"""What argcomplete offers for the commands of ``modtree`` when a shell asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.needs import needs

from modtree.cli import COMMANDS

TYPED = {
    "modtree ": [*COMMANDS, "--help", "--version", "-h"],
    "modtree in": ["inspect "],
    "modtree inspect --so": ["--sort "],
    "modtree inspect --sort ": ["size", "name"],
    "modtree inspect --sort n": ["name "],
    "modtree convert a b --dtype b": ["bfloat16 "],
}


@needs("argcomplete")
@pytest.mark.parametrize("typed", TYPED)
def test_commands_options_and_choices_are_offered(typed, tmp_path):
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": typed, "COMP_POINT": str(len(typed))}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "offered"), "IFS": "\013"}
    command = [sys.executable, "-c", "from modtree.cli import main; main()"]
    search = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env={**os.environ, **search, **asked}, check=True)
    offered = (tmp_path / "offered").read_text().split("\013")
    assert sorted(offered) == sorted(TYPED[typed])
