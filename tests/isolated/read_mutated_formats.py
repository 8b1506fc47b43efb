# SPDX-License-Identifier: BSD-3-Clause
"""Reads mutated checkpoints of all formats in each way, in a process whose memory is limited;
prints how many were read and how many refused. No file outside of a folder may be opened, and
nothing that a file names may be imported.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import io
import os
import pickle
import resource
import shutil
import signal
import sys
import sysconfig
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS)]

import numpy as np  # noqa: E402
from helpers.checkpoint_formats import RULES, format_of, mutate_folder  # noqa: E402
from helpers.file_server import serving  # noqa: E402
from helpers.lying_server import lying  # noqa: E402

import modtree as mt  # noqa: E402
from modtree import cli  # noqa: E402
from modtree.files.checkpoint.base import CheckpointError  # noqa: E402
from modtree.files.checkpoint.reader import open_checkpoint  # noqa: E402
from modtree.files.sources import addresses  # noqa: E402

ALARM = 120  # seconds, after which something does not end
# Beyond what the process has. Without the GIL each thread has an allocator of its own, and one that
# cannot have it never says that it has started.
MEMORY = (1024 if sysconfig.get_config_var("Py_GIL_DISABLED") else 192) << 20
REFUSED = (pickle.UnpicklingError, CheckpointError, FileNotFoundError, RecursionError)


def opened(path, rules):
    """Everything that an open checkpoint answers, as values that can be compared."""
    found = {}
    with open_checkpoint(path, join=rules) as checkpoint:
        for key, entry in checkpoint.entries.items():
            whole = checkpoint.array(key)
            assert whole.shape == entry.shape
            if whole.ndim and len(whole):
                part = checkpoint.part(key, slice(0, 1))
                assert part.tobytes() == whole[:1].tobytes()
            data = b"".join(map(bytes, checkpoint.chunks(key)))
            assert len(data) == entry.nbytes
            found[key] = entry.dtype, entry.shape, data
        repr(checkpoint.parts()), repr(dict(checkpoint.in_parts))
        repr(checkpoint.contents())
        repr(checkpoint.state_dict())
    return found


def stand_ins(path, rules):
    repr(mt.load_file(path, join=rules)), repr(_loaded(path, rules))


def _loaded(path, rules):
    """Formats that are no pickles, and folders that take rules, are for load_file alone."""
    try:
        return None if rules else mt.load(path, foreign="stand-in")
    except pickle.UnpicklingError:
        return None


@functools.cache
def parser_of(name):
    """Making it takes longer than the rest of most commands."""
    return cli.make_parser([name])


def command(arguments):
    options = parser_of(arguments[0]).parse_args(arguments)
    return cli.ended_well(cli._file_of(arguments[0]).execute, options)


def commands(path, rules):
    join = [f"--join={key}={'same' if dim is None else dim}" for key, dim in (rules or {}).items()]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = {
            command(["inspect", path, *join]),
            command(["verify", path, "--finite", *join]),
            command(["convert", path, "../out.safetensors", *join]),
            command(["convert", path, "../out.pt", *join]),
            command(["diff", path, path, *join]),
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


# -- where it is -----------------------------------------------------------------------------------


def path_of(folder):
    """What is opened: the folder, or the file in it that is a checkpoint by itself."""
    names = os.listdir(folder)
    alone = len(names) == 1 and names[0] != "adapter_config.json" and "shard" not in names[0]
    is_file = alone and os.path.isfile(os.path.join(folder, names[0])) and "rank" not in names[0]
    return os.path.join(folder, names[0]) if is_file else folder


class Here:
    """Checkpoints that are read from their folder."""

    refused = REFUSED

    def put(self, seed, folder):
        return path_of("."), None


class Http:
    """Checkpoints behind a server that lies, in two of three cases."""

    refused = (*REFUSED, OSError)

    def __init__(self, server):
        self._server = server

    def put(self, seed, folder):
        self._server.files.clear()
        names = sorted(os.listdir(folder))
        for name in names:
            self._server.add(name, Path(folder, name).read_bytes())
        self._server.answer = lying(np.random.default_rng(seed)) if seed % 3 else None
        index = [name for name in names if name.endswith(".index.json")]
        name = (index or names or ["nothing"])[0]
        return f"{self._server.address}/{name}", name


class Memory:
    """Checkpoints in the file system of fsspec that is in memory."""

    refused = (*REFUSED, OSError)

    def put(self, seed, folder):
        import fsspec

        system = fsspec.filesystem("memory")
        if system.exists("/run"):
            system.rm("/run", recursive=True)
        system.mkdirs("/run")
        for name in os.listdir(folder):
            system.pipe_file(f"/run/{name}", Path(folder, name).read_bytes())
        name = path_of(folder)
        return f"memory://run/{'' if name == folder else os.path.basename(name)}", None


def compared(path, name, found):
    """What was read behind an address is what the file has."""
    if name is not None:
        assert opened(name, None) == found


def limit_memory():
    pages = Path("/proc/self/statm")
    if pages.exists() and "asan" not in os.environ.get("LD_PRELOAD", ""):  # it maps terabytes
        limit = int(pages.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(first, count, place, valid):
    addresses._PAUSE = 0.0
    addresses._SILENCE = addresses._LONGEST = 0.3
    warnings.simplefilter("ignore")
    with serving() as server:
        places = {"http": Http(server), "memory": Memory()}
        run(first, count, place, valid, places)


def run(first, count, place, valid, places):
    folder = os.path.join(place, "inside")
    for name in sorted(os.listdir(valid)):  # what is imported on first use
        shutil.copytree(os.path.join(valid, name), folder)
        where = places.get(format_of(name), Here())
        for read in WAYS.values():
            os.chdir(folder)
            path, _ = where.put(0, ".")
            with contextlib.suppress(*where.refused):
                read(path, RULES.get(name))
        shutil.rmtree(folder)
    before = set(sys.modules)
    limit_memory()
    counts = collections.Counter()
    for seed in range(first, first + count):
        os.chdir(place)
        name = mutate_folder(seed, valid, folder)
        os.chdir(folder)
        where = places.get(format_of(name), Here())
        for way, read in WAYS.items():
            signal.alarm(ALARM)
            try:
                path, local = where.put(seed, ".")
                with Watch(folder):
                    found = read(path, RULES.get(name))
                    if way == "opened":
                        compared(path, local, found)
                counts[way, "read"] += 1
            except where.refused as error:
                assert type(error) is not RecursionError or way == "stand-ins"
                counts[way, "refused"] += 1
            except Exception as error:
                raise AssertionError(f"folder {seed} ({name}), {way}") from error
            finally:
                signal.alarm(0)
        os.chdir(place)
        shutil.rmtree(folder)
        if left := [name for name in os.listdir() if not name.startswith("out.")]:
            raise AssertionError(f"folder {seed} ({name}) left {left}")
    foreign = {name for name in set(sys.modules) - before if not name.startswith("modtree")}
    if foreign & {"torch", "antigravity", "this", "deepspeed", "argparse_"}:
        raise AssertionError(f"imported {foreign}")
    for way in WAYS:
        print(way, counts[way, "read"], counts[way, "refused"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(os.path.abspath, sys.argv[3:]))
