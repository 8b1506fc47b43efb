# SPDX-License-Identifier: BSD-3-Clause
"""Daemon threads that are in native code when the process exits: CPython before 3.14 ends them by
unwinding their stacks.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import threading
    import time

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

    threading.Thread(target={where}, daemon=True).start()
    started.wait()
"""


@pytest.mark.parametrize("where", ["apply", "call", "hook"])
def test_a_daemon_thread_does_not_end_the_process_by_a_signal(where):
    program = textwrap.dedent(PROGRAM).replace("{where}", where)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
