# SPDX-License-Identifier: BSD-3-Clause
"""Backward passes that run inside of each other, or by turns in one thread."""

from __future__ import annotations

import contextvars
import gc
import importlib
import threading

import pytest
from helpers.implementations import not_under_a_sanitizer
from helpers.needs import needs

import modtree as mt
from modtree import _C


def test_a_pass_within_a_pass_runs_the_hook_once_for_each(lib):
    a, b = lib.ones(1, requires_grad=True), lib.ones(1, requires_grad=True)
    seen = []

    def run_another(gradient):
        other.backward()

    lib.autograd.graph.register_multi_grad_hook((a, b), seen.append, mode="any")
    other = (a * b).sum()
    x, y = a * 2, b * 3
    x.register_hook(run_another)
    (x + y).sum().backward()
    assert len(seen) == 2


def test_a_context_that_outlives_the_pass_has_none():
    x = mt.ones(1, requires_grad=True)
    contexts, numbers = [], []

    def hook(gradient):
        contexts.append(contextvars.copy_context())
        numbers.append(_C.current_backward_id())
        numbers.append(contexts[0].run(_C.current_backward_id))

    (x * 2).register_hook(hook)
    y = x * 2
    y.register_hook(hook)
    y.backward()
    assert numbers[0] == numbers[1] > 0
    assert contexts[0].run(_C.current_backward_id) == _C.current_backward_id() == -1


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_finalizer_runs_a_pass_while_gradients_are_gathered(mode):
    a, b = mt.ones(1, requires_grad=True), mt.ones(1, requires_grad=True)
    seen, left = [], [20]
    mt.autograd.graph.register_multi_grad_hook((a, b), lambda _: seen.append(None), mode=mode)

    class Last:
        def __init__(self):
            self.itself = self

        def __del__(self):
            if left[0]:
                left[0] -= 1
                Last()
                with mt.enable_grad():
                    (a * b).sum().backward()

    def run():
        Last()
        (a + b).sum().backward()

    threshold = gc.get_threshold()
    thread = threading.Thread(target=run, daemon=True)
    gc.set_threshold(1)
    try:
        thread.start()
        thread.join(60)
    finally:
        left[0] = 0
        gc.set_threshold(*threshold)
    assert not thread.is_alive()
    assert seen


# -- greenlets: they share a thread, and end in any order ------------------------------------------


def by_turns(*functions):
    """Runs each in a greenlet of its own, to the next ``pause()`` and on, in turn."""
    greenlet = importlib.import_module("greenlet")
    running = [greenlet.greenlet(function) for function in functions]
    with mt.enable_grad():  # the mode is the thread's, as in torch
        while running := [each for each in running if not each.dead]:
            for each in running:
                each.switch()


def pause(*_):
    import greenlet  # by_turns() has found it

    greenlet.getcurrent().parent.switch()


@not_under_a_sanitizer
@needs("greenlet")
@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_run_once_for_each_of_two_passes_by_turns(mode):
    a, b = mt.ones(1, requires_grad=True), mt.ones(1, requires_grad=True)
    graphs, seen, numbers = [], [], []
    mt.autograd.graph.register_multi_grad_hook((a, b), seen.append, mode=mode)

    def hook(gradient):
        before = _C.current_backward_id()
        pause()
        numbers.append((before, _C.current_backward_id()))

    for _ in range(2):
        x, y = a * 2, b * 3
        x.register_hook(hook)
        y.register_hook(hook)
        graphs.append((x + y).sum())
    by_turns(graphs[0].backward, graphs[1].backward)
    assert len(seen) == 2
    assert len(numbers) == 4 and all(before == after for before, after in numbers)
    assert _C.current_backward_id() == -1


@not_under_a_sanitizer
@needs("greenlet")
def test_passes_by_turns_are_searched_for_nan():
    class Slow(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            pause()
            return gradient * 2

    leaves = [mt.ones(1, requires_grad=True) for _ in range(2)]
    with pytest.warns(UserWarning, match="Anomaly Detection"), mt.autograd.detect_anomaly():
        graphs = [Slow.apply(x).sum() for x in leaves]
        by_turns(graphs[0].backward, graphs[1].backward)
    assert [x.grad.tolist() for x in leaves] == [[2], [2]]
