# SPDX-License-Identifier: BSD-3-Clause
"""Runs a line of code in subinterpreters, of each kind that this Python has, and prints what comes
of it there: the line is the argument.
"""

from __future__ import annotations

import sys

try:
    import _interpreters as interpreters  # 3.13

    KINDS = [{"config": "legacy"}, {"config": "isolated"}]
except ImportError:
    import _xxsubinterpreters as interpreters

    KINDS = [{"isolated": False}, {"isolated": True}]

for kind in KINDS:
    made = interpreters.create(*kind.values()) if "config" in kind else interpreters.create(**kind)
    lines = f"import sys\nsys.path[:] = {sys.path!r}\n{sys.argv[1]}"
    try:
        failed = interpreters.run_string(made, lines)
        print(f"{failed.type.__name__}: {failed.msg}" if failed else "no error")
    except interpreters.RunFailedError as error:
        print(error)
    interpreters.destroy(made)
