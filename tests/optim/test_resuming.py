# SPDX-License-Identifier: BSD-3-Clause
"""Optimizer states that follow their parameters by name. The same tests on modtree and torch."""

from __future__ import annotations

import copy
import importlib
import io
import random
import re

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.resuming import adam, array, assert_same, make, state_of, states, train, trained

import modtree as mt


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def lib(request):
    return importlib.import_module(request.param)


# -- going on as if nothing had been ---------------------------------------------------------------

KINDS = {
    "SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {"amsgrad": True}, "AdamW": {}, "NAdam": {},
    "RAdam": {}, "Adamax": {}, "Adagrad": {}, "Adadelta": {}, "RMSprop": {"centered": True,
    "momentum": 0.9}, "Rprop": {}, "ASGD": {}, "Adafactor": {}, "LBFGS": {"max_iter": 3},
}  # fmt: skip


def saved_and_read(lib, value):
    file = io.BytesIO()
    lib.save(value, file)
    file.seek(0)
    return lib.load(file)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", ["of the optimizer", "beside", "of the model"])
def test_an_unchanged_model_goes_on_bit_for_bit(lib, kind, names):
    def begin(model):
        is_named = names == "of the optimizer"
        params = model.named_parameters() if is_named else model.parameters()
        optimizer = getattr(lib.optim, kind)(params, **KINDS[kind])
        return optimizer, lib.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    model = make(lib)
    stopped = copy.deepcopy(model)
    optimizer, scheduler = begin(model)
    train(lib, model, optimizer, 6, scheduler)

    first, plan = begin(stopped)
    train(lib, stopped, first, 3, plan)
    state = mt.optimizer_state(first, stopped) if names == "of the model" else first.state_dict()
    saved = saved_and_read(lib, {"model": stopped.state_dict(), "optimizer": state,
                                 "scheduler": plan.state_dict()})  # fmt: skip
    resumed = make(lib)
    resumed.load_state_dict(saved["model"])
    second, plan = begin(resumed)
    plan.load_state_dict(saved["scheduler"])
    beside = {"names": saved["model"]} if names == "beside" else {}
    report = mt.load_optimizer_state(
        second, saved["optimizer"], model=resumed, options="all", **beside
    )
    assert report.is_complete and report.loaded == [n for n, _ in resumed.named_parameters()]
    train(lib, resumed, second, 3, plan)
    for p, q in zip(model.parameters(), resumed.parameters(), strict=True):
        np.testing.assert_array_equal(array(p), array(q))
    assert_same(states(optimizer, model), states(second, resumed))
    for group, other in zip(optimizer.param_groups, second.param_groups, strict=True):
        assert {**group, "params": 0} == {**other, "params": 0}


def test_steps_are_counted_on(lib):
    model, optimizer = trained(lib)
    other = adam(lib, model)
    mt.load_optimizer_state(other, optimizer.state_dict())
    train(lib, model, other, 1)
    assert {float(array(other.state[p]["step"])) for p in model.parameters()} == {4.0}


# -- parameters elsewhere --------------------------------------------------------------------------


def test_modules_in_another_order(lib):
    model, optimizer = trained(lib)
    permuted = make(lib, "c", "a", "b")
    permuted.load_state_dict(model.state_dict())
    other = adam(lib, permuted)
    report = mt.load_optimizer_state(other, optimizer.state_dict())
    assert report.is_complete and str(report) == "8 of 8 entries fit"
    assert_same(states(other, permuted), states(optimizer, model))


def test_parameters_in_another_group(lib):
    model, optimizer = trained(lib, lr=0.5)
    weights = [(n, p) for n, p in model.named_parameters() if p.ndim > 1]
    biases = [(n, p) for n, p in model.named_parameters() if p.ndim == 1]
    other = lib.optim.Adam([{"params": biases, "lr": 0.25}, {"params": weights}], lr=0.125)
    mt.load_optimizer_state(other, optimizer.state_dict())
    assert_same(states(other, model), states(optimizer, model))
    assert [group["lr"] for group in other.param_groups] == [0.25, 0.125]
    assert other.param_groups[0]["param_names"] == [name for name, _ in biases]
    back = adam(lib, model)
    mt.load_optimizer_state(back, other.state_dict())
    assert_same(states(back, model), states(optimizer, model))


