# SPDX-License-Identifier: BSD-3-Clause
"""Operations that would take for ever, each stopped by a signal. A line for each operation, with
the error that stopped it, is printed for ``tests/module/test_interrupts.py``.

    python tests/isolated/interrupts.py modtree|modtree-torch|torch alarm|thread
"""

from __future__ import annotations

import _thread
import pathlib
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from helpers.implementations import implementation  # noqa: E402
from helpers.util import param, tensor  # noqa: E402

LEVELS = 120  # as many paths as 2 has to the power of that
DELAY = 0.1


def levels(i):
    """A module that leads to each of the two modules of the next level in two ways."""
    left = right = i.nn.Module()
    left.w = param(i)
    left.register_buffer("b", tensor(i))
    for _ in range(LEVELS):
        above = i.nn.Module(), i.nn.Module()
        for module in above:
            module.left, module.right = left, right
        left, right = above
    return left


def items(module):
    return module._parameters.items()


OPERATIONS = {
    "train": lambda m: m.train(False),
    "eval": lambda m: m.eval(),
    "apply": lambda m: m.apply(id),
    "_apply": lambda m: m._apply(lambda t: t),
    "state_dict": lambda m: m.state_dict(),
    "load_state_dict": lambda m: m.load_state_dict({}),
    "modules": lambda m: list(m.modules(remove_duplicate=False)),
    "named_modules": lambda m: list(m.named_modules(remove_duplicate=False)),
    "named_parameters": lambda m: list(m.named_parameters(remove_duplicate=False)),
    "named_buffers": lambda m: list(m.named_buffers(remove_duplicate=False)),
    "_named_members": lambda m: list(m._named_members(items, remove_duplicate=False)),
}


def interrupt(how):
    if how == "alarm":
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, DELAY)
    else:
        threading.Timer(DELAY, _thread.interrupt_main).start()


def main():
    i, how = implementation(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells ignore it
    for name, operation in OPERATIONS.items():
        if i.is_torch and name == "modules":
            continue  # takes no arguments there
        m = levels(i)
        interrupt(how)
        try:
            operation(m)
            outcome = "done"
        except KeyboardInterrupt as stopped:
            outcome = type(stopped).__name__
            del stopped
        m.left = m.right = None  # the tree is whole: what is left of it works
        m.add_module("again", i.nn.Module())
        assert len(m.eval().state_dict()) == 0 and not m.again.training
        print(name, outcome, flush=True)


main()
