# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that do what a native class does not allow find another way prepared."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

pytestmark = needs_torch

#: Modules begin as pyro's do: an object of a plain class gets the class of a module.
PYRO = """
import torch


class _PyroModuleMeta(type):
    made = {}

    class _New:
        def __init__(self, Module):
            self.__class__ = PyroModule[Module]

    def __getitem__(cls, Module):
        def reduced(self):
            return _PyroModuleMeta._New, (Module,), self.__getstate__()

        if Module not in cls.made:
            cls.made[Module] = type("Own", (Module, PyroModule), {"__reduce__": reduced})
        return cls.made[Module]


class PyroModule(torch.nn.Module, metaclass=_PyroModuleMeta):
    pass
"""

PROGRAM = """
import copy, json, pickle, torch
from pyro.nn.module import PyroModule, _PyroModuleMeta

net = torch.nn.Sequential(PyroModule[torch.nn.Linear](2, 1))
net[0].plain = [3]
found = []
for other in copy.copy(net[0]), copy.deepcopy(net)[0], pickle.loads(pickle.dumps(net))[0]:
    found.append([type(other) is type(net[0]), other.plain, list(other.state_dict()),
                  bool((other.weight == net[0].weight).all()), other.weight is net[0].weight])
new = _PyroModuleMeta._New
print(json.dumps([found, new.__name__, new.__qualname__, new.__module__]))
"""


@pytest.mark.parametrize("options", [["--off"], []], ids=["plain", "native"])
def test_objects_of_pyro_become_modules(options, tmp_path):
    folder = tmp_path / "pyro" / "nn"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder):
        (place / "__init__.py").touch()
    (folder / "module.py").write_text(PYRO)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "modtree", "run", *options, str(tmp_path / "program.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER
    )
    assert run.returncode == 0, run.stderr[-3000:]
    same = [True, [3], ["weight", "bias"], True]
    expected = [[[*same, True], [*same, False], [*same, False]]]
    assert json.loads(run.stdout) == [*expected, "_New", "_PyroModuleMeta._New", "pyro.nn.module"]


def test_another_pyro_is_left_alone(tmp_path):
    folder = tmp_path / "pyro" / "nn"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder):
        (place / "__init__.py").touch()
    (folder / "module.py").write_text("class _PyroModuleMeta(type):\n    pass\n")
    program = "import pyro.nn.module as m, modtree.dropin; print(vars(m._PyroModuleMeta).keys())"
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "modtree", "run", str(tmp_path / "program.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    assert run.returncode == 0 and "_New" not in run.stdout, run.stderr[-3000:]
