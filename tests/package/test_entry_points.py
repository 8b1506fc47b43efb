# SPDX-License-Identifier: BSD-3-Clause
"""Runs ``tests/isolated/entry_*.py``: whatever the native code is called with, it ends in a Python
error that fits.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from helpers.limits import HANGS_AFTER

import modtree
from modtree import _C

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="each entry point has a process of its own"
)
FOLDER = pathlib.Path(__file__).parents[1] / "isolated"


@pytest.mark.parametrize(
    ("script", "named"),
    [
        pytest.param("entry_points", (), marks=pytest.mark.slow),
        pytest.param("entry_kernels", (), marks=pytest.mark.slow),
        ("entry_points", ("ModuleBase.register",)),
        ("entry_kernels", ("gelu",)),
    ],
)
def test_every_entry_point_with_wrong_arguments(script, named):
    # Under ASan a request for all memory is a MemoryError too, as a limit makes it otherwise.
    asan = os.environ.get("ASAN_OPTIONS", "")
    asan += ":allocator_may_return_null=1:max_allocation_size_mb=3000"
    settings = {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165", "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, str(FOLDER / f"{script}.py"), *named],
        capture_output=True,
        text=True,
        errors="replace",
        env={**settings, **os.environ, "ASAN_OPTIONS": asan},
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    assert process.stdout.rstrip().endswith("0 findings")


def test_the_entry_points_are_found():
    sys.path.insert(0, str(FOLDER))
    try:
        import entry_points
    finally:
        sys.path.remove(str(FOLDER))
    names = [name for name, _ in entry_points.entry_points()]
    for expected in (
        "ModuleBase.train",
        "TensorBase.grad",
        "TensorBase.__add__",
        "Walk.send",
        "Op.__call__",
        "Node.metadata",
    ):
        assert expected in names
    assert "modtree._C.run_backward" in names and "modtree._C.kernels.gelu" in names
    assert len(names) > 200


def test_a_keyword_that_cannot_be_encoded():
    for function in (
        _C._forget_families,
        _C.kernels.gelu,
        modtree.Tensor.exp,
        modtree.nn.Module.train,
    ):
        with pytest.raises((TypeError, ValueError)):
            function(**{"\udcff": None})


def test_a_kernel_called_while_the_first_call_of_one_runs_python():
    """A trace function stands for every code that may run between two instructions of Python."""
    program = (
        "import sys, numpy, modtree\n"
        "kernel = modtree._C.kernels.relu_backward\n"
        "x = numpy.ones(3)\n"
        "inner = []\n"
        "def trace(*_):\n"
        "    sys.settrace(None)\n"
        "    inner.append(kernel(x, x))\n"
        "sys.settrace(trace)\n"
        "kernel(x, x)\n"
        "sys.settrace(None)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANGS_AFTER)
