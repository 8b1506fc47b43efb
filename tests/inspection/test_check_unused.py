# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.check`` with an example: what a forward does not touch, and what it makes itself."""

from __future__ import annotations

import importlib

import pytest
from helpers.seen_models import models

import modtree as mt


def found(model, example):
    return [(finding.path, finding.kind) for finding in mt.check(model, example)]


def test_all_is_used(impl):
    assert found(models(impl).Stack(2, 3), impl.lib.ones(1, 2)) == []


def test_a_module_that_is_not_called(impl):
    model = models(impl).Stack(2, 2)
    model.extra = models(impl).Block(2)
    findings = mt.check(model, impl.lib.ones(1, 2))
    assert [(f.path, f.kind) for f in findings] == [("extra", "unused-parameter")]
    assert "depends on 2 parameters of this Block, which is not called" in findings[0].message


def test_a_parameter_of_a_module_that_is_called(impl):
    model = models(impl).Scale(2)
    model.extra = impl.nn.Parameter(impl.lib.ones(2))
    findings = mt.check(model, impl.lib.ones(1, 2))
    assert [(f.path, f.kind) for f in findings] == [("extra", "unused-parameter")]
    assert "is not called" not in findings[0].message


def test_a_result_that_is_dropped(impl):
    class Drops(models(impl).Block):
        def forward(self, x):
            self.shift(x)
            return self.scale(x)

    assert found(Drops(2), impl.lib.ones(1, 2)) == [("shift", "unused-parameter")]


def test_a_gradient_that_is_cut_off(impl):
    class Cuts(models(impl).Block):
        def forward(self, x):
            return self.shift(self.scale(x).detach())

    assert found(Cuts(2), impl.lib.ones(1, 2)) == [("scale", "unused-parameter")]


def test_frozen_parameters_are_used_where_their_module_is_called(impl):
    model = models(impl).Stack(2, 2)
    model.extra = models(impl).Scale(2)
    model.lists = impl.nn.ModuleList([models(impl).Scale(2)])
    model.requires_grad_(False)
    model.last.requires_grad_(True)
    # `extra` may be used by the module around it, without a call.
    assert found(model, impl.lib.ones(1, 2)) == [("lists", "unused-parameter")]


def test_a_model_without_gradients_is_judged_by_its_calls(impl):
    class Picks(models(impl).Stack):
        def forward(self, x):
            return super().forward(x)[0].argmax()

    model = Picks(2, 2)
    model.lists = impl.nn.ModuleList([models(impl).Scale(2)])
    assert found(model, impl.lib.ones(1, 2)) == [("lists", "unused-parameter")]


def test_what_works_in_training_only_is_used(impl):
    class Head(models(impl).Block):
        def forward(self, x):
            x = self.scale(x)
            return (x, self.shift(x)) if self.training else x

    model = Head(2)
    assert found(model, impl.lib.ones(1, 2)) == []
    assert int(model.shift.calls[0]) == 0
    assert found(model.eval(), impl.lib.ones(1, 2)) == [("shift", "unused-parameter")]


def test_the_run_in_training_mode_may_fail(impl):
    class Picky(models(impl).Block):
        def forward(self, x):
            if self.training:
                raise ValueError("a target is missing")
            return self.scale(x)

    assert found(Picky(2), impl.lib.ones(1, 2)) == [("shift", "unused-parameter")]


def test_modules_made_in_a_forward(impl):
    kinds = models(impl)

    class Makes(kinds.Scale):
        def forward(self, x):
            return kinds.Shift(2)(super().forward(impl.nn.Identity()(x)))

    (finding,) = mt.check(Makes(2), impl.lib.ones(1, 2))
    assert (finding.path, finding.kind) == ("", "made-in-forward")
    assert "a Shift with parameters" in finding.message


def test_a_hidden_module_is_not_called_new(impl):
    kinds = models(impl)

    class Hides(kinds.Scale):
        def __init__(self, size):
            super().__init__(size)
            self.parts = [kinds.Block(size)]

        def forward(self, x):
            return self.parts[0](super().forward(x))

    assert found(Hides(2), impl.lib.ones(1, 2)) == [("parts[0]", "hidden-module")]


def test_a_run_in_training_mode_does_not_write_buffers_of_hidden_modules(impl):
    kinds = models(impl)

    class Hides(kinds.Block):
        def __init__(self, size):
            super().__init__(size)
            self.parts = [kinds.Shift(size)]

        def forward(self, x):
            return self.parts[0](self.scale(x))

    model = Hides(2)
    assert ("shift", "unused-parameter") in found(model, impl.lib.ones(1, 2))
    assert int(model.parts[0].calls[0]) == 0


def test_a_forward_that_raises_is_told(impl):
    with pytest.raises(RuntimeError, match=r"stopped in 'layers.0.scale' \(Scale\)"):
        mt.check(models(impl).Stack(3, 1), impl.lib.ones(1, 2))


def test_a_check_does_not_depend_on_whether_gradients_are_recorded(impl):
    with impl.lib.no_grad():
        assert found(models(impl).Stack(2, 1), impl.lib.ones(1, 2)) == []


def test_arguments_by_name(impl):
    model = models(impl).Stack(2, 1)
    assert found(model, {"x": impl.lib.ones(1, 2)}) == []
    assert found(model, (impl.lib.ones(1, 2),)) == []


def test_gradients_of_the_user_stay(impl):
    model = models(impl).Scale(2)
    model(impl.lib.ones(1, 2)).sum().backward()
    grad = model.weight.grad
    mt.check(model, impl.lib.ones(1, 2))
    assert model.weight.grad is grad
    assert grad.tolist() == [1.0, 1.0]


def test_a_lazy_model_is_checked_in_a_copy(lib):
    model = lib.nn.Sequential(lib.nn.LazyLinear(3), lib.nn.Linear(3, 2))
    assert found(model, lib.ones(1, 4)) == []
    assert type(model[0]).__name__ == "LazyLinear"


def test_a_graph_inside_of_a_checkpoint_is_judged_by_calls(lib):
    checkpoint = importlib.import_module(f"{lib.__name__}.utils.checkpoint").checkpoint

    class Saves(lib.nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.reentrant = reentrant
            self.inner = lib.nn.Linear(2, 2)
            self.lists = lib.nn.ModuleList([lib.nn.Linear(2, 2)])

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=self.reentrant)

    example = lib.ones(1, 2).requires_grad_()
    for reentrant in (True, False):
        assert found(Saves(reentrant), example) == [("lists", "unused-parameter")]


def test_no_global_hook_is_left(impl):
    found(models(impl).Stack(2, 3), impl.lib.ones(1, 2))
    tables = [name for name in vars(impl.module) if name.startswith("_global_")]
    assert tables and not any(getattr(impl.module, name) for name in tables)
