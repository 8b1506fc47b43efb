# SPDX-License-Identifier: BSD-3-Clause
"""``intervene``: outputs changed, modules skipped, activations of other runs put in."""

from __future__ import annotations

import copy
import sys

import pytest
from helpers.edited_models import inputs, stacked
from helpers.small_modules import array, linear

import modtree as mt


def test_a_function_gets_the_call_and_gives_the_output(impl):
    model, x = stacked(impl, 2), inputs(impl)
    plain, seen = array(model(x)), []

    def double(module, args, kwargs, output):
        seen.append((module, len(args), kwargs))
        return output * 2

    with mt.intervene(model, {"head": double}) as change:
        assert (array(model(x)) == 2 * plain).all()
        assert repr(change) == "Intervention in 1 modules, open: head"
    assert seen == [(model.head, 1, {})] and change.paths == ["head"]
    assert (array(model(x)) == plain).all()
    with mt.intervene(model, {"head": lambda *args: None}):
        assert (array(model(x)) == plain).all()


def test_none_skips_a_module(impl):
    model, x = stacked(impl, 3), inputs(impl)
    called = []
    model.layers[1].up.register_forward_hook(lambda *args: called.append(args))
    with mt.intervene(model, {"layers.1": None}):
        y = model(x)
    assert called == []
    assert (array(y) == array(model.head(model.layers[2](model.layers[0](x))))).all()
    assert "forward" not in vars(model.layers[1])
    with (
        mt.intervene(model, {"head": None}),
        pytest.raises(TypeError, match="'head' was called wi"),
    ):
        model.head()


def test_a_value_of_another_run_is_put_in_and_gradients_flow_through(impl):
    model, x = stacked(impl, 3), inputs(impl)
    other = inputs(impl) * 3
    with mt.capture(model, "layers.1") as acts:
        full = model(other)
    patch = acts["layers.1"].clone().requires_grad_()
    with mt.intervene(model, {"layers.1": patch}):
        y = model(x)
        y.sum().backward()
    assert (array(y) == array(full)).all() and patch.grad is not None
    assert model.layers[0].up.weight.grad is None and model.layers[2].up.weight.grad is not None


def test_a_value_that_the_model_changes_in_place_stays(impl):
    class InPlace(impl.nn.Module):
        def forward(self, x):
            return x.mul_(2)

    model = impl.nn.Sequential(impl.nn.Identity(), InPlace())
    patch = inputs(impl)
    with mt.intervene(model, {"0": patch}):
        first, second = model(inputs(impl)), model(inputs(impl))
    assert (array(first) == array(second)).all()
    assert (array(patch) == array(inputs(impl))).all()


def test_an_own_forward_of_the_module_comes_back(impl):
    model = impl.nn.Sequential(linear(impl, 3, 3))
    x = inputs(impl)

    def own(x):
        return x + 1

    model[0].forward = own
    with mt.intervene(model, {"0": None}):
        assert (array(model(x)) == array(x)).all()
        twin = copy.deepcopy(model)
    assert model[0].forward is own and (array(model(x)) == array(x) + 1).all()
    assert (array(twin(x)) == array(x) + 1).all()


def test_a_copy_made_in_the_block_runs_its_own_forward(impl):
    model, x = stacked(impl, 2), inputs(impl)
    with mt.intervene(model, {"layers.0": None, "head": lambda *args: args[3] * 0}):
        twin = copy.deepcopy(model)
        twin.head.bias.requires_grad_(False).fill_(5)
        y = twin(x)
    model.head.bias.requires_grad_(False).fill_(5)
    assert (array(y) == array(model(x))).all()


@pytest.mark.parametrize("first", [0, 1])
def test_blocks_that_overlap(impl, first):
    model = impl.nn.Sequential(linear(impl, 3, 3))
    x, own = inputs(impl), model[0].forward
    blocks = [mt.intervene(model, {"0": None}), mt.intervene(model, {"0": inputs(impl) * 2})]
    for block in blocks:
        block.__enter__()
    twin = copy.deepcopy(model)
    assert (array(model(x)) == array(x) * 2).all() and "forward" not in vars(twin[0])
    blocks[first].__exit__(None, None, None)
    assert (array(model(x)) == array(x) * (1 + (first == 0))).all()
    blocks[1 - first].__exit__(None, None, None)
    assert (array(model(x)) == array(own(x))).all()
    assert not {"forward", "__reduce_ex__"} & {*vars(model[0])}


def test_blocks_end_whatever_happens(impl):
    model, x = stacked(impl, 2), inputs(impl)
    plain = array(model(x))
    with pytest.raises(ZeroDivisionError):
        with mt.intervene(model, {"layers.*": None, "head": lambda *args: 1 / 0}):
            model(x)
    assert (array(model(x)) == plain).all()
    change = mt.intervene(model, {"head": None})
    with change, pytest.raises(RuntimeError, match="open already"):
        change.__enter__()
    assert (array(model(x)) == plain).all()
    with pytest.raises(LookupError, match="nothing to change:\n0 modules of Stacked: 'haed'"):
        mt.intervene(model, {"haed": None})


def test_a_capture_inside_sees_the_changed_output(impl):
    model, x = stacked(impl, 2), inputs(impl)
    with mt.intervene(model, {mt.find(model, "head"): lambda m, a, k, output: output * 0}):
        with mt.capture(model, "head") as acts:
            model(x)
    assert not array(acts["head"]).any()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_error_in_a_block_says_which_outputs_were_given(impl):
    model, x = stacked(impl, 2), inputs(impl)
    given = "modtree.intervene gives values in place of the outputs of layers.0"
    for change, noted in ((impl.lib.zeros((7, 7)), True), (lambda m, a, k, out: 1 / 0, False)):
        with pytest.raises(Exception) as caught, mt.intervene(model, {"layers.0": change}):
            model(x)
        assert (given in getattr(caught.value, "__notes__", ())) is noted
