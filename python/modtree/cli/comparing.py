# SPDX-License-Identifier: BSD-3-Clause
"""``modtree run --compare``: a program on torch's Module and on the native one, several times in
turn.
"""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from modtree.torch import launch as _launch
from modtree.torch.launch import Words

#: The sides, and the switches of each.
_SIDES = {"torch": ["--off"], "modtree": []}

#: Run by itself, it takes what a program takes before its own first line. In a file, so that the
#: working folder is not on its path.
_START_UP = """\
try:
    import torch
except ImportError:
    pass
"""


class _Run(NamedTuple):
    """What one process took: seconds, and bytes. None where the system does not tell it."""

    status: int
    wall: float
    cpu: float | None
    peak: int | None
    output: bytes


class _NotComparable(Exception):
    """A run has failed."""

    def __init__(self, side: str, run: _Run) -> None:
        super().__init__(f"on {side} the program ended with status {run.status}")
        self.run = run


def compare(words: Words, rounds: int) -> int:
    """Runs the program on both sides, prints a table and says if the outputs are the same. Returns
    the exit status: 1 where modtree's output is another, that of the program where a run failed.
    """
    with tempfile.TemporaryDirectory(prefix="modtree-compare-") as folder:
        file = Path(folder, "start_up.py")
        file.write_text(_START_UP)
        start_words = Words()
        start_words.options, start_words.kind, start_words.program = (
            words.options,
            "script",
            str(file),
        )
        start_words.as_given = [*words.options, str(file)]
        runner = _Runner(words, folder)
        programs: dict[str, list[_Run]] = {side: [] for side in _SIDES}
        start_ups: dict[str, list[_Run]] = {side: [] for side in _SIDES}
        try:
            for number in range(rounds):
                for side in _SIDES:
                    _say(f"run {number + 1} of {rounds} on {side}")
                    programs[side].append(runner.run(words, side))
                    start_ups[side].append(runner.run(start_words, side, shows=False))
            if rounds == 1 and len({programs[side][0].output for side in _SIDES}) > 1:
                _say("once more on torch, as the outputs differ")
                programs["torch"].append(runner.run(words, "torch"))
        except _NotComparable as error:
            _say(str(error))
            return error.run.status
    for line in _table(programs, start_ups):
        print(line, file=sys.stderr)
    difference = _difference(*([run.output for run in runs] for runs in programs.values()))
    for line in difference or ["output: identical"]:
        print(line, file=sys.stderr)
    return 1 if len(difference) > 1 else 0


def _say(text: str) -> None:
    print(f"modtree run: {text}", file=sys.stderr, flush=True)


class _Runner:
    """Starts processes, and gives each the same standard input.

    The first run of the program shows what it writes, its output when it has ended. The others are
    silent unless they fail.
    """

    def __init__(self, words: Words, folder: str) -> None:
        self._folder = folder
        self._shown = False
        self._input: Any = None
        if words.program == "-":  # the program itself
            self._input = tempfile.TemporaryFile(dir=folder)
            self._input.write(sys.stdin.buffer.read())
        elif sys.stdin is not None and stat.S_ISREG(os.fstat(0).st_mode):
            self._input = open(0, "rb", buffering=0, closefd=False)
        self._start = self._input.tell() if self._input and words.program != "-" else 0

    def run(self, words: Words, side: str, shows: bool = True) -> _Run:
        shows = shows and not self._shown
        words.switches = _SIDES[side]
        if self._input is not None:
            self._input.seek(self._start)
        with (
            tempfile.TemporaryFile(dir=self._folder) as output,
            tempfile.TemporaryFile(dir=self._folder) as errors,
        ):
            run = _measured(words, self._input, output, None if shows else errors)
            for stream, shown in ((output, sys.stdout), (errors, sys.stderr)):
                stream.seek(0)
                written = stream.read()
                if shows or run.status:
                    shown.flush()
                    shown.buffer.write(written)
                    shown.flush()
                if stream is output:
                    run = run._replace(output=written)
        self._shown = self._shown or shows
        if run.status:
            raise _NotComparable(side, run)
        return run


def _measured(words: Words, stdin: Any, stdout: Any, stderr: Any) -> _Run:
    start = time.perf_counter()
    process = subprocess.Popen(
        _launch.command_line(words),
        executable=sys.executable,
        env=_launch.environment(words),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
    if not hasattr(os, "wait4"):
        return _Run(process.wait(), time.perf_counter() - start, None, None, b"")
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    # Kilobytes everywhere but on macOS.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return _Run(process.returncode, seconds, usage.ru_utime + usage.ru_stime, peak, b"")


def _table(programs: dict[str, list[_Run]], start_ups: dict[str, list[_Run]]) -> Iterator[str]:
    """Medians, each with the least and the most."""
    yield ""
    yield f"{'':22}{'torch':>24}{'modtree':>24}{'ratio':>8}"
    rows: list[tuple[str, dict[str, list[_Run]], Callable[[_Run], Any], float, str]] = [
        ("CPU time", programs, lambda run: run.cpu, 1, "s"),
        ("  of which start-up", start_ups, lambda run: run.cpu, 1, "s"),
        ("wall time", programs, lambda run: run.wall, 1, "s"),
        ("  of which start-up", start_ups, lambda run: run.wall, 1, "s"),
        ("peak memory", programs, lambda run: run.peak, 2**20, "MiB"),
    ]
    for name, runs, take, unit, unit_name in rows:
        values = [[take(run) for run in runs[side]] for side in _SIDES]
        if None in values[0]:
            yield f"{name:22}{'unknown':>24}{'unknown':>24}"
            continue
        digits = 2 if unit == 1 else 0
        cells = [_cell([value / unit for value in side], digits, unit_name) for side in values]
        ratio = _median(values[1]) / _median(values[0])
        yield f"{name:22}{cells[0]:>24}{cells[1]:>24}{ratio:>8.2f}"


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _cell(values: list[float], digits: int, unit: str) -> str:
    middle = f"{_median(values):,.{digits}f} {unit}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def _difference(plain: list[bytes], native: list[bytes]) -> list[str]:
    """Lines about the first line in which outputs differ: one where those on torch differ among
    themselves, so that nothing can be compared, and none where all are the same.
    """
    for other in plain[1:]:
        if line := _first_difference(plain[0], other):
            return [f"output: varies by itself on torch, from line {line[0]} on: not compared"]
    for other in native:
        if line := _first_difference(plain[0], other):
            number, *texts = line
            shown = [f"  {side:8} {text}" for side, text in zip(_SIDES, texts, strict=True)]
            return [f"output: differs from line {number} on", *shown]
    return []


def _first_difference(one: bytes, other: bytes) -> tuple[int, str, str] | None:
    """The number of the first line that differs, and both lines."""
    lines = one.split(b"\n"), other.split(b"\n")
    for number, (left, right) in enumerate(itertools.zip_longest(*lines), 1):
        if left != right:
            return number, _line_text(left), _line_text(right)
    return None


def _line_text(line: bytes | None) -> str:
    if line is None:
        return "(no line)"
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= 200 else text[:200] + "...")
