# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program by python and by both forms of ``modtree run``."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from helpers.limits import HANGS_AFTER

import modtree
from modtree import _C

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


def make_command(folder: Path, python: str = sys.executable) -> Path:
    """Writes the command ``modtree`` of a Python into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "modtree"
    command.write_text(SCRIPT.format(python=python))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command


def make_environment(folder: Path) -> Path:
    """Makes a virtual environment with modtree and NumPy alone. Returns its folder of packages."""
    package = Path(modtree.__file__).parent
    if Path(_C.__file__).parent != package:
        pytest.skip("needs modtree's extension in its package")
    venv.create(folder, symlinks=True)
    make_command(folder / "bin", str(folder / "bin" / "python"))
    places = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=places))
    beside = Path(np.__file__).parents[1] / "numpy.libs"
    for needed in (package, Path(np.__file__).parent, *([beside] if beside.exists() else [])):
        (packages / needed.name).symlink_to(needed)
    return packages


def environment(**changes: str) -> dict[str, str]:
    """That of this process, for any folder, without the drop-in and an active environment."""
    path = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    left = ("MODTREE_", "PYTEST_", "VIRTUAL_ENV", "CONDA_PREFIX")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left)}
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
        timeout=HANGS_AFTER,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
