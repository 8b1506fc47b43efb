# SPDX-License-Identifier: BSD-3-Clause
"""Processes that a torch program starts have the class that it has."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest
from helpers.limits import HANGS_AFTER

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="no fork"),
    # Of a fork of a process with threads, from CPython 3.12 on.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def is_native(cls) -> bool:
    return "ModuleBase" in vars(sys.modules.get("modtree._C", object)) and (
        cls is sys.modules["modtree._C"].ModuleBase
    )


class Data(torch.utils.data.Dataset):
    """Its samples come from a module, and say which class it has in the worker."""

    def __init__(self):
        self.module = nn.Linear(2, 1)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        value = self.module(torch.ones(2)).detach()
        return value, is_native(nn.Module), os.getpid()


def answer(module, queue):
    queue.put((module(torch.ones(2)).tolist(), is_native(type(module).__mro__[-2])))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(method, under_dropin):
    data = Data()
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, num_workers=1, multiprocessing_context=method
    )
    for values, native, processes in loader:
        assert values.allclose(data.module(torch.ones(2)))
        assert native.tolist() == [under_dropin] * 2 and os.getpid() not in processes.tolist()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_torch_multiprocessing(method, under_dropin):
    context = torch.multiprocessing.get_context(method)
    assert isinstance(context, multiprocessing.context.BaseContext)
    module, queue = nn.Linear(2, 2), context.Queue()
    process = context.Process(target=answer, args=(module, queue))
    process.start()
    assert queue.get(timeout=HANGS_AFTER) == (module(torch.ones(2)).tolist(), under_dropin)
    process.join()
    assert process.exitcode == 0


def test_a_python_that_is_started(under_dropin):
    code = (
        "import torch, sys; m = sys.modules.get('modtree._C');"
        "print(m is not None and torch.nn.Module is m.ModuleBase)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_AFTER
    )
    assert ran.stdout.strip() == str(under_dropin), ran.stderr


def test_a_python_that_imports_no_torch_imports_nothing_of_ours():
    code = "import sys; print([name for name in sys.modules if name.startswith('modtree')])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_AFTER
    )
    assert ran.stdout.strip() == "[]", ran.stderr
