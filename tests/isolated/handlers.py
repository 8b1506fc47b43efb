# SPDX-License-Identifier: BSD-3-Clause
"""Signals while a large tree is walked, loaded or copied; ``tests/module/test_interrupts.py`` runs
it. A crash or a failed assertion ends it with an exit status.

    python tests/isolated/handlers.py modtree|modtree-torch load|change|backward
"""

from __future__ import annotations

import copy
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from helpers.implementations import implementation  # noqa: E402
from helpers.util import one, param, tensor  # noqa: E402

ATTEMPTS = 15


def blocks(i, count, parameters=2):
    root = i.nn.Module()
    for n in range(count):
        block = i.nn.Module()
        block.inner = i.nn.Module()
        for p in range(parameters):
            block.inner.register_parameter(f"p{p}", param(i, 0.0))
        block.inner.register_buffer("b", tensor(i, 0.0))
        root.add_module(str(n), block)
    return root


def duration(operation, clock=time.perf_counter):
    begin = clock()
    operation()
    return clock() - begin


def load(i):
    """Stopped at any moment, a load of native modules has written all or nothing."""
    m = blocks(i, 4000)
    states = [m.state_dict(), {}]
    states[0] = {k: v.clone() for k, v in states[0].items()}
    states[1] = {k: v + 1 for k, v in states[0].items()}
    long = duration(lambda: m.load_state_dict(states[0]))
    stopped = 0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for attempt in range(ATTEMPTS):
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-4, long * attempt / ATTEMPTS))
            m.load_state_dict(states[attempt % 2])
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            stopped += 1
        values = {one(v) for v in m.state_dict().values()}
        assert len(values) == 1, values
    assert stopped, "no signal came in time"


def change(i):
    """Handlers that change the tree that is walked; also with references that only it had."""
    rng = random.Random(0)

    def shake(*_):
        for _ in range(3):
            where = rng.choice([root, *list(root._modules.values())[:50]])
            kind = rng.randrange(5)
            if kind == 0:
                where._modules.pop(next(iter(where._modules), None), None)
            elif kind == 1:
                where.add_module(f"n{rng.random()}".replace(".", ""), i.nn.Module())
            elif kind == 2:
                where.__dict__  # noqa: B018  # looked at, it is in the other mode
            elif kind == 3:
                where._modules = dict(where._modules)
            else:
                where.register_parameter(f"q{rng.randrange(3)}", param(i))

    operations = [
        lambda m: m.train(rng.random() < 0.5),
        lambda m: m.apply(id),
        lambda m: m._apply(lambda t: t),
        lambda m: m.zero_grad(),
        lambda m: m.requires_grad_(rng.random() < 0.5),
        lambda m: m.state_dict(),
        lambda m: m.load_state_dict(dict(state), strict=False),
        lambda m: list(m.modules()),
        lambda m: list(m.named_modules(remove_duplicate=False)),
        lambda m: list(m.named_parameters()),
        lambda m: list(m.named_buffers()),
        lambda m: list(m.children()),
        copy.deepcopy,
    ]
    signal.signal(signal.SIGALRM, shake)
    for n in range(2 * len(operations)):
        root = blocks(i, 1000)
        state = root.state_dict()
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
        try:
            operations[n % len(operations)](root)
        except (RuntimeError, KeyError, AttributeError) as error:
            assert "Error(s) in loading" in str(error) or "during iteration" in str(error), error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def backward(i):
    """A pass over a long graph stops before its end, and the next one is right.

    The timer counts the time of this process, since others may hold up a pass or its measuring.
    """
    x = i.lib.ones(1, requires_grad=True)
    y = x
    for _ in range(300_000):
        y = y + 0.0  # whose gradient passes unchanged, without Python code
    long = duration(lambda: y.backward(retain_graph=True), time.process_time)
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    for part in (0.1, 0.9, 0.8, 0.7, 0.6, 0.5):
        x.grad = None
        try:
            signal.setitimer(signal.ITIMER_PROF, part * long)
            y.backward(retain_graph=True)
            signal.setitimer(signal.ITIMER_PROF, 0)
        except KeyboardInterrupt:
            if x.grad is None and part != 0.1:
                break
    else:
        raise SystemExit("no pass was stopped")
    y.backward()
    assert one(x.grad) == 1


{"load": load, "change": change, "backward": backward}[sys.argv[2]](implementation(sys.argv[1]))
