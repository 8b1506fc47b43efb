# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_checkpoints``: saving and loading checkpoints against safetensors.torch
and torch.save, torch.load(mmap=True), in one run.

Two checkpoints: a large one in four shards, and one of many small tensors. ``save`` of modtree
brings the file to the disk before it counts as written; the other libraries leave that to the
operating system, so their ``fsync`` is a line of its own. ``load`` ends with every value having
been read; ``open`` does not read them. ``load()`` reads a file whole, and ``what is in one file``
its header, in time of the processor: modtree prints a tree of it, and safetensors makes a list.
``into a model`` is load_state_dict, with its matching of keys. ``--headers`` measures headers only.

Each save writes new files, on an idle disk: the old ones are removed and the disk is waited for
before the clock starts. Else a side pays for what the one before it left to be written; and a side
that keeps the old file until the new one is complete pays for twice the memory of the cache, which
a virtual machine may have to ask its host for.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402
import io  # noqa: E402
import random  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

import modtree as mt  # noqa: E402
from modtree.cli import main as modtree_command  # noqa: E402

SHARDS = 4


class Files:
    """Where each side writes its checkpoint, and what is in it."""

    def __init__(self, folder: Path, state: dict[str, np.ndarray], shards: int) -> None:
        self.ours = folder / "ours"
        self.theirs = folder / "theirs"
        self.torch = folder / "torch"
        for path in (self.ours, self.theirs, self.torch):
            path.mkdir()
        self.arrays = {key: mt.from_numpy(array) for key, array in state.items()}
        self.tensors = {key: torch.from_numpy(array) for key, array in state.items()}
        self.nbytes = sum(array.nbytes for array in state.values())
        self.largest = -(-self.nbytes // shards) if shards > 1 else None
        keys = list(state)
        step = -(-len(keys) // shards)
        self.groups = [keys[i : i + step] for i in range(0, len(keys), step)]

    def clear(self) -> None:
        """Removes what was saved, and waits for the disk."""
        for folder in (self.ours, self.theirs, self.torch):
            for path in folder.iterdir():
                path.unlink()
        os.sync()

    # -- save --------------------------------------------------------------------------------------

    def save_ours(self) -> None:
        mt.save_file(self.arrays, self.ours, max_shard_size=self.largest)

    def save_ours_torch(self) -> None:
        mt.save_file(self.tensors, self.ours, max_shard_size=self.largest)

    def save_theirs(self) -> None:
        for path, group in self.parts(self.theirs):
            part = {key: self.tensors[key] for key in group}
            safetensors.torch.save_file(part, path, metadata={"format": "pt"})

    def save_torch(self) -> None:
        for path, group in self.parts(self.torch):
            torch.save({key: self.tensors[key] for key in group}, path)

    def synced(self, save: Callable[[], None], folder: Path) -> Callable[[], None]:
        def run() -> None:
            save()
            for path, _ in self.parts(folder):
                with open(path, "rb+") as file:
                    os.fsync(file.fileno())

        return run

    def parts(self, folder: Path) -> list[tuple[Path, list[str]]]:
        return [(folder / f"part{i}", group) for i, group in enumerate(self.groups)]

    # -- load --------------------------------------------------------------------------------------

    def load_ours(self) -> Any:
        return mt.load_file(self.ours)

    def load_theirs(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for path, _ in self.parts(self.theirs):
            state |= safetensors.torch.load_file(path)
        return state

    def load_torch(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for path, _ in self.parts(self.torch):
            state |= torch.load(path, mmap=True)
        return state


def touch(state: Any) -> None:
    """Reads a byte of each page, and of each tensor."""
    for tensor in state.values():
        flat = np.asarray(tensor.numpy()).reshape(-1).view(np.uint8)
        flat[::4096].max()


def model_of(library: Any, state: dict[str, Any], make: Callable[[Any], Any]) -> Any:
    """A tree of modules with these parameters."""
    root = library.nn.Module()
    homes = {"": root}

    def home(path: str) -> Any:
        if path not in homes:
            parent, _, name = path.rpartition(".")
            homes[path] = library.nn.Module()
            home(parent).add_module(name, homes[path])
        return homes[path]

    for key, tensor in state.items():
        path, _, name = key.rpartition(".")
        home(path).register_parameter(name, library.nn.Parameter(make(tensor)))
    return root


def compare(
    title: str,
    runs: dict[str, Callable[[], Any]],
    repeats: int,
    before: Callable[[], None] = gc.collect,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Runs take turns, in another order each round, after a round that does not count; prints the
    least time of each, and the ratio to the first.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    shuffled = random.Random(0)
    for turn in range(repeats + 1):
        for name in names:
            before()
            start = clock()
            result = runs[name]()
            if turn:
                times[name].append(clock() - start)
            del result
        shuffled.shuffle(names)
    first = min(next(iter(times.values())))
    print(f"\n{title}")
    for name, found in times.items():
        print(f"  {name:44} {min(found):8.3f} s  {min(found) / first:6.2f} x")


def measure(title: str, state: dict[str, np.ndarray], shards: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder), state, shards)
        compare(
            f"{title}: save",
            {
                "modtree, on the disk": files.save_ours,
                "modtree, leaves of torch, on the disk": files.save_ours_torch,
                "safetensors.torch": files.save_theirs,
                "safetensors.torch + fsync": files.synced(files.save_theirs, files.theirs),
                "torch.save": files.save_torch,
                "torch.save + fsync": files.synced(files.save_torch, files.torch),
            },
            repeats,
            files.clear,
        )
        for save in (files.save_ours, files.save_theirs, files.save_torch):
            save()
        loads = {
            "modtree": files.load_ours,
            "safetensors.torch": files.load_theirs,
            "torch.load(mmap=True)": files.load_torch,
        }
        compare(f"{title}: open", loads, repeats)
        reads = {name: (lambda load=load: touch(load())) for name, load in loads.items()}
        compare(f"{title}: load", reads, repeats)
        plain = Path(folder) / "plain.pt"
        torch.save(files.tensors, plain)
        whole = {
            "modtree": lambda: mt.load(plain),
            "torch": lambda: torch.load(plain),
        }
        compare(f"{title}: load() of a file of torch.save, checksums compared", whole, repeats)
        ours = model_of(mt, files.arrays, lambda t: mt.empty_like(t))
        theirs = model_of(torch, files.tensors, lambda t: torch.empty_like(t))
        for assign in (False, True):
            compare(
                f"{title}: into a model, assign={assign}",
                {
                    "modtree": lambda a=assign: ours.load_state_dict(files.load_ours(), assign=a),
                    "safetensors.torch": lambda a=assign: theirs.load_state_dict(
                        files.load_theirs(), assign=a
                    ),
                    "torch.load(mmap=True)": lambda a=assign: theirs.load_state_dict(
                        files.load_torch(), assign=a
                    ),
                },
                repeats,
            )


def measure_header(title: str, state: dict[str, np.ndarray], repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "listed.safetensors"
        mt.save_file({key: mt.from_numpy(array) for key, array in state.items()}, listed)
        headers = {
            "modtree inspect": lambda: inspected(listed),
            "safetensors, keys": lambda: keys_of(listed),
            "safetensors, keys and shapes": lambda: keys_and_shapes(listed),
        }
        title = f"{title}: what is in one file"
        compare(title, headers, repeats, clock=time.process_time)


def inspected(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        modtree_command(["inspect", str(path)])


def keys_of(path: Path) -> list[str]:
    with safetensors.safe_open(path, "numpy") as file:
        return list(file.keys())


def keys_and_shapes(path: Path) -> list[Any]:
    with safetensors.safe_open(path, "numpy") as file:
        return [(key, file.get_slice(key).get_shape()) for key in file.keys()]


def large(nbytes: int) -> dict[str, np.ndarray]:
    count = 64
    array = np.arange(nbytes // 4 // count, dtype=np.float32)
    return {f"layers.{i}.weight": array + i for i in range(count)}


def rows(count: int) -> dict[str, np.ndarray]:
    """As many rows in what is printed."""
    return {f"layer{i}.weight": np.full(4, i, np.float32) for i in range(count)}


def many(count: int) -> dict[str, np.ndarray]:
    """Three tensors for each expert, 32 experts in a group, 32 groups in a layer."""
    return {
        f"layers.{i // 3072}.groups.{i // 96 % 32}.experts.{i // 3 % 32}.w{i % 3}": np.full(
            4, i, np.float32
        )
        for i in range(count)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="of the large checkpoint")
    parser.add_argument("--entries", type=int, default=300_000, help="of the other one")
    parser.add_argument("--headers", action="store_true", help="only what is in one file")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    gc.disable()
    if options.megabytes and not options.headers:
        title = f"{options.megabytes} MB in {SHARDS} shards"
        measure(title, large(options.megabytes * 10**6), SHARDS, options.repeats)
    if options.entries:
        title = f"{options.entries:,} entries"
        if not options.headers:
            measure(title, many(options.entries), 1, options.repeats)
        measure_header(title, many(options.entries), options.repeats)
        measure_header(f"{options.entries:,} rows", rows(options.entries), options.repeats)


if __name__ == "__main__":
    main()
