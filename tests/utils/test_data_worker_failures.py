# SPDX-License-Identifier: BSD-3-Clause
"""Loaders whose workers fail, die or are too slow, and what is left behind: nothing."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER
from helpers.worker_data import (
    Dying,
    Failing,
    Sleeping,
    Squares,
    TwoArguments,
    Unpicklable,
    fail_to_start,
    same,
)

import modtree as mt
from modtree.utils.data import _workers

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def data(request):
    return importlib.import_module(f"{request.param}.utils.data")


@pytest.fixture
def children():
    """The processes that were started since the test began."""
    before = {child.pid for child in multiprocessing.active_children()}
    return lambda: [c for c in multiprocessing.active_children() if c.pid not in before]


def loader_of(data, dataset, *args, **kwargs):
    """Two forked workers."""
    kwargs = {"num_workers": 2, "multiprocessing_context": "fork", **kwargs}
    return data.DataLoader(dataset, *args, **kwargs)


SHARED_MEMORY = Path("/dev/shm")


def shared_files():
    return set(os.listdir(SHARED_MEMORY)) if SHARED_MEMORY.is_dir() else set()


def left_in_shared_memory(before):
    """Files that were not there before, and stay: those of other programs come and go."""
    end = time.monotonic() + 30
    left = shared_files() - before
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left &= shared_files()
    return left


@pytest.fixture
def nothing_left():
    """No process, descriptor or file in shared memory more than before."""

    def state():
        gc.collect()
        own = f"/proc/{os.getpid()}"
        descriptors = len(os.listdir(own + "/fd")) if os.path.isdir(own) else 0
        return len(multiprocessing.active_children()), descriptors

    before, files = state(), shared_files()
    yield
    after = state()  # of other tests, something may have ended meanwhile
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
    assert left_in_shared_memory(files) == set()


# -- exceptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [ValueError("three"), KeyError("three"), IndexError("three"), NotImplementedError("three")],
    ids=lambda e: type(e).__name__,
)
def test_errors_keep_their_class_and_tell_their_traceback(data, error):
    iterator = iter(loader_of(data, Failing(error), 2))
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(type(error)) as caught:
        next(iterator)
    assert type(caught.value) is type(error)
    text = str(caught.value)
    assert text.startswith(f"Caught {type(error).__name__} in DataLoader worker process 1.\n")
    assert "Original Traceback (most recent call last)" in text
    assert "raise self.error" in text and "three" in text
    assert [b.tolist() for b in iterator] == [[4, 5], [6, 7]]


def test_an_error_that_needs_more_than_a_text(data):
    with pytest.raises(RuntimeError, match="Caught TwoArguments in DataLoader worker process 1"):
        list(loader_of(data, Failing(TwoArguments(1, 2)), 2))


def test_an_error_whose_class_cannot_be_sent():
    class Local(LookupError):
        pass

    with pytest.raises(LookupError, match=r"Caught Local in DataLoader(.|\n)*Local: 5") as caught:
        list(loader_of(mt.utils.data, Failing(Local(5)), 2))
    assert type(caught.value) is LookupError


def test_an_error_at_the_start(data):
    loader = loader_of(data, Squares(8), 2, worker_init_fn=fail_to_start)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(OSError, match="worker 1 finds no file"):
        next(iterator)


def test_an_error_in_collating(data):
    def collate(batch):
        raise RuntimeError("does not fit")

    with pytest.raises(RuntimeError, match=r"Caught RuntimeError(.|\n)*does not fit"):
        list(loader_of(data, Squares(), collate_fn=collate))


@pytest.mark.slow(keep=1)
def test_an_error_in_a_stream(data):
    class Broken(data.IterableDataset):
        def __iter__(self):
            yield 1
            raise ValueError("no second")

    iterator = iter(loader_of(data, Broken(), batch_size=None))
    assert [next(iterator), next(iterator)] == [1, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="no second"):
            next(iterator)
    assert list(iterator) == []


def test_an_error_of_spawned_workers():
    loader = loader_of(
        mt.utils.data, Failing(TwoArguments(1, 2)), 2, multiprocessing_context="spawn"
    )
    with pytest.raises(RuntimeError, match="Caught TwoArguments in DataLoader worker process 1"):
        list(loader)


def test_what_cannot_be_sent_is_an_error():
    with pytest.raises(Exception, match="Caught .* in DataLoader worker process 0") as caught:
        list(loader_of(mt.utils.data, Unpicklable(), collate_fn=same))
    assert "lambda" in str(caught.value)


@pytest.mark.parametrize("good", [1, 6])
def test_an_error_in_the_sampler(data, good):
    def keys():
        yield from [[0]] * good
        raise ZeroDivisionError("no more keys")

    with pytest.raises(ZeroDivisionError, match="no more keys"):
        list(loader_of(data, Squares(), batch_sampler=keys()))


def test_workers_do_not_wait_for_an_error_of_the_sampler_to_be_forgotten(children):
    with pytest.raises(TypeError) as caught:
        iter(loader_of(mt.utils.data, Squares(), batch_sampler=map(len, [1])))
    assert not children()
    del caught


# -- workers that die, or take too long ------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, None])
def test_a_worker_that_dies(data, signum):
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexp"):
        list(loader_of(data, Dying(signum), 2))


@pytest.mark.parametrize(
    ("signum", "story"), [(signal.SIGKILL, "killed by SIGKILL"), (None, "exit code 7")], ids=str
)
def test_how_it_died_is_said(signum, story, nothing_left):
    with pytest.raises(RuntimeError, match=f"exited unexpectedly: {story}"):
        list(loader_of(mt.utils.data, Dying(signum), 2))


def test_a_worker_killed_between_rounds(children):
    loader = loader_of(mt.utils.data, Squares(8), 2, persistent_workers=True)
    assert len(list(loader)) == 4
    children()[0].kill()
    with pytest.raises(RuntimeError, match="exited unexpectedly: killed by SIGKILL"):
        list(loader)
    assert len(list(loader)) == 4


def test_an_iterator_without_workers():
    iterator = iter(loader_of(mt.utils.data, Dying(), 1))
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        for _ in iterator:
            pass
    with pytest.raises(RuntimeError, match="the workers of this iterator have ended"):
        next(iterator)


def test_timeout(data):
    loader = loader_of(data, Sleeping(seconds=1), num_workers=1, timeout=0.2)
    iterator = iter(loader)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        next(iterator)


def test_a_worker_that_does_not_end_is_ended(monkeypatch, children):
    monkeypatch.setattr(_workers, "_PATIENCE", 0.1)
    loader = loader_of(mt.utils.data, Sleeping(), 1)
    iterator = iter(loader)
    del iterator
    assert not children()


# -- what comes, and what is left ------------------------------------------------------------------


def test_arrays_keep_their_kind():
    """Also those that may not be written, and large bytes."""

    def collate(batch):
        fixed = np.arange(10_000.0)
        fixed.flags.writeable = False
        columns = np.asfortranarray(np.ones((100, 100)))
        return fixed, columns, columns[::2], b"x" * 100_000, np.zeros(0), mt.zeros(0, 3)

    loader = loader_of(mt.utils.data, Squares(2), 2, collate_fn=collate)
    fixed, columns, part, text, empty, none = next(iter(loader))
    assert not fixed.flags.writeable and fixed[-1] == 9_999
    assert columns.flags.f_contiguous and columns.flags.writeable
    assert part.shape == (50, 100) and part.flags.writeable
    assert text == b"x" * 100_000 and empty.shape == (0,) and tuple(none.shape) == (0, 3)


@pytest.mark.parametrize("how", ["all", "early", "error", "dead", "persistent", "never"])
def test_nothing_is_left(how, nothing_left):
    dataset = {"error": Failing(ValueError()), "dead": Dying()}.get(how, Squares(40, (100, 100)))
    loader = loader_of(mt.utils.data, dataset, 2, persistent_workers=how == "persistent")
    iterator = iter(loader)
    try:
        if how == "never":
            return
        for _ in iterator:
            if how in ("early", "persistent"):
                break
    except (ValueError, RuntimeError):
        assert how in ("error", "dead")


# -- whole programs --------------------------------------------------------------------------------

PROGRAM = """
import glob, os, signal, sys, time, multiprocessing
from helpers.worker_data import Sleeping, Squares
from modtree.utils.data import DataLoader
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    kind, method, mark = sys.argv[1:]
    dataset = Sleeping(8, mark=mark) if kind == "sleeping" else Squares(1000, (100, 100))
    loader = DataLoader(
        dataset, 2, num_workers=2, multiprocessing_context=method, persistent_workers=kind == "exit"
    )
    iterator = iter(loader)
    try:
        if kind == "sleeping":
            while len(glob.glob(mark + "*")) < 2:
                time.sleep(0.01)
        else:
            next(iterator), next(iterator)
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
        if kind == "exit":
            sys.exit(3)
        if kind == "break":
            raise ValueError("left")
        if kind == "sleeping":
            next(iterator)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def run(tmp_path, kind, method):
    """The program in a process group of its own, and the pids of its workers."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    paths = [
        os.path.dirname(os.path.dirname(mt.__file__)),
        os.path.dirname(os.path.dirname(__file__)),
    ]
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            str(program),
            kind,
            method,
            str(tmp_path / "mark"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, [int(pid) for pid in process.stdout.readline().split()]


def all_gone(pids):
    """Waits until these processes have ended."""

    def running(pid):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    end = time.monotonic() + 30
    while any(map(running, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")


@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(("kind", "code"), [("exit", 3), ("break", 1)])
def test_the_end_of_a_program(tmp_path, kind, code, method):
    before = shared_files()
    process, pids = run(tmp_path, kind, method)
    _, errors = process.communicate(timeout=HANGS_AFTER)
    assert process.returncode == code
    lines = errors.strip().splitlines()
    assert lines[-1:] == (["ValueError: left"] if kind == "break" else [])
    assert "Exception ignored" not in errors and "resource_tracker" not in errors
    assert len(pids) == 2 and all_gone(pids)
    assert left_in_shared_memory(before) == set()


@needs_proc
@pytest.mark.parametrize("kind", ["waiting", "sleeping"])
def test_ctrl_c(tmp_path, kind):
    """Reaches the program and its workers; the workers say nothing."""
    process, pids = run(tmp_path, kind, "fork")
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=HANGS_AFTER)
    assert (process.returncode, output.strip(), errors) == (0, "interrupted", "")
    assert len(pids) == 2 and all_gone(pids)


@pytest.mark.slow(keep=1)
@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_when_their_program_is_killed(tmp_path, method):
    before = shared_files()
    process, pids = run(tmp_path, "waiting", method)
    process.kill()
    process.communicate(timeout=HANGS_AFTER)
    assert len(pids) == 2 and all_gone(pids)
    assert left_in_shared_memory(before) == set()
