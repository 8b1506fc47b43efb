# SPDX-License-Identifier: BSD-3-Clause
"""The number of threads, and what must not disturb them: forks, other threads, signals, the end of
the process. That the bits are the same is tested in tests/ops/test_kernels_threads.py.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree._C import kernels
from modtree.numpy.tensor import blas_threads

X = np.linspace(-3, 3, 1_000_000, dtype=np.float32)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@pytest.fixture
def threads():
    """Several threads, all of them at work; and the number of before afterwards."""
    before = mt.get_num_threads()
    mt.set_num_threads(3)
    kernels.gelu(X)
    yield 3
    mt.set_num_threads(before)


def result():
    return kernels.gelu(X).tobytes()


# -- the setting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, np.int64(3)])
def test_what_is_set_is_got(lib, count):
    before = lib.get_num_threads()
    try:
        assert lib.set_num_threads(count) is None
        assert lib.get_num_threads() == count
        assert type(lib.get_num_threads()) is int
    finally:
        lib.set_num_threads(before)


@pytest.mark.parametrize("name", ["set_num_threads", "set_num_interop_threads"])
@pytest.mark.parametrize("wrong", [0, -1, True, "a", 2.5, None])
def test_wrong_numbers(lib, name, wrong):
    before = lib.get_num_threads()
    kind = "a positive integer" if type(wrong) is int else f"an int, but got {type(wrong).__name__}"
    with pytest.raises(RuntimeError, match=f"{name} expects {kind}"):
        getattr(lib, name)(wrong)
    assert lib.get_num_threads() == before


def test_huge_numbers(lib):
    before = lib.get_num_threads()
    with pytest.raises(ValueError):
        lib.set_num_threads(10**12)
    assert lib.get_num_threads() == before


def test_arguments(lib):
    for call in (
        lambda: lib.set_num_threads(),
        lambda: lib.set_num_threads(1, 2),
        lambda: lib.set_num_threads(num=1),
        lambda: lib.get_num_threads(1),
    ):
        with pytest.raises(TypeError):
            call()


def in_a_process(code, **variables):
    """What the program prints, and its errors."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "2"},
        {"OMP_NUM_THREADS": "1000"},
        {"OMP_NUM_THREADS": "x"},
        {"OMP_NUM_THREADS": "0"},
        {"MKL_NUM_THREADS": "1"},
        {"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"},
        {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"},
        {"OPENBLAS_NUM_THREADS": "1"},
    ],
    ids=lambda v: "-".join(f"{k[:3]}{n}" for k, n in v.items()) or "unset",
)
def test_default(lib, variables):
    code = f"import {lib.__name__} as lib; print(lib.get_num_threads())"
    asked = variables.get("MKL_NUM_THREADS", variables.get("OMP_NUM_THREADS", ""))
    got = int(in_a_process(code, **variables)[0])
    if asked.isdigit() and 0 < int(asked) <= got:
        assert got == int(asked)
    else:
        assert 1 <= got <= CORES


def test_products_use_as_many(threads):
    if blas_threads.get_blas_threads() is None:
        pytest.skip("NumPy's library does not tell how many threads it uses")
    mt.set_num_threads(1)
    assert blas_threads.get_blas_threads() == 1
    mt.set_num_threads(2)
    # A library may have been built for one thread.
    assert blas_threads.get_blas_threads() in (1, 2)


def test_products_as_the_environment_says_until_a_number_is_set():
    code = (
        "import modtree as mt\n"
        "from modtree.numpy.tensor.blas_threads import get_blas_threads as got\n"
        "print(got())"
    )
    assert in_a_process(code, OPENBLAS_NUM_THREADS="1")[0] in ("1", "None")


def test_no_library(monkeypatch, threads):
    monkeypatch.setattr(blas_threads, "_found", [])
    monkeypatch.setattr(blas_threads, "_paths", lambda: iter(["/nowhere/libopenblas.so"]))
    mt.set_num_threads(2)
    assert mt.get_num_threads() == 2 and blas_threads.get_blas_threads() is None


# -- what must not disturb -------------------------------------------------------------------------


def test_many_python_threads(threads):
    expected, wrong = result(), []

    def work():
        for _ in range(20):
            if result() != expected:
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for count in (1, 2, 5, 3):
        mt.set_num_threads(count)
    for worker in workers:
        worker.join()
    assert not wrong


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork(threads):
    expected = result()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            os._exit(0 if result() == expected and mt.get_num_threads() == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert result() == expected


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_works(threads):
    expected, stop = result(), threading.Event()

    def work():
        while not stop.is_set():
            kernels.gelu(X)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(120)
                os._exit(0 if result() == expected else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_of_multiprocessing(threads):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_gelu_sum, range(4)) == [float(kernels.gelu(X).sum())] * 4


def _gelu_sum(_):
    return float(kernels.gelu(X).sum())


class Threads:
    """A data set that says how many threads its worker has."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        kernels.gelu(X)
        return mt.get_num_threads()


def test_workers_of_data_loaders_have_one(threads):
    found = list(mt.utils.data.DataLoader(Threads(), num_workers=2, batch_size=None))
    assert found == [1] * 4
    assert mt.get_num_threads() == 3


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_signals_reach_the_main_thread(threads):
    """Python's handler runs between kernels, and an error that it raises arrives."""

    class Alarm(Exception):
        pass

    def handler(*_):
        assert threading.current_thread() is threading.main_thread()
        kernels.gelu(X)
        raise Alarm

    expected = result()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(5):
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                while True:
                    kernels.gelu(X)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert result() == expected


START = (
    "import threading, os, numpy as np, modtree as mt\n"
    "from modtree._C import kernels\n"
    "x = np.ones(1_000_000, np.float32)\n"
    "mt.set_num_threads(3)\n"
    "kernels.gelu(x)\n"
)


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "os._exit(0)",
        "raise SystemExit",
        # A thread is at work when the interpreter ends.
        "def work():\n"
        "    while True:\n"
        "        kernels.gelu(x)\n"
        "threading.Thread(target=work, daemon=True).start()",
        # A kernel runs among the last things.
        "import atexit; atexit.register(kernels.gelu, x)",
    ],
    ids=["end", "_exit", "SystemExit", "daemon", "atexit"],
)
def test_end_of_the_process(end):
    assert in_a_process(START + end) == ("", "")
