# SPDX-License-Identifier: BSD-3-Clause
"""Daemon threads that are in native code when the process exits: CPython before 3.14 ends them by
unwinding their stacks.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from helpers.limits import HANGS_AFTER

PROGRAM = """
    import threading
    import time

    import modtree as mt
    from modtree import nn

    started = threading.Event()

    def stay(*args):
        started.set()
        while True:
            time.sleep(0.001)

    class Stays(nn.Module):
        forward = stay

    m = Stays()

    def apply():
        m.apply(stay)

    def call():
        m(1)

    def hook():
        m.register_forward_pre_hook(stay)
        m(1)

    def convert():
        m.register_parameter("p", nn.Parameter(mt.ones(2)))
        m._apply(stay)

    def state_dict():
        m.register_state_dict_pre_hook(stay)
        m.state_dict()

    def load():
        m.register_load_state_dict_pre_hook(stay)
        m.load_state_dict({})

    def walk():
        class Items(dict):
            items = values = stay
        m._parameters = Items()
        list(m.named_parameters())

    def tensor_hook():
        x = mt.ones(2, requires_grad=True)
        x.register_hook(stay)
        (x * 2).sum().backward()

    def custom_backward():
        class Double(mt.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            backward = staticmethod(stay)

        Double.apply(mt.ones(2, requires_grad=True)).sum().backward()

    def override():
        class Stays(mt.Tensor):
            __torch_function__ = classmethod(stay)

        mt.cat([mt.ones(1), mt.ones(1).as_subclass(Stays)])

    def deepcopy():
        import copy

        class Slow:
            __deepcopy__ = stay

        m.slow = Slow()
        copy.deepcopy(m)

    threading.Thread(target={where}, daemon=True).start()
    started.wait()
"""


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    "where",
    [
        "apply",
        "call",
        "hook",
        "convert",
        "state_dict",
        "load",
        "walk",
        "tensor_hook",
        "custom_backward",
        "override",
        "deepcopy",
    ],
)
def test_a_daemon_thread_does_not_end_the_process_by_a_signal(where):
    program = textwrap.dedent(PROGRAM).replace("{where}", where)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=HANGS_AFTER)
    assert (done.returncode, done.stderr) == (0, b"")
