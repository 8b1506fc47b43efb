# SPDX-License-Identifier: BSD-3-Clause
"""Threads that read, call, walk, change, copy and save one tree at the same time.

    python tests/fuzz/threads --rounds 100 --seed 1
    python tests/fuzz/threads --seconds 600 --threads 8

What a thread saw must be what some order of all steps gives (``history.py``). With the GIL, threads
take turns as often as CPython can; without it, they run side by side. A crash shows the Python
stack of each thread, and the seed of its round is the last line of the output.
"""

from __future__ import annotations

import argparse
import faulthandler
import pathlib
import sys
import time
import warnings
from collections import Counter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from history import findings  # noqa: E402
from sharing import play  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="ends after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200, help="of each thread in one round")
    parser.add_argument("--quiet", action="store_true", help="do not print the rounds' seeds")
    args = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    sys.setswitchinterval(1e-6)
    end = time.monotonic() + args.seconds
    counts: Counter[str] = Counter()
    wrong = rounds = 0
    while rounds < args.rounds and time.monotonic() < end:
        seed = f"{args.seed}.{rounds}"
        if not args.quiet:
            print(seed, flush=True)
        logs, start = play(seed, args.threads, args.steps)
        for log in logs:
            counts.update(log.counts)
        for finding in findings(logs, start)[:5]:
            wrong += 1
            print(f"seed {seed}: {finding}", flush=True)
        rounds += 1
    print(f"{rounds} rounds, {sum(counts.values())} steps, {wrong} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
