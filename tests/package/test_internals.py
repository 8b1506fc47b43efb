# SPDX-License-Identifier: BSD-3-Clause
"""What runs where a comparison with the inside of CPython or libtorch fails (docs/lifetime.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("dict_tables", "ordered_dict", "object_methods", "tensor_grads", "tensor_sizes")

# Whatever the parts take a shorter way for.
FILES = """
    test_state_dict test_state_order test_object_methods_at_large test_class_shapes
    test_foreign_modules test_load_explained test_zero_grad test_load_state_dict
""".split()


def run(without: str, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"MODTREE_NO_INTERNALS": without},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("without", ["", *PARTS, "ordered_dict,tensor_sizes", "all"])
def test_environment_names_the_parts_that_do_without(without):
    program = f"from modtree import _C; print(*(_C._may_know_internals(p) for p in {PARTS}))"
    in_this_build = run("", "-c", program).split() == ["True"] * len(PARTS)
    named = without.split(",")
    expected = [str(in_this_build and p not in named and without != "all") for p in PARTS]
    assert run(without, "-c", program).split() == expected


@pytest.mark.slow
def test_modules_behave_the_same_without_internals():
    files = [f"tests/module/{name}.py" for name in FILES]
    run("all", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--all", *files)
