# SPDX-License-Identifier: BSD-3-Clause
"""Where the names of parameters come from, and the options of groups of optimizers."""

from __future__ import annotations

import importlib

import pytest
from helpers.implementations import needs_torch
from helpers.resuming import adam, array, assert_same, make, state_of, states, train, trained

import modtree as mt


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def lib(request):
    return importlib.import_module(request.param)


# -- names -----------------------------------------------------------------------------------------


def test_names_are_saved_with_the_state(lib):
    model, optimizer = trained(lib, named=False)
    assert "param_names" not in optimizer.state_dict()["param_groups"][0]
    state = mt.optimizer_state(optimizer, model)
    assert state["param_groups"][0]["param_names"] == [n for n, _ in model.named_parameters()]
    assert "param_names" not in optimizer.param_groups[0]
    plain = lib.optim.Adam(model.parameters())
    plain.load_state_dict(state)
    assert_same(states(plain, model), states(optimizer, model))
    assert mt.optimizer_state(adam(lib, model))["param_groups"][0]["params"] == list(range(8))


def with_buffers(lib, first=3):
    return lib.nn.Sequential(
        lib.nn.Linear(3, first), lib.nn.BatchNorm1d(first), lib.nn.Linear(first, 3)
    )


def train_row(lib, model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        (model(lib.ones(2, 3) / 3 + lib.eye(3)[:2]) ** 2).sum().backward()
        optimizer.step()


def test_names_of_a_model_with_buffers(lib):
    model = with_buffers(lib)
    optimizer = lib.optim.Adam(model.parameters())
    train_row(lib, model, optimizer)
    other = lib.nn.Sequential(lib.nn.Identity(), *with_buffers(lib))
    fresh = lib.optim.Adam(other.parameters())
    report = mt.load_optimizer_state(
        fresh,
        optimizer.state_dict(),
        model=other,
        names=model.state_dict(),
        rename=lambda name: f"{int(name[0]) + 1}{name[1:]}",
    )
    assert report.is_complete
    for p, q in zip(other.parameters(), model.parameters(), strict=True):
        assert_same(state_of(fresh, p), state_of(optimizer, q))


def test_a_list_of_names(lib):
    model, optimizer = trained(lib, named=False)
    names = [name for name, _ in model.named_parameters()]
    other = make(lib, "c", "b", "a")
    fresh = lib.optim.Adam(other.parameters())
    mt.load_optimizer_state(fresh, optimizer.state_dict(), model=other, names=names)
    assert_same(states(fresh, other), states(optimizer, model))


def sorted_state(model):
    return dict(sorted(model.state_dict().items()))


def without_last(model):
    return dict(list(model.state_dict().items())[:-1])


def other_order(model):
    return dict(reversed(model.state_dict().items()))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (None, "does not have the names of its parameters: pass names="),
        (sorted_state, "is sorted by name"),
        (without_last, "has 8 parameters, and the model saved beside it 7"),
        (other_order, "the order of the model saved beside the state is not that of the optim"),
        (lambda model: ["a", "b"], "has 8 parameters, and there are 2 names"),
        (lambda model: ["a"] * 8, "two parameters of the saved state have the name 'a'"),
    ],
)
def test_names_that_do_not_tell(lib, names, words):
    model = lib.nn.Sequential(*(lib.nn.Linear(3, 3) for _ in range(4)))
    optimizer = lib.optim.Adam(model.parameters())
    train_row(lib, model, optimizer)
    fresh = lib.optim.Adam(model.parameters())
    given = names if names is None else names(model)
    with pytest.raises(ValueError, match=words):
        mt.load_optimizer_state(fresh, optimizer.state_dict(), model=model, names=given)
    assert not fresh.state


def test_several_groups_without_names(lib):
    model = make(lib)
    groups = [{"params": list(model["a"].parameters())}, {"params": list(model["b"].parameters())}]
    optimizer = lib.optim.Adam(groups)
    train(lib, model, optimizer)
    with pytest.raises(ValueError, match="has 2 groups and no names"):
        mt.load_optimizer_state(
            optimizer, optimizer.state_dict(), model=model, names=model.state_dict()
        )


@pytest.mark.parametrize("names", ["weight", [3]])
def test_names_of_the_wrong_type(lib, names):
    model, optimizer = trained(lib, named=False)
    with pytest.raises(TypeError, match="names takes a state dict or a list of names, got"):
        mt.load_optimizer_state(optimizer, optimizer.state_dict(), model=model, names=names)


def test_places_do_not_fit_and_names_are_pointed_to():
    model, optimizer = trained(mt)
    one = mt.optim.Adam([{"params": [p]} for p in model.parameters()])
    for other in (one, mt.optim.Adam(make(mt, "a").parameters())):
        with pytest.raises(ValueError, match="modtree.load_optimizer_state.. goes by the names"):
            other.load_state_dict(optimizer.state_dict())