def test_renamed_modules(lib):
    model, optimizer = trained(lib)
    swapped = make(lib, "b", "a", "c")
    rules = {"a.": "x.", "b.": "a.", "x.": "b."}
    other = adam(lib, swapped)
    mt.load_optimizer_state(other, optimizer.state_dict(), rename=rules)
    for new, old in {"a": "b", "b": "a", "c": "c", "head": "head"}.items():
        for p, q in zip(swapped[new].parameters(), model[old].parameters(), strict=True):
            assert_same(state_of(other, p), state_of(optimizer, q))


def test_a_name_that_rename_leaves_out_is_not_looked_for(lib):
    model, optimizer = trained(lib)
    report = mt.load_optimizer_state(
        adam(lib, make(lib, "a", "b")),
        optimizer.state_dict(),
        rename=lambda name: None if name.startswith("c.") else name,
    )
    assert report.is_complete and len(report.loaded) == 6


def test_a_new_head(lib):
    model, optimizer = trained(lib)
    other = make(lib, head=5)
    fresh = adam(lib, other, lr=0.5)
    with pytest.raises(ValueError, match="the state does not fit the optimizer, which is unch"):
        mt.load_optimizer_state(fresh, optimizer.state_dict())
    assert not fresh.state
    report = mt.load_optimizer_state(fresh, optimizer.state_dict(), partial=True)
    assert report.skipped == {
        "head.weight": "its state has the shape [2, 3], the parameter [5, 3]",
        "head.bias": "its state has the shape [2], the parameter [5]",
    }
    assert report.missing_keys == [] and "6 of 8 entries fit" in str(report)
    for name, p in other.named_parameters():
        old = dict(model.named_parameters())[name]
        assert_same(state_of(fresh, p), {} if "head" in name else state_of(optimizer, old))
    train(lib, other, fresh)
    steps = {n: float(array(fresh.state[p]["step"])) for n, p in other.named_parameters()}
    assert steps == {n: 3.0 if "head" in n else 6.0 for n in steps}


def test_shapes_are_those_of_the_model_beside(lib):
    """A head of one class has a state that could be a factor of another's."""
    model = make(lib, head=1)
    optimizer = lib.optim.SGD(model.named_parameters(), lr=0.1)  # which has no state
    train(lib, model, optimizer)
    other = make(lib, head=3)
    fresh = lib.optim.SGD(other.named_parameters(), lr=0.1)
    report = mt.load_optimizer_state(
        fresh, optimizer.state_dict(), names=model.state_dict(), dry_run=True
    )
    assert report.skipped["head.weight"] == "its shape is [1, 3], that of the parameter [3, 3]"


def test_other_modules(lib):
    model, optimizer = trained(lib, "a", "b")
    other = make(lib, "b", "c")
    fresh = adam(lib, other)
    report = mt.load_optimizer_state(fresh, optimizer.state_dict(), partial=True)
    assert report.missing_keys == ["c.weight", "c.bias"]
    assert report.unexpected_keys == ["a.weight", "a.bias"] == list(report.skipped)
    assert "the optimizer has no parameter of this name" in str(report)
    assert set(fresh.state) == set(other["b"].parameters()) | set(other["head"].parameters())


def test_what_does_not_fit_keeps_its_state(lib):
    model, optimizer = trained(lib, "a", "b")
    other, fresh = trained(lib, "b", "c")
    before = states(fresh, other)
    held = dict(fresh.state[other["c"].weight])
    mt.load_optimizer_state(fresh, optimizer.state_dict(), partial=True)
    after = states(fresh, other)
    assert_same(after["c.weight"], before["c.weight"])
    assert all(fresh.state[other["c"].weight][key] is value for key, value in held.items())
    assert_same(after["b.weight"], states(optimizer, model)["b.weight"])


def test_a_dry_run_changes_nothing(lib):
    model, optimizer = trained(lib)
    other, fresh = trained(lib)
    before, groups = states(fresh, other), fresh.param_groups
    report = mt.load_optimizer_state(fresh, optimizer.state_dict(), dry_run=True)
    assert report.is_complete and fresh.param_groups is groups
    assert_same(states(fresh, other), before)


