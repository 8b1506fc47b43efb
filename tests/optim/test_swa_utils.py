# SPDX-License-Identifier: BSD-3-Clause
"""optim.swa_utils: averages of models, their statistics, and the schedule."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest
from helpers.implementations import implementation, needs_torch
from helpers.small_modules import array, linear, values

import modtree as mt


def module_of(impl):
    root = "torch" if impl.is_torch else "modtree"
    return importlib.import_module(f"{root}.optim.swa_utils")


def changed(impl, layer, seed):
    """Other values in all parameters and buffers."""
    rng = np.random.default_rng(seed)
    with impl.lib.no_grad():
        for tensor in [*layer.parameters(), *layer.buffers()]:
            tensor.copy_(impl.lib.tensor(rng.uniform(1, 9, tuple(tensor.shape))))
    return {name: array(v).copy() for name, v in layer.state_dict().items()}


def with_count(impl):
    layer = linear(impl)
    layer.register_buffer("count", impl.lib.tensor([0, 4], dtype=impl.lib.int64))
    return layer


def functions(swa):
    """The ways to average, and the same on numbers."""

    def mean(averaged, value, n):
        return averaged + (value - averaged) / (n + 1)

    def ema(averaged, value, n):
        return 0.75 * averaged + 0.25 * value

    return {
        "default": ({}, mean),
        "swa": ({"avg_fn": swa.get_swa_avg_fn()}, mean),
        "swa lists": ({"multi_avg_fn": swa.get_swa_multi_avg_fn()}, mean),
        "ema": ({"avg_fn": swa.get_ema_avg_fn(0.75)}, ema),
        "ema lists": ({"multi_avg_fn": swa.get_ema_multi_avg_fn(0.75)}, ema),
        "own": ({"avg_fn": lambda a, p, n: a + 2 * p + n}, lambda a, p, n: a + 2 * p + n),
    }


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("kind", ["default", "swa", "swa lists", "ema", "ema lists", "own"])
def test_averages(impl, kind, use_buffers):
    swa = module_of(impl)
    options, expected = functions(swa)[kind]
    model = linear(impl)
    averaged = swa.AveragedModel(model, use_buffers=use_buffers, **options)
    assert averaged.module is not model and type(averaged.module) is type(model)
    assert averaged.n_averaged.dtype == impl.lib.int64
    assert list(averaged.state_dict())[0] == "n_averaged"
    history = []
    for i in range(4):
        state = changed(impl, model, i)
        averaged.update_parameters(model)
        history.append(state)
        assert averaged.n_averaged.item() == i + 1
        wanted = history[0]
        for n, later in enumerate(history[1:], 1):
            wanted = {k: expected(v, later[k], n) for k, v in wanted.items()}
        if not use_buffers:
            wanted = {**wanted, "scale": state["scale"]}
        for name, value in averaged.module.state_dict().items():
            # The reciprocal of the count is one of float32.
            np.testing.assert_allclose(array(value), wanted[name], rtol=1e-6)
    assert all(p.requires_grad for p in averaged.parameters())
    x = values(impl, 2, 3)
    np.testing.assert_array_equal(array(averaged(x)), array(averaged.module(x)))


@pytest.mark.parametrize("kind", ["default", "ema", "ema lists"])
def test_buffers_of_integers(impl, kind):
    swa = module_of(impl)
    model = with_count(impl)
    averaged = swa.AveragedModel(model, use_buffers=True, **functions(swa)[kind][0])
    averaged.update_parameters(model)
    with impl.lib.no_grad():
        model.count.copy_(impl.lib.tensor([4, 8]))
    averaged.update_parameters(model)
    assert averaged.module.count.tolist() == ([2, 6] if kind == "default" else [1, 5])


def len_of_first(entry):
    return len(entry[0])


def test_lists_are_of_one_dtype(impl):
    model, seen = with_count(impl), []
    averaged = module_of(impl).AveragedModel(
        model,
        use_buffers=True,
        multi_avg_fn=lambda means, new, n: seen.append(
            ([t.dtype for t in means], len(new), n.item())
        ),
    )
    averaged.update_parameters(model)
    assert seen == []
    averaged.update_parameters(model)
    seen.sort(key=len_of_first, reverse=True)
    assert seen == [([impl.lib.float64] * 3, 3, 1), ([impl.lib.int64], 1, 1)]


def test_averaged_models_go_on_after_loading_and_copies(impl):
    swa = module_of(impl)
    model = linear(impl)
    first, second = swa.AveragedModel(model), swa.AveragedModel(model)
    for i in range(3):
        changed(impl, model, i)
        first.update_parameters(model)
    second.load_state_dict(first.state_dict())
    third = copy.deepcopy(first)
    changed(impl, model, 9)
    for each in (first, second, third):
        each.update_parameters(model)
        np.testing.assert_array_equal(array(each.module.weight), array(first.module.weight))
        assert each.n_averaged.item() == 4


def test_nothing_is_recorded(impl):
    swa = module_of(impl)
    mean = impl.nn.Parameter(values(impl, 3))
    new = impl.nn.Parameter(values(impl, 3, seed=1))
    for function in (swa.get_ema_avg_fn(), swa.get_swa_avg_fn()):
        assert not function(mean, new, 3).requires_grad
    for function in (swa.get_ema_multi_avg_fn(), swa.get_swa_multi_avg_fn()):
        function([mean], [new], 3)
        assert mean.is_leaf


def test_errors(impl):
    swa = module_of(impl)
    for make in (swa.get_ema_avg_fn, swa.get_ema_multi_avg_fn):
        for decay in (-0.1, 1.1):
            with pytest.raises(ValueError, match=f"Invalid decay value {decay} provided"):
                make(decay)
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        swa.AveragedModel(
            linear(impl), avg_fn=swa.get_swa_avg_fn(), multi_avg_fn=swa.get_swa_multi_avg_fn()
        )


def test_the_mean_of_integers_in_lists(ours):
    swa = module_of(ours)
    model = with_count(ours)
    averaged = swa.AveragedModel(model, use_buffers=True, multi_avg_fn=swa.get_swa_multi_avg_fn())
    averaged.update_parameters(model)
    with ours.lib.no_grad():
        model.count.copy_(ours.lib.tensor([4, 8]))
    averaged.update_parameters(model)
    assert averaged.module.count.tolist() == [2, 6]


@needs_torch
def test_averages_are_those_of_torch():
    """To the last digits, over many updates."""
    found = []
    for name in ("torch", "modtree", "modtree-torch"):
        impl = implementation(name)
        swa = module_of(impl)
        found.append([])
        for options, _ in functions(swa).values():
            model = linear(impl)
            averaged = swa.AveragedModel(model, use_buffers=True, **options)
            for i in range(7):
                changed(impl, model, i)
                averaged.update_parameters(model)
            found[-1] += [array(v) for v in averaged.state_dict().values()]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)


# -- update_bn -------------------------------------------------------------------------------------


def normalized(lib):
    return lib.nn.Sequential(
        lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Dropout(0.0), lib.nn.BatchNorm1d(4, 0.1)
    ).double()


def utils_of(lib):
    return importlib.import_module(f"{lib.__name__}.optim.swa_utils")


@pytest.mark.parametrize("form", ["tensors", "pairs", "device"])
def test_update_bn(lib, form):
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((8, 3)) for _ in range(5)]
    loader = [lib.tensor(b) for b in batches]
    if form == "pairs":
        loader = [(b, "label") for b in loader]
    model = normalized(lib).eval()
    model[1].momentum = 0.3
    model(lib.tensor(batches[0]))
    weight, bias = (array(t) for t in model[0].parameters())
    utils_of(lib).update_bn(iter(loader), model, "cpu" if form == "device" else None)
    outs = [b @ weight.T + bias for b in batches]
    np.testing.assert_allclose(array(model[1].running_mean), np.mean([o.mean(0) for o in outs], 0))
    np.testing.assert_allclose(
        array(model[1].running_var), np.mean([o.var(0, ddof=1) for o in outs], 0)
    )
    assert model[1].momentum == 0.3 and model[3].momentum == 0.1
    assert model[1].num_batches_tracked.item() == 5
    assert not model.training and not model[1].training
    assert all(p.grad is None for p in model.parameters())


def test_update_bn_records_nothing(lib):
    seen = []
    model = normalized(lib)
    model.register_forward_hook(lambda m, args, out: seen.append(out.requires_grad))
    utils_of(lib).update_bn([lib.ones(2, 3, dtype=lib.float64)], model)
    assert seen == [False] and model.training


def test_update_bn_without_normalizations_reads_nothing(impl):
    def loader():
        raise AssertionError
        yield

    module_of(impl).update_bn(loader(), linear(impl))


def test_update_bn_that_fails_restores_the_model():
    model = normalized(mt).eval()
    with pytest.raises(RuntimeError):
        mt.optim.swa_utils.update_bn([mt.ones(2, 7, dtype=mt.float64)], model)
    assert model[1].momentum == 0.1 and not model.training


# -- SWALR -----------------------------------------------------------------------------------------


def optimizer_of(lib, lrs=(0.5, 0.02), **options):
    groups = [{"params": [lib.nn.Parameter(lib.zeros(2))], "lr": lr} for lr in lrs]
    return lib.optim.SGD(groups, lr=0.1, **options)


SCHEDULES = [
    {"swa_lr": 0.05},
    {"swa_lr": 0.05, "anneal_epochs": 4, "anneal_strategy": "linear"},
    {"swa_lr": [0.05, 0.2], "anneal_epochs": 4},
    {"swa_lr": 0.05, "anneal_epochs": 0},
    {"swa_lr": 0.05, "anneal_epochs": 1, "anneal_strategy": "linear"},
]


@needs_torch
@pytest.mark.parametrize("options", SCHEDULES, ids=str)
def test_rates_of_swalr(options):
    import torch

    found = []
    for lib in (mt, torch):
        optimizer = optimizer_of(lib)
        schedule = utils_of(lib).SWALR(optimizer, **options)
        rates = [schedule.get_last_lr()]
        for i in range(8):
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr())
            assert [g["lr"] for g in optimizer.param_groups] == rates[-1]
            if i == 3:
                state = schedule.state_dict()
                schedule = utils_of(lib).SWALR(optimizer_of(lib), 7.0, anneal_strategy="cos")
                schedule.optimizer = optimizer
                schedule.load_state_dict(state)
        found.append((rates, schedule.state_dict(), optimizer.param_groups[0]["swa_lr"]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-14)
    assert set(found[0][1]) == set(found[1][1])
    assert found[0][2] == found[1][2]


def test_swalr_after_another_schedule(lib):
    optimizer = optimizer_of(lib)
    cosine = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    schedule = utils_of(lib).SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)
    for i in range(10):
        optimizer.step()
        (cosine if i < 5 else schedule).step()
    assert schedule.get_last_lr() == pytest.approx([0.05, 0.05])


def test_errors_of_swalr(lib):
    swalr = utils_of(lib).SWALR
    with pytest.raises(ValueError, match="anneal_strategy must be one of 'cos' or 'linear'"):
        swalr(optimizer_of(lib), 0.1, anneal_strategy="exponential")
    for epochs in (-1, 1.5, None):
        with pytest.raises(ValueError, match="anneal_epochs must be equal or greater than 0"):
            swalr(optimizer_of(lib), 0.1, anneal_epochs=epochs)
    with pytest.raises(ValueError, match="swa_lr must have the same length"):
        swalr(optimizer_of(lib), [0.1, 0.2, 0.3])
    schedule = swalr(optimizer_of(lib), 0.1)
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()
