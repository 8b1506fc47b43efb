# SPDX-License-Identifier: BSD-3-Clause
"""On a CPython that can run without the GIL."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded CPython"
)


def test_the_import_turns_the_gil_on_and_says_so():
    code = (
        "import sys, numpy; print(sys._is_gil_enabled());"
        "import modtree; print(sys._is_gil_enabled())"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
    assert "RuntimeWarning" in done.stderr and "'modtree._C'" in done.stderr
