# SPDX-License-Identifier: BSD-3-Clause
"""The commands on pages of the guide print what the pages say."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from helpers.implementations import HAS_TORCH
from helpers.needs import needs

import modtree as mt

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
#: Page -> the commands on it.
PAGES = {
    "command_line.md": {"inspect", "diff", "convert", "verify", "summary"},
    "what_is_this_file.md": {"inspect", "diff", "convert", "verify"},
}
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A row of a table: a command, and what it prints.
ROW = re.compile(r"^\|.*\| `(modtree .+?)` \| `(.+?)` \|$", re.MULTILINE)

pytestmark = pytest.mark.skipif(not GUIDE.is_dir(), reason="needs the source tree")


def commands(block):
    """(command, the lines that it prints)"""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize(
    "page", ["command_line.md", pytest.param("what_is_this_file.md", marks=needs("ml_dtypes"))]
)
def test_the_page(page, cli, tmp_path):
    state = mt.get_rng_state()
    mt.manual_seed(0)
    names = {"__name__": "page"}
    checked = []
    source = (GUIDE / page).read_text(encoding="utf-8")
    for kind, block in BLOCK.findall(source):
        if "import torch" in block and not HAS_TORCH:
            break
        if kind == "python":
            exec(block, names)
            if block.startswith("# models.py\n"):
                (tmp_path / "models.py").write_text(block)
            continue
        for command, expected in commands(block):
            program, *arguments = shlex.split(command)
            ended = cli(*arguments)
            assert program == "modtree" and ended.err == "", command
            finds = "diff" in command or "--model" in command or ": 1 problem" in expected
            assert ended.status == finds, command
            same = doctest.OutputChecker().check_output
            assert same(expected, ended.out, doctest.ELLIPSIS), f"{command}\n{ended.out}"
            checked.append(arguments[0])
    rows = ROW.findall(source)
    for command, expected in rows:
        ended = cli(*shlex.split(command)[1:])
        assert expected in ended.out + ended.err, f"{command}\n{ended.out}{ended.err}"
    assert bool(rows) == (page == "what_is_this_file.md")
    mt.set_rng_state(state)
    assert set(checked) == PAGES[page]
