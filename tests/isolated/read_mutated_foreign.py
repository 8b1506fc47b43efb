# SPDX-License-Identifier: BSD-3-Clause
"""Reads mutated files with foreign objects in each way, in a process whose memory is limited;
prints how many were read and how many refused. Nothing of a file may be executed or imported.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
import pickle
import resource
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS)]

from helpers.mutated_archives import mutated  # noqa: E402

import modtree as mt  # noqa: E402
from modtree.cli import main as command  # noqa: E402
from modtree.files.checkpoint.base import CheckpointError  # noqa: E402
from modtree.files.checkpoint.reader import open_checkpoint  # noqa: E402


def opened(path):
    with open_checkpoint(path) as checkpoint:
        for key in checkpoint.entries:
            checkpoint.array(key)
            next(checkpoint.chunks(key), None)
        repr(checkpoint.parts()), repr(dict(checkpoint.in_parts))
        checkpoint.state_dict()


def stand_ins(path):
    repr(mt.load(path, foreign="stand-in"))


def commands(path):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = {
            command(["inspect", path]),
            command(["diff", path, path]),
            command(["verify", path, "--finite"]),
            command(["convert", path, "../out.pt"]),
        }
    if 2 in status:
        raise CheckpointError("refused", path)


WAYS = {"opened": opened, "stand-ins": stand_ins, "commands": commands}


def main(first, count, folder, valid):
    files = [path.read_bytes() for path in sorted(Path(valid).iterdir())]
    path = f"{folder}/file.pt"
    Path(path).write_bytes(files[0])
    for read in WAYS.values():  # what is imported on first use
        read(path)
    before = set(sys.modules)
    pages = Path("/proc/self/statm")
    if pages.exists() and "asan" not in os.environ.get("LD_PRELOAD", ""):  # it maps terabytes
        limit = int(pages.read_text().split()[0]) * resource.getpagesize() + (128 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.chdir(folder)
    counts = collections.Counter()
    for seed in range(first, first + count):
        Path("file.pt").write_bytes(mutated(seed, files))
        for way, read in WAYS.items():
            try:
                read("file.pt")
                counts[way, "read"] += 1
            except (pickle.UnpicklingError, CheckpointError, RecursionError) as error:
                if type(error) is RecursionError and way != "stand-ins":
                    raise
                counts[way, "refused"] += 1
            except Exception as error:
                raise AssertionError(f"file {seed}, {way}") from error
        if os.listdir() != ["file.pt"]:
            raise AssertionError(f"file {seed} left {os.listdir()}")
    foreign = {name for name in set(sys.modules) - before if not name.startswith("modtree")}
    if foreign & {"argparse_", "torch", "antigravity", "this"}:
        raise AssertionError(f"imported {foreign}")
    for way in WAYS:
        print(way, counts[way, "read"], counts[way, "refused"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
