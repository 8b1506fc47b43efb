# SPDX-License-Identifier: BSD-3-Clause
"""Gradients, modes, devices, initial values and groups of parameters of a part of a tree."""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest
from helpers.edited_models import inputs, registries, stacked
from helpers.implementations import needs_torch
from helpers.small_modules import array

import modtree as mt


def trainable(model):
    return [name for name, p in model.named_parameters() if p.requires_grad]


def modes(model):
    return [module.training for module in model.modules()]


def test_requires_grad_of_a_part_and_its_undo(impl):
    model = stacked(impl, 2)
    every = trainable(model)
    receipt = mt.find(model, "**", exclude="head").requires_grad_(False)
    assert trainable(model) == ["head.weight", "head.bias"]
    assert [change.path for change in receipt] == every[:-2]
    with mt.find_parameters(model, "**.bias").requires_grad_():
        assert trainable(model) == [*[n for n in every[:-2] if "bias" in n], *every[-2:]]
    assert trainable(model) == ["head.weight", "head.bias"]
    model.layers[0].up.weight.requires_grad_(True)
    with pytest.raises(RuntimeError, match="requires_grad of 'layers.0.up.weight' was changed"):
        receipt.undo()
    model.layers[0].up.weight.requires_grad_(False)
    receipt.undo()
    assert trainable(model) == every


def test_what_is_left_out_is_not_reached_from_above(impl):
    model = stacked(impl, 2)
    for found in (
        mt.find(model, "**", exclude="**.up"),
        mt.find(model, "**") - mt.find(model, "**.up"),
        mt.find(model, "layers", exclude="**.up") | mt.find(model, "head"),
        mt.find(model, ["layers", "head"], exclude="**.up") & mt.find(model, "**"),
    ):
        with found.requires_grad_(False), found.train(False):
            assert trainable(model) == [
                f"layers.{i}.up.{name}" for i in range(2) for name in ("weight", "bias")
            ]
            assert [path for path, m in model.named_modules() if m.training][1:] == [
                "layers.0.up",
                "layers.1.up",
            ]
        assert all("up" not in path for path in found.parameters().paths)
        assert len(found.parameters().paths) == 6 and len(found.buffers()) == 3
    alone = mt.find(model, "layers.0.up") - mt.find(model, "layers.0")
    assert alone.parameters().paths == ["layers.0.up.weight", "layers.0.up.bias"]


def test_requires_grad_that_fails_changes_nothing(impl):
    model = impl.nn.Module()
    model.a = impl.nn.Parameter(impl.lib.ones(2), requires_grad=False)
    model.b = impl.nn.Parameter(impl.lib.ones(2, dtype=impl.lib.int64), requires_grad=False)
    with pytest.raises(RuntimeError):
        mt.find(model, "").requires_grad_(True)
    assert trainable(model) == []


def test_train_of_a_part_and_its_undo(impl):
    model = stacked(impl, 2)
    model.layers[0].act.eval()
    before = modes(model)
    receipt = mt.find(model, "layers.0").train(False)
    assert not any(modes(model.layers[0])) and model.layers[1].training
    receipt.undo()
    assert modes(model) == before


def test_a_frozen_mode_survives_train_and_eval_of_the_model(impl):
    model = stacked(impl, 2)
    receipt = mt.find(model, "layers.0").train(False, frozen=True)
    for changed in (model, copy.deepcopy(model)):
        assert changed.train() is changed
        assert not any(modes(changed.layers[0])) and all(modes(changed.layers[1]))
        assert changed.layers[0].train() is changed.layers[0]
        assert not changed.layers[0].up.train().training
    receipt.undo()
    model.train()
    assert all(modes(model)) and "train" not in vars(model.layers[0].up)


@pytest.mark.parametrize("kind", ["modtree", pytest.param("torch", marks=needs_torch)])
def test_pickles_of_a_frozen_model_have_the_modes_alone(kind):
    nn = importlib.import_module(kind).nn
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = pickle.dumps(net)
    net[1].eval()
    by_hand = pickle.dumps(net)
    net.train()
    with mt.find(net, nn.BatchNorm1d).train(False, frozen=True):
        data = pickle.dumps(net)
        assert b"editing" not in data and (kind == "modtree" or data == by_hand)
        twin = pickle.loads(data)
        assert modes(twin) == [True, True, False] and all(modes(twin.train()))
        assert not any(name in vars(twin[1]) for name in ("train", "__reduce_ex__"))
    assert pickle.dumps(net) == before


