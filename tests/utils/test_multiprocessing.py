# SPDX-License-Identifier: BSD-3-Clause
"""A function in several processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle

import pytest
from helpers import spawned

import modtree as mt
import modtree.multiprocessing as mp


def test_a_function_runs_in_every_process():
    queue = mp.get_context("spawn").SimpleQueue()
    assert mp.spawn(spawned.note, args=(queue, mt.ones(3)), nprocs=2) is None
    found = sorted(queue.get() for _ in range(2))
    assert [(i, total) for i, _, total in found] == [(0, 3.0), (1, 3.0)]
    assert os.getpid() not in {pid for _, pid, _ in found}


def test_an_exception_comes_back_and_stops_the_others():
    with pytest.raises(mp.ProcessRaisedException, match="process 1 is unlucky") as caught:
        mp.spawn(spawned.fail, args=(1,), nprocs=2)
    assert caught.value.error_index == 1 and "Traceback" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert multiprocessing.active_children() == []


def test_a_process_that_leaves():
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with exit code 7"):
        mp.spawn(spawned.leave, args=(7,))


def test_without_waiting():
    context = mp.start_processes(spawned.leave, args=(0,), nprocs=1, join=False)
    assert len(context.pids()) == 1 and context.pids()[0] != os.getpid()
    while not context.join():
        pass


def test_the_names_of_python_are_there(lib):
    part = lib.multiprocessing
    assert part.Process is multiprocessing.Process and part.cpu_count() >= 1
    assert part.get_sharing_strategy() in part.get_all_sharing_strategies()
