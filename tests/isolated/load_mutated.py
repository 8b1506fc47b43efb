# SPDX-License-Identifier: BSD-3-Clause
"""Reads mutated archives in each way, in a process whose memory is limited; prints how many were
read and how many refused.
"""

from __future__ import annotations

import collections
import os
import pickle
import resource
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS)]

from helpers.mutated_archives import mutated, valid_archives  # noqa: E402

import modtree as mt  # noqa: E402
from modtree.files.checkpoint.base import CheckpointError  # noqa: E402
from modtree.files.checkpoint.reader import open_checkpoint  # noqa: E402


def opened(path):
    with open_checkpoint(path) as checkpoint:
        for key in checkpoint.entries:
            checkpoint.tensor(key)
            next(checkpoint.chunks(key), None)
        return checkpoint.state_dict()


def touched(value):
    """Reads what was mapped: a tensor beyond the file would end the process."""
    if isinstance(value, mt.Tensor):
        if not value.is_meta and value.numel() < 1 << 20:
            value.tolist()
    elif isinstance(value, dict):
        for item in value.values():
            touched(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            touched(item)


WAYS = {
    "load": lambda path: mt.load(path),
    "mapped": lambda path: mt.load(path, mmap=True),
    "opened": opened,
}


def main(first, count, folder):
    valid_archives()
    pages = Path("/proc/self/statm")
    if pages.exists() and "asan" not in os.environ.get("LD_PRELOAD", ""):  # it maps terabytes
        limit = int(pages.read_text().split()[0]) * resource.getpagesize() + (128 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.chdir(folder)
    counts = collections.Counter()
    for seed in range(first, first + count):
        path = Path("file.pt")
        path.write_bytes(mutated(seed))
        for way, read in WAYS.items():
            try:
                touched(read(path))
                counts[way, "read"] += 1
            except (pickle.UnpicklingError, CheckpointError):
                counts[way, "refused"] += 1
            except Exception as error:
                raise AssertionError(f"file {seed}, {way}") from error
        if os.listdir() != ["file.pt"]:
            raise AssertionError(f"file {seed} left {os.listdir()}")
    for way in WAYS:
        print(way, counts[way, "read"], counts[way, "refused"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
