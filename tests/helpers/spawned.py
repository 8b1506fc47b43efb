# SPDX-License-Identifier: BSD-3-Clause
"""What processes of tests/utils/test_multiprocessing.py run; pickle finds it by its name."""

from __future__ import annotations

import os
import time


def note(i, queue, tensor):
    queue.put((i, os.getpid(), tensor.sum().item()))


def fail(i, which):
    if i == which:
        raise ValueError(f"process {i} is unlucky")
    time.sleep(60)


def leave(i, code):
    os._exit(code)