def test_an_optimizer_without_names(lib):
    model, optimizer = trained(lib, named=False)
    with pytest.raises(ValueError, match=r"pass model=, or make the optimizer of model\.named_pa"):
        mt.load_optimizer_state(optimizer, optimizer.state_dict())
    with pytest.raises(ValueError, match=r"parameter 0 of group 0 .* is not in the model"):
        mt.optimizer_state(optimizer, make(lib))


def test_two_parameters_of_one_name(lib):
    one, other = make(lib), make(lib)
    optimizer = lib.optim.Adam([*one.named_parameters(), *other.named_parameters()])
    with pytest.raises(ValueError, match="two parameters of the optimizer have the name 'a.wei"):
        mt.load_optimizer_state(optimizer, optimizer.state_dict())


# -- options of groups -----------------------------------------------------------------------------


def two_groups(lib, model, lrs=(0.5, 0.25), **options):
    weights = [(n, p) for n, p in model.named_parameters() if p.ndim > 1]
    biases = [(n, p) for n, p in model.named_parameters() if p.ndim == 1]
    groups = [{"params": part, "lr": lr} for part, lr in zip((weights, biases), lrs, strict=True)]
    return lib.optim.Adam(groups, **options)


def test_options_are_taken_by_group(lib):
    model = make(lib)
    optimizer = two_groups(lib, model, weight_decay=0.125)
    train(lib, model, optimizer)
    state = optimizer.state_dict()
    fresh = two_groups(lib, model, (0.0625, 0.0625))
    mt.load_optimizer_state(fresh, state, options=["lr"])
    assert [group["lr"] for group in fresh.param_groups] == [0.5, 0.25]
    assert [group["weight_decay"] for group in fresh.param_groups] == [0, 0]
    swapped = lib.optim.Adam([
        {"params": [(n, p) for n, p in model.named_parameters() if (p.ndim > 1) is is_weight]}
        for is_weight in (False, True)
    ])  # fmt: skip
    mt.load_optimizer_state(swapped, state, options="all")
    assert [group["lr"] for group in swapped.param_groups] == [0.25, 0.5]
    assert [group["weight_decay"] for group in swapped.param_groups] == [0.125, 0.125]


def test_options_of_several_groups_must_agree(lib):
    model = make(lib)
    state = two_groups(lib, model).state_dict()
    one = adam(lib, model)
    with pytest.raises(ValueError, match=r"several groups with different values of 'lr': 0.5, 0."):
        mt.load_optimizer_state(one, state, options=["lr"])
    assert mt.load_optimizer_state(one, state, options=["betas"]).is_complete
    with pytest.raises(ValueError, match="does not have the option 'initial_lr', but 'amsgrad'"):
        mt.load_optimizer_state(one, state, options="initial_lr")


@pytest.mark.parametrize("how", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_how_a_step_is_computed_is_the_new_optimizers(lib, how):
    model, optimizer = trained(lib, **how)
    fresh = adam(lib, model)
    mt.load_optimizer_state(fresh, optimizer.state_dict(), options="all")
    (name,) = how
    assert fresh.param_groups[0][name] is None
    assert mt.load_optimizer_state(fresh, optimizer.state_dict(), options=[name]).is_complete
    assert fresh.param_groups[0][name] is how[name]
    back = adam(lib, model, **how)
    mt.load_optimizer_state(back, fresh.state_dict(), options="all")
    assert back.param_groups[0][name] is how[name]
    train(lib, model, back)
    assert float(array(back.state[model["a"].weight]["step"])) == 6.0


@pytest.mark.parametrize(
    ("kind", "option", "needed"),
    [
        ("Adam", {"amsgrad": True}, "'max_exp_avg_sq', which amsgrad=True needs"),
        ("RMSprop", {"centered": True}, "'grad_avg', which centered=True needs"),
        ("RMSprop", {"momentum": 0.9}, "'momentum_buffer', which momentum needs"),
    ],
)
def test_options_that_need_more_state(lib, kind, option, needed):
    model, optimizer = trained(lib, kind=kind)
    fresh = getattr(lib.optim, kind)(model.named_parameters(), **option)
    report = mt.load_optimizer_state(fresh, optimizer.state_dict(), partial=True)
    assert needed in report.skipped["a.weight"] and report.loaded == []
    train(lib, model, fresh)
    back = getattr(lib.optim, kind)(model.named_parameters())
    assert mt.load_optimizer_state(back, fresh.state_dict()).is_complete
    other = getattr(lib.optim, kind)(model.named_parameters(), **option)
    other = mt.load_optimizer_state(other, optimizer.state_dict(), options="all")
    assert other.is_complete  # the option itself is taken then