def test_parameters_that_were_never_stepped_have_no_state(lib):
    model = make(lib)
    model["a"].requires_grad_(False)
    optimizer = adam(lib, model)
    train(lib, model, optimizer)
    other, fresh = trained(lib)
    assert mt.load_optimizer_state(fresh, optimizer.state_dict()).is_complete
    assert state_of(fresh, other["a"].weight) == {} != state_of(fresh, other["b"].weight)


# -- tied and repeated parameters ------------------------------------------------------------------


def tie(model, name, other):
    model[other].weight = model[name].weight
    return model


def test_a_tied_parameter_under_its_other_name(lib):
    model = tie(make(lib), "a", "b")
    optimizer = adam(lib, model)
    train(lib, model, optimizer)
    assert "b.weight" not in optimizer.param_groups[0]["param_names"]
    other = tie(make(lib, "b", "a", "c"), "b", "a")  # whose first name is b.weight
    fresh = lib.optim.Adam(other.parameters())
    assert mt.load_optimizer_state(fresh, optimizer.state_dict(), model=other).is_complete
    assert_same(state_of(fresh, other["b"].weight), state_of(optimizer, model["a"].weight))


def test_parameters_that_are_tied_now_get_one_state(lib):
    model, optimizer = trained(lib)
    other = tie(make(lib), "a", "b")
    fresh = adam(lib, other)
    report = mt.load_optimizer_state(fresh, optimizer.state_dict(), model=other, partial=True)
    assert list(report.skipped) == ["b.weight"] and report.missing_keys == []
    assert "one parameter with 'a.weight' now" in report.skipped["b.weight"]
    assert_same(state_of(fresh, other["a"].weight), state_of(optimizer, model["a"].weight))


def test_a_parameter_that_is_not_tied_any_more_has_no_state(lib):
    model = tie(make(lib), "a", "b")
    optimizer = adam(lib, model)
    train(lib, model, optimizer)
    other = make(lib)
    report = mt.load_optimizer_state(
        adam(lib, other), optimizer.state_dict(), model=other, partial=True
    )
    assert report.missing_keys == ["b.weight"] and report.skipped == {}


def test_ties_in_the_model_beside(lib):
    model = tie(make(lib), "a", "b")
    optimizer = lib.optim.Adam(model.parameters())
    train(lib, model, optimizer)
    other = tie(make(lib), "a", "b")
    fresh = lib.optim.Adam(other.parameters())
    report = mt.load_optimizer_state(
        fresh, optimizer.state_dict(), model=other, names=model.state_dict()
    )
    assert report.is_complete
    assert_same(states(fresh, other), states(optimizer, model))


def test_a_parameter_that_the_optimizer_has_twice(lib):
    model = make(lib)
    names = list(model.named_parameters(remove_duplicate=False))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = lib.optim.Adam([*names, names[0]])
    train(lib, model, optimizer)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        fresh = lib.optim.Adam([names[0], *reversed(names)])
    assert mt.load_optimizer_state(fresh, optimizer.state_dict()).is_complete
    assert_same(states(fresh, model), states(optimizer, model))


# -- forms of states -------------------------------------------------------------------------------


def test_a_state_of_an_older_torch(lib):
    """Parameters have ids instead of numbers, steps are ints, and options are fewer."""
    model, optimizer = trained(lib, named=False)
    state = optimizer.state_dict()
    ids = {i: 140_000_000 + 96 * (8 - i) for i in range(8)}
    (group,) = state["param_groups"]
    kept = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay", "amsgrad")}
    old = {
        "state": {
            ids[i]: {**entry, "step": int(array(entry["step"]))}
            for i, entry in state["state"].items()
        },
        "param_groups": [{**kept, "params": [ids[i] for i in group["params"]]}],
    }
    other = make(lib, "c", "a", "b")
    other.load_state_dict(model.state_dict())
    fresh = lib.optim.Adam(other.parameters(), weight_decay=0.5)
    mt.load_optimizer_state(fresh, old, model=other, names=model.state_dict(), options="all")
    assert_same(states(fresh, other), states(optimizer, model))
    assert fresh.param_groups[0]["weight_decay"] == 0
    train(lib, other, fresh)


