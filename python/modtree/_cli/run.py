# SPDX-License-Identifier: BSD-3-Clause
"""``modtree run`` starts a torch program on modtree's Module."""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import subprocess
import sys
import time
from types import ModuleType

__all__ = ["execute", "fill"]

_DESCRIPTION = """\
Runs a torch program on modtree's native Module, otherwise as python runs it:

    modtree run train.py --lr 3e-4
    modtree run -m pytest tests/
    modtree run -c "import torch; print(torch.nn.Linear(2, 2))"
"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of this command its arguments and its help."""
    parser.description = _DESCRIPTION
    parser.usage = "modtree run [--off | --report | --compare] (script | -m module | -c code) ..."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--off", action="store_true", help="run it on torch's own Module")
    how.add_argument(
        "--report", action="store_true", help="say at the end what native code did, and what not"
    )
    how.add_argument(
        "--compare",
        action="store_true",
        help="run it on both, and print wall time and peak memory side by side",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("-c", dest="code", action="store_true", help="the program is code")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the script and its arguments")


def execute(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Runs the program, and returns the exit status."""
    if not options.program:
        parser.error("which program? give a script, -m module or -c code")
    if options.module and options.code:
        parser.error("-m and -c are two programs: give one of them")
    program, *arguments = options.program
    if options.compare:
        return _compare(options)
    if not options.off:
        _take_torch()
    if options.report:
        from modtree.dropin import _report

        _report.start_report()
        atexit.register(_report.print_report)
    _start(options, program, arguments)
    return 0


def _take_torch() -> None:
    """Puts the native class under torch, or ends the process with one line."""
    try:
        import modtree.dropin  # noqa: F401
    except ImportError as error:
        sys.exit(f"modtree run: {error}")


def _compare(options: argparse.Namespace) -> int:
    """Runs the program on torch's Module and on the native one, each in a process of its own."""
    kind = ["-m"] if options.module else ["-c"] if options.code else []
    runs = []
    for name, switch in (("torch", ["--off"]), ("modtree", [])):
        command = [sys.executable, "-m", "modtree", "run", *switch, *kind, *options.program]
        runs.append((name, *_measured(command)))
        if runs[-1][1] != 0:
            print(
                f"modtree run: on {name} the program ended with status {runs[-1][1]}",
                file=sys.stderr,
            )
            return runs[-1][1]
    print(f"\n{'':10}{'wall time':>12}{'peak memory':>14}", file=sys.stderr)
    for name, _, seconds, peak in runs:
        memory = "unknown" if peak is None else f"{peak / 2**20:,.0f} MiB"
        print(f"{name:10}{seconds:>10.2f} s{memory:>14}", file=sys.stderr)
    (_, _, plain_seconds, plain_peak), (_, _, seconds, peak) = runs
    memory_ratio = f"{peak / plain_peak:.2f}" if peak and plain_peak else ""
    print(f"{'ratio':10}{seconds / plain_seconds:>12.2f}{memory_ratio:>14}", file=sys.stderr)
    return 0


def _measured(command: list[str]) -> tuple[int, float, int | None]:
    """Exit status, wall time in seconds, and peak memory in bytes where the system tells it."""
    start = time.perf_counter()
    process = subprocess.Popen(command)
    if not hasattr(os, "wait4"):
        return process.wait(), time.perf_counter() - start, None
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    # Kilobytes everywhere but on macOS.
    return process.returncode, seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _start(options: argparse.Namespace, program: str, arguments: list[str]) -> None:
    """Runs the program in this process, as its __main__."""
    if options.module:
        sys.argv = [program, *arguments]
        sys.path[0:0] = [os.getcwd()]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    if options.code:
        sys.argv = ["-c", *arguments]
        sys.path[0:0] = [""]
        _execute(program, "<string>", None)
        return
    if not os.path.exists(program):
        sys.exit(f"modtree run: there is no script {program!r}")
    sys.argv = [program, *arguments]
    if os.path.isdir(program) or program.endswith((".zip", ".pyz")):
        runpy.run_path(program, run_name="__main__")
        return
    sys.path[0:0] = [os.path.dirname(os.path.abspath(program))]
    with open(program, "rb") as file:
        _execute(file.read(), program, program)


def _execute(source: str | bytes, name: str, path: str | None) -> None:
    main_module = ModuleType("__main__")
    vars(main_module).update(__builtins__=__builtins__)
    if path is not None:
        vars(main_module).update(__file__=path, __cached__=None)
    sys.modules["__main__"] = main_module
    # The program has the language it asks for, not what this file imports from __future__.
    exec(compile(source, name, "exec", dont_inherit=True), vars(main_module))
