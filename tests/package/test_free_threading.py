# SPDX-License-Identifier: BSD-3-Clause
"""On a CPython that can run without the GIL."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import modtree
from modtree import nn

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded CPython"
)
RUNS_WITHOUT = sys.version_info >= (3, 14)
without_gil = pytest.mark.skipif(
    not RUNS_WITHOUT or getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="needs a run without the GIL",
)


def called_by_a_thread(module: Callable[[int], Any], times: int = 1) -> Any:
    """What the last call module(1) gives."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(module(1) for _ in range(times)))
    thread.start()
    thread.join()
    assert len(results) == times
    return results[-1]


def test_the_import_leaves_the_gil_as_it_is():
    code = (
        "import sys, numpy; print(sys._is_gil_enabled());"
        "import modtree; print(sys._is_gil_enabled())"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", str(not RUNS_WITHOUT)]
    assert ("RuntimeWarning" in done.stderr) is not RUNS_WITHOUT


class Identity(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


@without_gil
def test_a_module_that_one_thread_calls_ends_with_its_last_reference():
    module = Identity()
    for _ in range(1000):
        module(1)
    ended = weakref.ref(module)
    del module
    assert ended() is None


@without_gil
def test_a_module_that_another_thread_calls_a_few_times_ends_with_its_last_reference():
    module = Identity()
    called_by_a_thread(module, 50)
    ended = weakref.ref(module)
    del module
    assert ended() is None


@without_gil
def test_the_collector_ends_a_module_that_another_thread_calls_often():
    module = Identity()
    assert called_by_a_thread(module, 1000) == 1
    ended = weakref.ref(module)
    del module
    gc.collect()
    assert ended() is None


@without_gil
def test_what_was_replaced_ends_when_the_call_is_over():
    tensor = modtree.ones(3, requires_grad=True)
    tensor.grad = modtree.ones(3)
    ended = weakref.ref(tensor.grad)
    tensor.grad = None
    assert ended() is None
    module = nn.Linear(2, 2)
    module.__dict__["kept"] = Identity()
    ended = weakref.ref(module.kept)
    module.__dict__ = {}
    assert ended() is None


@without_gil
def test_a_patched_forward_is_seen_by_every_thread():
    class Patched(Identity):
        pass

    module = Patched()
    assert module(1) == 1 and called_by_a_thread(module) == 1
    Patched.forward = lambda self, x: 2 * x
    assert module(1) == 2 and called_by_a_thread(module) == 2


@without_gil
def test_hooks_that_one_thread_adds_run_in_calls_of_another():
    module = Identity()
    assert called_by_a_thread(module) == 1
    handle = module.register_forward_hook(lambda module, args, output: output + 1)
    assert called_by_a_thread(module) == 2
    handle.remove()
    assert called_by_a_thread(module) == 1
    module.__dict__  # noqa: B018  # its registries lie there from now on
    module.register_forward_hook(lambda module, args, output: output + 1)
    assert called_by_a_thread(module) == 2


@without_gil
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_forked_child_lets_go_of_what_was_replaced():
    """Also where a thread of the parent was in native code, which waits for a lock of a dict."""
    code = """
import os, sys, threading, weakref
import modtree
from modtree import nn

class Name(str):
    __hash__ = str.__hash__
    def __eq__(self, other):
        waits.set()
        go_on.wait()
        return str.__eq__(self, other)

waits, go_on = threading.Event(), threading.Event()
module = nn.Module()
module.__dict__[Name("note")] = 1
thread = threading.Thread(target=lambda: module.note, daemon=True)
thread.start()
waits.wait()
child = os.fork()
if child == 0:
    tensor = modtree.ones(3, requires_grad=True)
    tensor.grad = modtree.ones(3)
    ended = weakref.ref(tensor.grad)
    tensor.grad = None
    os._exit(0 if ended() is None else 1)
_, status = os.waitpid(child, 0)
go_on.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