def test_the_state_of_another_kind_of_optimizer(lib):
    model, optimizer = trained(lib)
    for kind in ("SGD", "NAdam", "Adagrad", "RMSprop"):
        fresh = getattr(lib.optim, kind)(model.named_parameters(), lr=0.1)
        with pytest.raises(ValueError, match=f"another kind of optimizer than {kind}: its groups"):
            mt.load_optimizer_state(fresh, optimizer.state_dict())
    fresh = lib.optim.AdamW(model.named_parameters())
    assert mt.load_optimizer_state(fresh, optimizer.state_dict()).is_complete


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, TypeError, "expected the state dict of an optimizer, got int"),
        ({}, ValueError, "a mapping with nothing: is it that of a model?"),
        ({"model": {}, "opt": {"param_groups": []}}, ValueError, "it has one under 'opt'"),
    ],
)
def test_what_is_no_state_of_an_optimizer(lib, given, error, words):
    model, optimizer = trained(lib)
    with pytest.raises(error, match=re.escape(words)):
        mt.load_optimizer_state(optimizer, given)


@needs_torch
def test_a_state_that_has_names_for_numbers():
    """As torch.distributed.checkpoint makes it."""
    import torch
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, optimizer = trained(torch, named=False)
    state = get_optimizer_state_dict(model, optimizer)
    assert set(state["state"]) == {name for name, _ in model.named_parameters()}
    other = make(torch, "c", "a", "b")
    fresh = adam(torch, other)
    assert mt.load_optimizer_state(fresh, state).is_complete
    assert_same(states(fresh, other), states(optimizer, model))


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_the_optimizer_of_a_checkpoint(lib, kind, tmp_path):
    options = {} if kind == "Adam" else {"momentum": 0.9}
    model, optimizer = trained(lib, kind=kind, **options)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    lib.save(state, tmp_path / "last.pt")
    read = mt.load_file(tmp_path / "last.pt", at="optimizer")
    assert "state" not in read
    other = make(lib, "c", "a", "b")
    fresh = getattr(lib.optim, kind)(other.named_parameters(), **options)
    assert mt.load_optimizer_state(fresh, read).is_complete
    assert_same(states(fresh, other), states(optimizer, model))
    train(lib, other, fresh)


def test_factors_that_lack_a_dimension(lib):
    """As transformers' Adafactor has them."""
    model = lib.nn.ModuleDict({"a": lib.nn.Linear(3, 4, bias=False)})
    state = adam(lib, model).state_dict()
    state["state"] = {0: {"step": 3, "exp_avg_sq_row": lib.ones(4), "exp_avg_sq_col": lib.ones(3)}}
    for size, fits in ((4, True), (3, False)):
        other = lib.nn.ModuleDict({"a": lib.nn.Linear(7 - size, size, bias=False)})
        report = mt.load_optimizer_state(adam(lib, other), state, dry_run=True)
        assert report.is_complete is fits
    assert "its state has the shape [4] and [3], the parameter [3, 4]" in str(report)


def test_lbfgs_has_one_state_for_all(lib):
    model, optimizer = trained(lib, kind="LBFGS", max_iter=2)
    words = "one for all parameters together, which are others or elsewhere now"
    for other in (make(lib, "b", "a", "c"), make(lib, "a", "b")):
        fresh = lib.optim.LBFGS(other.named_parameters())
        report = mt.load_optimizer_state(fresh, optimizer.state_dict(), partial=True)
        assert words in report.skipped["a.weight"] and not fresh.state
    fresh = lib.optim.LBFGS(make(lib, head=4).named_parameters())
    report = mt.load_optimizer_state(fresh, optimizer.state_dict(), dry_run=True)
    assert "whose sizes are others now" in report.skipped["a.weight"]


def test_an_error_leaves_the_optimizer_as_it_was(lib):
    model, optimizer = trained(lib)
    other, fresh = trained(lib)
    fresh.register_load_state_dict_post_hook(lambda optimizer: 1 / 0)
    before, groups, state = states(fresh, other), fresh.param_groups, fresh.state
    with pytest.raises(ZeroDivisionError):
        mt.load_optimizer_state(fresh, optimizer.state_dict(), options="all")
    assert fresh.param_groups is groups and fresh.state is state
    assert_same(states(fresh, other), before)
    broken = optimizer.state_dict()
    broken["param_groups"][0]["param_names"] = ["x"] * 8
    with pytest.raises(ValueError, match="two parameters of the saved state have the name 'x'"):
        mt.load_optimizer_state(fresh, broken)
    assert_same(states(fresh, other), before)


