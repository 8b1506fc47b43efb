# SPDX-License-Identifier: BSD-3-Clause
"""``modtree run`` starts a torch program on modtree's Module.

As a command of its own it comes here only for what it has to say itself: launch.py has made the
process the program's by then. The rest is for those that call ``main()`` in a Python of theirs, as
debuggers and profilers do.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter
from types import FrameType, ModuleType

from modtree.torch import launch as _launch
from modtree.torch.launch import UsageError, Words

_DESCRIPTION = """\
Runs a torch program on modtree's native Module, otherwise as python runs it:

    modtree run train.py --lr 3e-4
    modtree run -m pytest tests/
    modtree run -c "import torch; print(torch.nn.Linear(2, 2))"
"""

_EPILOG = """\
options of python itself come before the program, as python has them:

    modtree run -O -W error -X dev train.py
    modtree run -um package.train --lr 3e-4
    modtree run - < train.py
"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its help. launch.py reads the words, which are python's."""
    parser.epilog = _EPILOG
    parser.description = _DESCRIPTION
    parser.usage = (
        "modtree run [--off | --report | --compare [--rounds N]] (script | -m module | -c code) ..."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--off", action="store_true", help="run it on torch's own Module")
    how.add_argument(
        "--report", action="store_true", help="print what ran natively and what did not"
    )
    how.add_argument(
        "--compare",
        action="store_true",
        help="run it several times on both in turn, print CPU time, wall time and peak memory side "
        "by side, and say if the output is the same (exit status 1 if not)",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, default=3, help="with --compare: runs of each (3)"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("-c", dest="code", action="store_true", help="the program is code")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the script and its arguments")


def start(given: Sequence[str], parser: argparse.ArgumentParser, caller: FrameType | None) -> int:
    """Runs the program, and returns the exit status.

    Args:
        given: The words after ``modtree run``.
        parser: That of the command, for its help and its errors.
        caller: The frame that calls ``main()`` for the words of the process; None where it gives
            words of its own.
    """
    try:
        words = _launch.read(given)
        if words.wants_help:
            parser.print_help()
            return 0
        _launch.check(words)
    except UsageError as error:
        parser.error(str(error))
    if _launch.is_missing(words):
        print(f"modtree run: there is no script {words.program!r}", file=sys.stderr)
        return 2
    if "--compare" in words.switches:
        comparing = importlib.import_module("modtree.cli.comparing")
        return int(comparing.compare(words, words.rounds or 3))
    if caller is not None and _launch.is_own_process(caller):
        _launch.become(words)
    if words.options or not words.kind:
        parser.error(
            f"{' '.join(words.options)}: this Python runs already: give its options to the python "
            "that starts it"
        )
    _run_here(words, replaces_path=caller is not None)
    return 0


def _run_here(words: Words, replaces_path: bool) -> None:
    """Runs the program in this process, which belongs to what called ``main()``.

    Args:
        words: What to run.
        replaces_path: Whether the first entry of ``sys.path`` is there for the command.
    """
    if "--off" in words.switches:
        _leave_torch()
    elif importlib.util.find_spec("torch") is not None:
        _take_torch()
        if "--report" in words.switches:
            from modtree.torch.dropin import _report

            _report.start_report()
            atexit.register(_report.end_report)
    main_module = ModuleType("__main__")
    vars(main_module).update(__builtins__=builtins, __loader__=BuiltinImporter)
    if sys.version_info < (3, 14):
        vars(main_module).update(__annotations__={})
    path = os.path.join(_launch.SITE, "_modtree_main.py")
    spec = importlib.util.spec_from_file_location("_modtree_main", path)
    assert spec is not None and spec.loader is not None
    as_python = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(as_python)
    adds_path = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if adds_path and replaces_path:
        del sys.path[0]
    as_python.run(words.kind, words.program, words.arguments, adds_path, main_module)


def _leave_torch() -> None:
    """Undoes what a parent process with the drop-in has prepared here."""
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "_modtree_start"]
    found = dict(os.environ)
    os.environ.clear()
    os.environ.update(_launch.without_dropin(found))


def _take_torch() -> None:
    """Puts the native class under torch, or ends the process with one line."""
    try:
        import modtree.dropin  # noqa: F401
    except ImportError as error:
        sys.exit(f"modtree run: {error}")
