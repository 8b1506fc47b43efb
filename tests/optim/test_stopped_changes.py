# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers, schedules and averages: what stops a change on its way leaves all as it was."""

from __future__ import annotations

import pytest

import modtree as mt
from modtree import nn, optim
from modtree.optim import lr_scheduler, swa_utils


class Stop(BaseException):
    pass


def sgd(**options):
    return optim.SGD([nn.Parameter(mt.zeros(2)), nn.Parameter(mt.ones(2))], lr=1.0, **options)


def facts(optimizer, *schedules):
    owners = [vars(optimizer), *optimizer.param_groups, *map(vars, schedules)]
    return [[(key, fact(value)) for key, value in owner.items()] for owner in owners]


def fact(value):
    if isinstance(value, mt.Tensor):
        return id(value), value.tolist()
    if isinstance(value, list | tuple):
        return [fact(each) for each in value]
    return value if isinstance(value, int | float | str | None) else id(value)


def stopping(at):
    """A factor of a schedule; its call for one epoch raises."""

    def factor(epoch):
        if epoch == at:
            raise Stop
        return 0.5

    return factor


def test_a_group_that_is_refused_stays_as_it_was():
    optimizer = sgd()
    shared = optimizer.param_groups[0]["params"][0]
    group = {"params": (each for each in [shared])}
    names = {"params": [("a", nn.Parameter(mt.ones(1)))]}
    before, kept = facts(optimizer), dict(names)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group(group)
    with pytest.raises(ValueError, match="with/without names"):
        optimizer.add_param_group(names)
    assert facts(optimizer) == before and list(group) == ["params"] and names == kept


def test_a_state_that_is_refused_changes_nothing():
    class Picky(optim.SGD):
        def __setstate__(self, state):
            super().__setstate__(state)
            raise Stop

    optimizer = Picky([nn.Parameter(mt.zeros(2))], lr=1.0)
    state = optim.SGD([nn.Parameter(mt.zeros(2))], lr=2.0).state_dict()
    before = facts(optimizer)
    with pytest.raises(Stop):
        optimizer.load_state_dict(state)
    assert facts(optimizer) == before


MAKERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, stopping(0)),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, scale_fn=stopping(1)),
    "CyclicLR, mode": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, mode="other"),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 10, max_momentum=[1, 2, 3]),
}


@pytest.mark.parametrize("lr", [1.0, mt.tensor(1.0)])
@pytest.mark.parametrize("name", MAKERS)
def test_a_schedule_that_cannot_be_made_leaves_the_optimizer(name, lr):
    optimizer = optim.SGD([nn.Parameter(mt.zeros(2))], lr=lr, momentum=0.9)
    before = facts(optimizer)
    with pytest.raises((Stop, ValueError)):
        MAKERS[name](optimizer)
    assert facts(optimizer) == before


def test_a_step_of_a_schedule_that_is_stopped_is_undone():
    optimizer = sgd()
    schedule = lr_scheduler.LambdaLR(optimizer, stopping(2))
    optimizer.step()
    schedule.step()
    before = facts(optimizer, schedule)
    with pytest.raises(Stop):
        schedule.step()
    assert facts(optimizer, schedule) == before


def test_what_a_subclass_wrote_elsewhere_stays_when_a_step_is_stopped(lib):
    class Counting(lib.optim.lr_scheduler.LRScheduler):
        calls = 0

        def get_lr(self):
            self.calls += 1
            self.optimizer.calls = self.calls
            self.optimizer.param_groups[0]["calls"] = self.calls
            if self.calls == 2:
                raise ZeroDivisionError
            return [0.25]

    optimizer = lib.optim.SGD([lib.zeros(1, requires_grad=True)], lr=1.0)
    schedule = Counting(optimizer)
    optimizer.step()
    with pytest.raises(ZeroDivisionError):
        schedule.step()
    assert schedule.calls == optimizer.calls == optimizer.param_groups[0]["calls"] == 2
    assert optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("kind", ["chained", "in a row"])
def test_a_step_of_several_schedules_that_is_stopped_is_undone(kind):
    optimizer = sgd()
    first = lr_scheduler.ExponentialLR(optimizer, 0.5)
    second = lr_scheduler.LambdaLR(optimizer, stopping(1 if kind == "chained" else 2))
    both = [first, second]
    if kind == "chained":
        schedule = lr_scheduler.ChainedScheduler(both)
    else:
        schedule = lr_scheduler.SequentialLR(optimizer, both, [1])
    optimizer.step()
    for _ in range(0 if kind == "chained" else 2):
        schedule.step()
    before = facts(optimizer, schedule, *both)
    with pytest.raises(Stop):
        schedule.step()
    assert facts(optimizer, schedule, *both) == before


def test_statistics_survive_a_loader_that_fails():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout().eval())
    model(mt.randn(8, 2))
    before = {key: value.tolist() for key, value in model.state_dict().items()}

    def loader():
        yield mt.randn(8, 2)
        raise Stop

    with pytest.raises(Stop):
        swa_utils.update_bn(loader(), model)
    assert {key: value.tolist() for key, value in model.state_dict().items()} == before
    assert model[1].momentum == 0.1
    assert [each.training for each in model.modules()] == [True, True, True, False]


def test_averages_survive_a_function_that_fails():
    model = nn.Linear(2, 2)
    calls = []

    def average(mean, value, count):
        calls.append(count)
        if len(calls) == 2:
            raise Stop
        return value

    averaged = swa_utils.AveragedModel(model, avg_fn=average)
    averaged.update_parameters(model)
    before = averaged.module.weight.tolist()
    with mt.no_grad():
        model.weight.zero_()
    with pytest.raises(Stop):
        averaged.update_parameters(model)
    assert averaged.module.weight.tolist() == before and averaged.n_averaged == 1
