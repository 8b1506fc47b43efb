# SPDX-License-Identifier: BSD-3-Clause
"""Running modtree's command line, in this process and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree.cli import main

#: A file of models for ``module:factory``.
MODELS = """
import modtree as mt
from modtree import nn

print("imported")


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(6)])
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.layers(x))


net = Net()
number = 3


def wide():
    return Net(8)


def nothing():
    pass


def failing():
    raise ValueError("no\\nweights")


def leaving():
    raise SystemExit(3)
"""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class CommandLine:
    """Calls ``main()`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: Any) -> Ended:
        self._capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:  # of argparse
            status = int(error.code or 0)
        return Ended(status, *self._capsys.readouterr())

    def trouble(self, *arguments: Any) -> str:
        """The one line of a command that ends with status 2."""
        ended = self(*arguments)
        assert ended.status == 2 and ended.out == "", ended
        lines = [line for line in ended.err.splitlines() if line != "imported"]
        assert len(lines) == 1 and lines[0].startswith(f"modtree {arguments[0]}: "), lines
        return lines[0].removeprefix(f"modtree {arguments[0]}: ")


def command_of(*arguments: Any) -> list[str]:
    """The command that runs ``modtree ...`` as a process."""
    return [sys.executable, "-m", "modtree", *map(str, arguments)]


def environment_of(**changes: str) -> dict[str, str]:
    """The environment of such a process, in any folder."""
    search = [str(Path(mt.__file__).parents[1]), *filter(None, [os.getenv("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search), **changes}


def process(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs ``modtree ...`` as a process."""
    settings = environment_of(**options.pop("env", {}))
    return subprocess.run(
        command_of(*arguments),
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        env=settings,
        **options,
    )


def save_model(path: Path, layers: int = 6, width: int = 4, **changes: Any) -> Path:
    """Writes a checkpoint of equal layers, in which ``changes`` are other entries."""
    state = {}
    for number in range(layers):
        state[f"layers.{number}.weight"] = np.full((width, width), number, np.float32)
        state[f"layers.{number}.bias"] = np.zeros(width, np.float32)
    state["head.weight"] = np.ones((2, width), np.float32)
    state["head.bias"] = np.zeros(2, np.float32)
    state.update(changes)
    mt.save_file({key: mt.from_numpy(value) for key, value in state.items()}, path)
    return path
