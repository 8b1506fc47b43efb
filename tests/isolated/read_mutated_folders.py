# SPDX-License-Identifier: BSD-3-Clause
"""Reads mutated folders and files of all formats in each way, in a process whose memory is limited;
prints how many were read and how many refused. No file outside of a folder may be opened.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import io
import os
import pickle
import resource
import shutil
import signal
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS)]

from helpers.checkpoint_folders import RULES, mutate_folder  # noqa: E402

import modtree as mt  # noqa: E402
from modtree.cli import main as command  # noqa: E402
from modtree.files.checkpoint.base import CheckpointError  # noqa: E402
from modtree.files.checkpoint.reader import open_checkpoint  # noqa: E402
from modtree.files.pickled.stand_in import StandIn  # noqa: E402

ALARM = 120  # seconds, after which something does not end


def path_of(folder):
    """What is opened: the folder, or the file in it that is a checkpoint by itself."""
    names = os.listdir(folder)
    alone = len(names) == 1 and names[0].endswith((".gguf", ".npz"))
    return os.path.join(folder, names[0]) if alone else folder


def opened(path, rules):
    with open_checkpoint(path, join=rules) as checkpoint:
        for key in checkpoint.entries:
            whole = checkpoint.array(key)
            assert whole.shape == checkpoint.entries[key].shape
            if whole.ndim and len(whole):
                part = checkpoint.part(key, slice(0, 1))
                assert part.tobytes() == whole[:1].tobytes()
            data = b"".join(map(bytes, checkpoint.chunks(key)))
            assert len(data) == checkpoint.entries[key].nbytes
        repr(checkpoint.parts()), repr(dict(checkpoint.in_parts))
        repr(checkpoint.contents())


def stand_ins(path, rules):
    state = mt.load_file(path, join=rules)
    assert all(type(value) is not StandIn or repr(value) for value in state.values())


def commands(path, rules):
    join = [f"--join={key}={'same' if dim is None else dim}" for key, dim in (rules or {}).items()]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = {
            command(["inspect", path, *join]),
            command(["verify", path, "--finite", *join]),
            command(["convert", path, "../out.safetensors", *join]),
        }
    if 2 in status:
        raise CheckpointError("refused", path)


WAYS = {"opened": opened, "stand-ins": stand_ins, "commands": commands}


class Watch:
    """Which files are opened."""

    def __init__(self, folder):
        self._folder = os.path.realpath(folder)
        self._open = builtins.open

    def __enter__(self):
        builtins.open = self._watched

    def _watched(self, file, mode="r", *args, **kwargs):
        if isinstance(file, (str, os.PathLike)) and "r" in mode:
            real = os.path.realpath(file)
            inside = real.startswith((self._folder + os.sep, sys.prefix, sys.base_prefix, "/proc"))
            ours = real.startswith((str(TESTS.parent), os.path.dirname(self._folder) + "/out."))
            assert inside or ours, f"opened {file}"
        return self._open(file, mode, *args, **kwargs)

    def __exit__(self, *error):
        builtins.open = self._open


def main(first, count, place, valid):
    folder = os.path.join(place, "inside")
    for name in sorted(os.listdir(valid)):  # what is imported on first use
        shutil.copytree(os.path.join(valid, name), folder)
        for read in WAYS.values():
            os.chdir(folder)
            read(path_of("."), RULES.get(name))
        shutil.rmtree(folder)
    before = set(sys.modules)
    pages = Path("/proc/self/statm")
    if pages.exists() and "asan" not in os.environ.get("LD_PRELOAD", ""):  # it maps terabytes
        limit = int(pages.read_text().split()[0]) * resource.getpagesize() + (256 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    counts = collections.Counter()
    for seed in range(first, first + count):
        os.chdir(place)
        name = mutate_folder(seed, valid, folder)
        os.chdir(folder)
        for way, read in WAYS.items():
            signal.alarm(ALARM)
            try:
                with Watch(folder):
                    read(path_of("."), RULES.get(name))
                counts[way, "read"] += 1
            except (pickle.UnpicklingError, CheckpointError, FileNotFoundError):
                counts[way, "refused"] += 1
            except Exception as error:
                raise AssertionError(f"folder {seed} ({name}), {way}") from error
            finally:
                signal.alarm(0)
        os.chdir(place)
        shutil.rmtree(folder)
    foreign = {name for name in set(sys.modules) - before if not name.startswith("modtree")}
    if foreign & {"torch", "antigravity", "this", "deepspeed"}:
        raise AssertionError(f"imported {foreign}")
    for way in WAYS:
        print(way, counts[way, "read"], counts[way, "refused"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(os.path.abspath, sys.argv[3:]))
