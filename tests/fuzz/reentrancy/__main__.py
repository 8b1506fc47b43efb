# SPDX-License-Identifier: BSD-3-Clause
"""Runs Python wherever native code lets it run, and changes there what that code is at work on.

    python tests/fuzz/reentrancy --rounds 100000 --seed 1
    python tests/fuzz/reentrancy --seed 1 --first 4711 --rounds 1

The rounds run in a process of their own, so that a crash is a finding like any other, with the
program of its round written out. ``MODTREE_FUZZ_SECONDS`` bounds one round.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = float(os.environ.get("MODTREE_FUZZ_SECONDS", "60"))


def environment() -> dict[str, str]:
    """Freed memory is overwritten, the order of sets is fixed, and numeric libraries stay in this
    thread.
    """
    settings = {
        "PYTHONMALLOC": "debug",
        "MALLOC_PERTURB_": "165",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    # Under ASan a request for all memory is a MemoryError too, as the limit of this process makes
    # it otherwise.
    asan = os.environ.get("ASAN_OPTIONS", "")
    asan += ":allocator_may_return_null=1:max_allocation_size_mb=3000"
    return {**settings, **os.environ, "ASAN_OPTIONS": asan}


def rounds_in_this_process(args: argparse.Namespace) -> int:
    """The child: one line of JSON for each finding."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    from playing import Player
    from triggers import state

    import modtree  # noqa: F401

    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    sys.setrecursionlimit(400)
    state.echo = args.progress
    player = Player(args.seed)
    gc.collect()
    gc.freeze()
    found = 0
    for number in range(args.first, args.first + args.rounds):
        finding = player.play(number)
        if finding:
            found += 1
            print(
                json.dumps({"round": number, "what": finding, "program": list(state.log)}),
                flush=True,
            )
            if found >= args.at_most:
                break
    sys.unraisablehook = sys.__unraisablehook__
    return 0


class Run:
    """The parent: starts children, goes on after the round that ended one, and reports."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.found = 0

    def command(self, first: int, rounds: int, *more: str) -> list[str]:
        here = [sys.executable, str(HERE), "--child", "--seed", str(self.args.seed)]
        return [
            *here,
            "--first",
            str(first),
            "--rounds",
            str(rounds),
            "--at-most",
            str(self.args.at_most),
            *more,
        ]

    def report(self, number: int, what: str, program: str) -> None:
        self.found += 1
        print(f"seed {self.args.seed}, round {number}: {what.rstrip()}")
        print(program.rstrip())
        print(
            f"  again: {sys.executable} {HERE} --seed {self.args.seed} --first {number} --rounds 1"
        )
        print(flush=True)

    def all(self) -> int:
        number, end = self.args.first, self.args.first + self.args.rounds
        while number < end and self.found < self.args.at_most:
            number = self.some(number, end)
        print(f"{number - self.args.first} rounds of seed {self.args.seed}, {self.found} findings")
        return 1 if self.found else 0

    def some(self, first: int, end: int) -> int:
        """Plays on until the child ends; the round to go on with."""
        ended, last, program, findings, errors = self.child(first, end - first)
        for line in findings.splitlines():
            finding = json.loads(line)
            self.report(finding["round"], finding["what"], "\n".join(finding["program"]))
        if ended:
            alone = self.child(last, 1)[0]
            again = (
                "it fails alone too" if alone else "it does not fail alone: rounds before it matter"
            )
            self.report(last, f"{ended}; {again}\n{shortened(errors)}", program)
        return last + 1

    def child(self, first: int, rounds: int) -> tuple[str, int, str, str, str]:
        """How it ended if that was badly, its last round and the program of that, its findings, its
        stderr.
        """
        with (
            tempfile.TemporaryFile() as progress,
            tempfile.TemporaryFile() as errors,
            tempfile.TemporaryFile() as findings,
        ):
            child = subprocess.Popen(
                self.command(first, rounds, "--progress", str(progress.fileno())),
                stdout=findings,
                stderr=errors,
                env=environment(),
                pass_fds=[progress.fileno()],
            )
            ended = self.wait(child, progress.fileno())
            number, _, program = read(progress.fileno()).partition("\n")
            last = int(number or first)
            return ended, last, program, read(findings.fileno()), read(errors.fileno())

    def wait(self, child: subprocess.Popen[bytes], progress: int) -> str:
        """Until the child ends, or one of its rounds takes too long. Empty when it ended well."""
        last, since = b"", time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(timeout=0.2)
                return (
                    signal.Signals(-code).name if code < 0 else f"exit status {code}" * bool(code)
                )
            now = os.pread(progress, 20, 0).split(b"\n")[0]
            if now != last:
                last, since = now, time.monotonic()
            if time.monotonic() - since > SECONDS:
                child.send_signal(signal.SIGABRT)
                child.wait()
                return f"no end after {SECONDS:.0f} s"


def read(descriptor: int) -> str:
    return os.pread(descriptor, 1 << 20, 0).decode(errors="replace")


def shortened(text: str) -> str:
    """The beginning, where the error stands, and the end."""
    return text if len(text) < 6000 else f"{text[:4000]}\n[...]\n{text[-2000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--at-most", type=int, default=10, help="findings, before the run stops")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--progress", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return rounds_in_this_process(args)
    return Run(args).all()


if __name__ == "__main__":
    sys.exit(main())
