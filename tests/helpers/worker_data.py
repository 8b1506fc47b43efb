# SPDX-License-Identifier: BSD-3-Clause
"""Datasets for loaders with workers; importable, so that spawned workers find them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time

import numpy as np


class Squares:
    """Numbers and arrays, some of them large enough for shared memory."""

    def __init__(self, n=12, shape=(64, 64)):
        self.n, self.shape = n, shape

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"square": i * i, "plane": np.full(self.shape, i, np.float32), "text": str(i)}


class Late(Squares):
    """The first sample waits for ``made``, which the sample ``sets`` sets; in forked workers."""

    def __init__(self, n, sets=None):
        super().__init__(n)
        self.sets = sets
        self.made = multiprocessing.get_context("fork").Event()

    def __getitem__(self, i):
        if i == 0 and not self.made.wait(60):
            raise TimeoutError("nobody set it")
        if i == self.sets:
            self.made.set()
        return i


class Failing(Squares):
    def __init__(self, error):
        super().__init__(8)
        self.error = error

    def __getitem__(self, i):
        if i == 3:
            raise self.error
        return i


class TwoArguments(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


class Dying(Squares):
    """One sample ends its process."""

    def __init__(self, signum=signal.SIGKILL):
        super().__init__(8)
        self.signum = signum

    def __getitem__(self, i):
        if i == 3:
            if self.signum is None:
                os._exit(7)
            os.kill(os.getpid(), self.signum)
        return i


class Sleeping(Squares):
    """No sample comes; a file tells that a worker waits for one."""

    def __init__(self, n=12, seconds=60, mark=None):
        super().__init__(n)
        self.seconds, self.mark = seconds, mark

    def __getitem__(self, i):
        if self.mark is not None:
            with open(f"{self.mark}{os.getpid()}", "w"):
                pass
        time.sleep(self.seconds)


class Workers(Squares):
    """Which process made a sample, and what its random numbers are."""

    def __init__(self, data, lib=None, n=8):
        super().__init__(n)
        self.data, self.lib = data, lib

    def __getitem__(self, i):
        info = self.data.get_worker_info()
        drawn = (random.random(), float(np.random.rand()), float(self.lib.rand(()).item()))
        return os.getpid(), info.id, info.num_workers, info.seed, drawn, info.dataset is self


class Unpicklable(Squares):
    def __getitem__(self, i):
        return lambda: i


def same(batch):
    return batch


def sum_of_squares(batch):
    return sum(sample["square"] for sample in batch)


def fail_to_start(worker):
    if worker == 1:
        raise OSError(f"worker {worker} finds no file")
