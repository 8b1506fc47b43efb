# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program by python and by both forms of ``modtree run``."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: What pip writes for the command.
SCRIPT = """\
#!{python}
import sys
from modtree.cli import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
"""


class Ended(NamedTuple):
    """How a process ended."""

    status: int
    out: str
    err: str


def make_command(folder: Path) -> Path:
    """Writes the command ``modtree`` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "modtree"
    command.write_text(SCRIPT.format(python=sys.executable))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command


def environment(**changes: str) -> dict[str, str]:
    """That of this process, for any folder and without the drop-in."""
    path = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MODTREE_", "PYTEST_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", **changes}


def ran(command: list[str], cwd: Path, given: str = "", **changes: str) -> Ended:
    """Runs a command, with a text as its input."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(**changes),
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