def test_a_frozen_copy_thaws(impl):
    model = stacked(impl, 2)
    mt.find(model, "layers.0").train(False, frozen=True)
    twin = copy.deepcopy(model)
    receipt = mt.find(twin, "layers.0").train()
    assert all(modes(twin)) and not any(modes(twin.eval()))
    assert not any(modes(model.train().layers[0]))
    receipt.undo()
    assert not any(modes(twin.train().layers[0]))


def test_frozen_modes_are_undone_in_turn(impl):
    model = stacked(impl, 1)
    first = mt.find(model, "layers.0").train(False, frozen=True)
    second = mt.find(model, "layers.0.up").train(True, frozen=True)
    with pytest.raises(RuntimeError, match="mode of 'layers.0.up' was changed since this change"):
        first.undo()
    assert model.eval().layers[0].up.training and not model.train().layers[0].act.training
    second.undo()
    first.undo()
    assert all(modes(model)) and not any(modes(model.eval()))


def test_init_is_for_the_selected_ones(impl):
    model = stacked(impl, 2)
    found = mt.find(model, "**.up")
    filled = []
    found.init(lambda p: filled.append(p.fill_(2)))
    assert len(filled) == 4 and (array(model.layers[1].up.bias) == 2).all()
    biases = mt.find_parameters(model, "**.bias")
    assert biases.init(lambda p: p.zero_()) is biases and not array(model.head.bias).any()
    assert model.head.bias.requires_grad and model.head.bias.grad_fn is None


def test_groups_have_each_parameter_once(impl):
    model = stacked(impl, 2)
    model.layers[0].down.bias.requires_grad_(False)
    groups = mt.param_groups(
        model,
        {
            "**.bias": {"weight_decay": 0.0},
            ("head", "layers.1"): {"lr": 0.5},
            mt.find(model, "layers[1:].up"): {"lr": 9.0},  # all taken
        },
    )
    assert [group.get("lr") for group in groups] == [None, 0.5, None]
    assert groups.paths == [
        ["layers.0.up.bias", "layers.1.up.bias", "layers.1.down.bias", "head.bias"],
        ["layers.1.up.weight", "layers.1.down.weight", "head.weight"],
        ["layers.0.up.weight", "layers.0.down.weight"],
    ]
    every = [id(p) for group in groups for p in group["params"]]
    assert len(every) == len(set(every)) and groups.left_over == []
    assert "left over: 2 parameters (layers.0.up.weight, layers.0.down.weight)" in repr(groups)
    some = mt.param_groups(model, {"head": {"lr": 1.0}}, rest=None)
    assert len(some) == 1 and some.left_over[0] == "layers.0.up.weight"
    assert "in no group: 7 parameters (layers.0.up.weight, " in repr(some)
    with pytest.raises(ValueError, match="no parameter matches 'haed': .*did you mean 'head'"):
        mt.param_groups(model, {"haed": {}})


def test_groups_of_a_selection(impl):
    model = stacked(impl, 1)
    groups = mt.find(model, "head").param_groups(lr=0.1, weight_decay=0.0)
    assert [id(p) for p in groups[0]["params"]] == [id(model.head.weight), id(model.head.bias)]
    assert groups[0]["lr"] == 0.1 and len(groups.left_over) == 4
    assert len(mt.find_parameters(model, "**.bias").param_groups()[0]["params"]) == 3


@pytest.mark.parametrize("kind", ["modtree", pytest.param("torch", marks=needs_torch)])
def test_optimizers_take_the_groups(kind):
    lib = importlib.import_module(kind)
    net = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.ReLU(), lib.nn.Linear(3, 1))
    optim = lib.optim if kind == "torch" else mt.optim
    frozen = net[2].bias.detach().clone()
    groups = mt.param_groups(net, {"2.bias": {"lr": 0.0}, "0": {"lr": 0.5}})
    optimizer = optim.SGD(groups, lr=0.1)
    net(lib.ones(4, 2)).sum().backward()
    optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.5, 0.1]
    assert (net[2].bias.detach() == frozen).all()


def test_settings_belong_to_a_batch(impl):
    model = stacked(impl, 2)
    before, every = registries(model), trainable(model)
    with pytest.raises(ZeroDivisionError), mt.edit(model) as edit:
        edit.find("layers").requires_grad_(False)
        edit.find("layers").train(False, frozen=True)
        edit.replace("head", impl.nn.Identity)
        raise ZeroDivisionError
    assert registries(model) == before and trainable(model) == every
    assert all(modes(model.train())) and model(inputs(impl)) is not None