def test_the_given_state_is_not_changed(lib):
    model, optimizer = trained(lib)
    state = optimizer.state_dict()
    before = {key: dict(entry) for key, entry in state["state"].items()}
    groups = copy.deepcopy(state["param_groups"])
    fresh = adam(lib, make(lib, head=3), lr=0.5)
    mt.load_optimizer_state(fresh, state, partial=True)
    assert state["param_groups"] == groups and state["state"].keys() == before.keys()
    for key, entry in state["state"].items():
        assert entry.keys() == before[key].keys()
        assert all(entry[name] is value for name, value in before[key].items())


def test_the_error_names_the_rename_that_mends_it(lib):
    model, optimizer = trained(lib)
    wrapped = lib.nn.ModuleDict({"net": model})
    fresh = adam(lib, wrapped)
    with pytest.raises(ValueError) as info:
        mt.load_optimizer_state(fresh, optimizer.state_dict())
    rename = eval(str(info.value).partition("Try: rename=")[2])
    assert mt.load_optimizer_state(fresh, optimizer.state_dict(), rename=rename).is_complete
    with pytest.raises(ValueError, match="To load what fits: partial=True"):
        mt.load_optimizer_state(fresh, adam(lib, make(lib, "x")).state_dict())


# -- at random -------------------------------------------------------------------------------------


def drawn_optimizer(lib, model, rng, named):
    """The parameters in one group or two, in the model's order or another."""
    pairs = list(model.named_parameters())
    if named:
        rng.shuffle(pairs)
        cut = rng.choice([0, len(pairs) // 2])
        parts = [part for part in (pairs[:cut], pairs[cut:]) if part]
        return lib.optim.AdamW([{"params": part} for part in parts], amsgrad=True)
    return lib.optim.AdamW(model.parameters(), amsgrad=True)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_changes(lib, seed):
    rng = random.Random(seed)
    names = rng.sample("abcdefg", 4)
    model = make(lib, *names)
    named = rng.random() < 0.5
    optimizer = drawn_optimizer(lib, model, rng, named)
    train(lib, model, optimizer)

    kept = rng.sample(names, rng.randint(1, 4))
    new_names = {name: rng.choice([name, f"new_{name}"]) for name in kept}
    order = [*new_names.values(), *rng.sample("xyz", rng.randint(0, 2))]
    rng.shuffle(order)
    head = rng.choice([2, 5])
    changed = make(lib, *order, head=head)
    fresh = drawn_optimizer(lib, changed, rng, rng.random() < 0.5)
    report = mt.load_optimizer_state(
        fresh,
        optimizer.state_dict(),
        model=changed,
        names=None if named else model.state_dict(),
        rename={f"{old}.": f"{new}." for old, new in new_names.items()},
        partial=True,
    )
    old_names = {new: old for old, new in new_names.items()} | (
        {"head": "head"} if head == 2 else {}
    )
    for name, layer in changed.items():
        for entry in ("weight", "bias"):
            own = state_of(fresh, getattr(layer, entry))
            assert (f"{name}.{entry}" in report.loaded) is (name in old_names)
            if name in old_names:
                old = getattr(model[old_names[name]], entry)
                assert_same(own, state_of(optimizer, old))
            else:
                assert own == {}
    missing = {name.partition(".")[0] for name in report.missing_keys}
    assert missing == set(order) - set(old_names)
    train(lib, changed, fresh, 1)


# -- across libraries ------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize(("source", "target"), [("torch", "modtree"), ("modtree", "torch")])
def test_a_state_of_the_other_library(source, target):
    one, other = importlib.import_module(source), importlib.import_module(target)
    model, optimizer = trained(one)
    twin = make(other, "c", "a", "b")
    fresh = adam(other, twin)
    assert mt.load_optimizer_state(fresh, optimizer.state_dict()).is_complete
    assert_same(states(fresh, twin), states(optimizer, model))
    train(other, twin, fresh)


@needs_torch
def test_names_are_not_those_of_torch():
    import torch

    for name in ("optimizer_state", "load_optimizer_state"):
        assert name in mt.__all__ and not hasattr(torch, name) and not hasattr(torch.optim, name)
