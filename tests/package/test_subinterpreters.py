# SPDX-License-Identifier: BSD-3-Clause
"""An import in a subinterpreter is an ImportError at once, whichever module is imported, and the
main interpreter goes on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

CHILD = Path(__file__).parent.parent / "isolated" / "subinterpreter.py"

# The extension without the package, as tools load it that look at files.
ALONE = """
import importlib.util
found = importlib.util.find_spec("modtree").submodule_search_locations[0]
import importlib.machinery, glob
path = glob.glob(found + "/_C*" + importlib.machinery.EXTENSION_SUFFIXES[0])[0]
spec = importlib.util.spec_from_file_location("modtree._C", path)
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


def run(*arguments):
    # A deadlock is what is tested for.
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )


@pytest.mark.parametrize(
    "line",
    [
        "import modtree",
        "import modtree.nn",
        "import modtree._C",
        "from modtree import nn",
        pytest.param("import modtree.dropin", marks=needs_torch),
        ALONE,
    ],
    ids=["modtree", "nn", "_C", "from", "dropin", "alone"],
)
@pytest.mark.parametrize("before", ["", "import modtree; "], ids=["first", "second"])
def test_an_import_is_refused(line, before):
    code = (
        f"import sys, runpy; sys.argv = ['', sys.argv[2]]; {before}runpy.run_path({str(CHILD)!r})"
    )
    done = run("-c", code, "-", line)
    assert not done.returncode, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 2
    for text in told:
        assert "ImportError" in text
        # CPython refuses in its own words where it knows that the module takes no part.
        assert "subinterpreter" in text


def test_the_main_interpreter_goes_on():
    code = (
        f"import sys, runpy; sys.argv = ['', 'import modtree']; runpy.run_path({str(CHILD)!r})\n"
        "import modtree; print(modtree.nn.Linear(2, 3)(modtree.ones(2)).shape)"
    )
    done = run("-c", code)
    assert done.stdout.splitlines()[-1:] == ["modtree.Size([3])"], done.stderr
