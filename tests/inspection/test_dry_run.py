# SPDX-License-Identifier: BSD-3-Clause
"""The forward of a summary leaves the model as it was, also when it raises."""

from __future__ import annotations

import importlib
import random
import threading

import numpy as np
import pytest
from helpers.seen_models import models

import modtree as mt
from modtree import nn


def no_hooks(impl):
    """No hook for all modules is left, in modtree's file and in torch's."""
    files = {"modtree.core.module", impl.module.__name__}
    for file in map(importlib.import_module, files):
        assert not file._global_forward_hooks
        assert not file._global_forward_pre_hooks


def test_it_runs_in_evaluation_mode_and_restores_each_mode(impl):
    model = models(impl).Stack(3, 3)
    model.layers[1].eval()
    model.layers[1].scale.train()
    before = [module.training for module in model.modules()]
    assert set(before) == {True, False}
    mt.summary(model, (2, 3), times=2)
    assert [module.training for module in model.modules()] == before
    assert int(model.layers[0].shift.calls[0]) == 0  # which counts in training
    no_hooks(impl)


def test_a_module_in_a_list_runs_in_evaluation_mode_as_well(impl):
    kinds = models(impl)

    class Hides(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = [kinds.Shift(3)]

        def forward(self, x):
            return self.parts[0](x)

    model = Hides()
    mt.summary(model, example=impl.lib.zeros(2, 3))
    assert model.parts[0].training
    assert int(model.parts[0].calls[0]) == 0


def test_a_train_of_the_users_is_not_called(impl):
    class Frozen(impl.nn.Module):
        def train(self, mode=True):
            raise AssertionError("called")

        def forward(self, x):
            assert not self.training
            return x

    mt.summary(Frozen(), example=impl.lib.zeros(2))


def test_buffers_keep_their_values_and_stay_the_same_objects(impl):
    class Writes(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("in_place", impl.lib.zeros(2))
            self.register_buffer("replaced", impl.lib.zeros(2))
            self.register_buffer("late", None)

        def forward(self, x):
            self.in_place.add_(1)
            self.replaced = self.replaced + 1
            self.late = x
            return x + self.in_place

    model = Writes()
    in_place, replaced = model.in_place, model.replaced
    mt.summary(model, (2,), times=1)
    assert model.in_place is in_place
    assert model.replaced is replaced
    assert model.late is None
    assert in_place.tolist() == replaced.tolist() == [0.0, 0.0]


def test_buffers_are_kept_in_inference_mode(torch):
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            with torch.inference_mode():
                self.calls.add_(1)
            return x

    outside = Counts()
    with torch.inference_mode():
        inside = Counts()
        for model in (inside, outside):
            mt.summary(model, (2,))
    mt.summary(inside, (2,))
    assert inside.calls.tolist() == outside.calls.tolist() == [0.0]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_buffers_made_in_inference_mode_and_of_a_scripted_module(torch):
    with torch.inference_mode():
        norm = torch.nn.BatchNorm1d(2)
    scripted = torch.jit.script(torch.nn.BatchNorm1d(2))
    for model in (norm, scripted):
        assert mt.summary(model, (3, 2)).to_dict()["modules"][0]["output"] == (3, 2)
        assert model.training
        assert int(model.num_batches_tracked) == 0


def test_random_numbers_go_on_from_where_they_were(impl):
    class Draws(impl.nn.Module):
        def forward(self, x):
            random.random(), np.random.rand(), mt.rand(1), impl.lib.rand(1)
            return x

    def drawn():
        numbers = random.random(), np.random.rand(), mt.rand(1).item(), impl.lib.rand(1).item()
        return numbers

    def seed():
        random.seed(1), np.random.seed(1), mt.manual_seed(1), impl.lib.manual_seed(1)

    seed()
    expected = drawn()
    seed()
    mt.summary(Draws(), (2,), times=1)
    assert drawn() == expected


def test_nothing_is_recorded(impl):
    seen = []

    class Looks(models(impl).Scale):
        def forward(self, x):
            seen.append(super().forward(x).requires_grad)
            return x

    mt.summary(Looks(2), (2,))
    assert seen == [False]


def test_a_forward_that_raises_is_told_by_its_place(impl):
    kinds = models(impl)
    model = kinds.Stack(3, 3)
    before = [module.training for module in model.modules()]
    with pytest.raises(RuntimeError, match=r"stopped in 'layers.0.scale' \(Scale\)") as caught:
        mt.summary(model, (2, 4))
    assert "called with (2, 4)" in str(caught.value)
    assert "example=" in str(caught.value)
    assert caught.value.__cause__ is not None
    assert [module.training for module in model.modules()] == before
    no_hooks(impl)
    assert mt.summary(model).parameters == 21  # without shapes it is there all the same


def test_arguments_that_the_model_does_not_take(impl):
    with pytest.raises(RuntimeError, match=r"stopped in the model, called with y=\(2, 3\): Type"):
        mt.summary(models(impl).Scale(3), {"y": (2, 3)})
    no_hooks(impl)


def test_the_innermost_module_that_did_not_end_is_named(impl):
    kinds = models(impl)

    class Catches(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.wrong = kinds.Scale(7)
            self.right = kinds.Scale(3)

        def forward(self, x):
            try:
                self.wrong(x)
            except Exception:
                x = self.right(x)
            raise ValueError("late")

    with pytest.raises(RuntimeError, match=r"stopped in the model, called with .*ValueError: late"):
        mt.summary(Catches(), (2, 3))


def test_an_exception_that_was_caught_does_not_count(impl):
    kinds = models(impl)

    class Catches(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.wrong = kinds.Scale(7)
            self.right = kinds.Scale(3)

        def forward(self, x):
            try:
                return self.wrong(x)
            except Exception:
                return self.right(x)

    found = {line["name"]: line for line in mt.summary(Catches(), (2, 3)).to_dict()["modules"]}
    assert (found["wrong"]["output"], found["right"]["output"]) == (None, (2, 3))
    assert found["Catches"]["output"] == (2, 3)


def test_interrupts_pass_and_leave_nothing_behind(impl):
    class Interrupted(impl.nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        mt.summary(model, example=impl.lib.zeros(1))
    assert model.training
    no_hooks(impl)


def test_hooks_of_the_user_run_and_stay(impl):
    model = models(impl).Scale(3)
    seen = []
    model.register_forward_hook(lambda *call: seen.append(1))
    mt.summary(model, (2, 3))
    assert seen == [1]
    assert len(model._forward_hooks) == 1


def test_calls_of_other_threads_are_not_counted():
    other = nn.ReLU()

    class Starts(nn.Module):
        def __init__(self):
            super().__init__()
            self.other = other

        def forward(self, x):
            thread = threading.Thread(target=other, args=(x,))
            thread.start()
            thread.join()
            return x

    found = mt.summary(Starts(), (2,)).to_dict()["modules"]
    assert [line["calls"] for line in found] == [1, 0]
