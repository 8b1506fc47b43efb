# SPDX-License-Identifier: BSD-3-Clause
"""Schedules: rates, states and warnings, on modtree and on torch."""

from __future__ import annotations

import copy
import importlib
import math
import warnings

import pytest
from helpers.implementations import needs_torch

import modtree as mt


@pytest.fixture(params=["modtree", pytest.param("torch", marks=needs_torch)])
def lib(request):
    return importlib.import_module(request.param)


def optimizer_of(lib, lrs=(0.5, 0.02), name="SGD", **options):
    groups = [{"params": [lib.nn.Parameter(lib.ones(1))], "lr": lr} for lr in lrs]
    if name == "SGD":
        options.setdefault("momentum", 0.9)
    return getattr(lib.optim, name)(groups, **options)


class Falling:
    """A callable with state."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, epoch):
        return self.factor**epoch


def warm_up(schedules, optimizer):
    return schedules.LinearLR(optimizer, 0.1, total_iters=3)


SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 1 / (1 + e)),
    "lambdas": lambda s, o: s.LambdaLR(o, [Falling(0.9), lambda e: e / 3]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, [lambda e: 0.9, Falling(0.99)]),
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], gamma=0.3),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=4),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.1, end_factor=0.8, total_iters=6),
    "linear down": lambda s, o: s.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=6),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.8),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=7, power=2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=5, eta_min=0.001),
    "cosine of 1": lambda s, o: s.CosineAnnealingLR(o, T_max=1),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, eta_min=0.01),
    "restarts twice as long": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=2),
    "one cycle": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=40),
    "one cycle, three phases": lambda s, o: s.OneCycleLR(
        o,
        [1.0, 0.3],
        epochs=5,
        steps_per_epoch=8,
        three_phase=True,
        anneal_strategy="linear",
        div_factor=10.0,
        final_div_factor=100.0,
        base_momentum=[0.7, 0.8],
    ),
    "one cycle without momentum": lambda s, o: s.OneCycleLR(
        o, 2.0, total_steps=40, cycle_momentum=False, pct_start=0.1
    ),
    "triangles": lambda s, o: s.CyclicLR(o, 0.1, [1.0, 2.0], step_size_up=3),
    "triangles2": lambda s, o: s.CyclicLR(
        o, 0.1, 1.0, step_size_up=3, step_size_down=5, mode="triangular2"
    ),
    "exp_range": lambda s, o: s.CyclicLR(
        o, 0.1, 1.0, step_size_up=4, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "scaled cycle": lambda s, o: s.CyclicLR(
        o, 0.1, 1.0, step_size_up=4, scale_fn=lambda x: 1 / x, scale_mode="cycle"
    ),
    "sequence": lambda s, o: s.SequentialLR(
        o,
        [warm_up(s, o), s.CosineAnnealingLR(o, 4), s.ExponentialLR(o, 0.5)],
        milestones=[4, 9],
    ),
    "nested sequence": lambda s, o: s.SequentialLR(
        o,
        [s.SequentialLR(o, [warm_up(s, o), s.StepLR(o, 2)], [2]), s.ConstantLR(o, 0.5)],
        milestones=[6],
    ),
    "chain": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
}


def advance(optimizer, scheduler, steps):
    """The rates and momentums of each group after each step."""
    rows = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rows.append(
            [
                [g["lr"], g["momentum"] if "momentum" in g else g["betas"][0]]
                for g in optimizer.param_groups
            ]
        )
        assert scheduler.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
    return rows


def same(ours, theirs, where=""):
    if isinstance(theirs, dict):
        assert dict.keys(ours) == dict.keys(theirs), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), where
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            same(*pair, f"{where}/{i}")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-15), where
    elif callable(theirs):
        assert callable(ours), where
    else:
        assert ours == theirs, where


# A sequence in a sequence steps the inner one when it is made, in torch too.
nested_warns = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")


def both(make, *, name="SGD", **options):
    """The optimizer and the schedule of modtree, and torch's."""
    import torch

    pairs = []
    for lib in (mt, torch):
        optimizer = optimizer_of(lib, name=name, **options)
        pairs.append((optimizer, make(lib.optim.lr_scheduler, optimizer)))
    return pairs


@nested_warns
@needs_torch
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_rates_and_state(kind, optimizer):
    ours, theirs = both(SCHEDULES[kind], name=optimizer)
    same([g["lr"] for g in ours[0].param_groups], [g["lr"] for g in theirs[0].param_groups])
    same(ours[1].get_last_lr(), theirs[1].get_last_lr())
    same(advance(*ours, 25), advance(*theirs, 25), "rates")
    same(ours[1].state_dict(), theirs[1].state_dict(), "state")
    for group, other in zip(ours[0].param_groups, theirs[0].param_groups, strict=True):
        assert set(group) == set(other)


@nested_warns
@pytest.mark.parametrize("kind", SCHEDULES)
def test_resumed_from_a_state_dict(lib, kind):
    make = SCHEDULES[kind]
    optimizer = optimizer_of(lib)
    scheduler = make(lib.optim.lr_scheduler, optimizer)
    advance(optimizer, scheduler, 7)
    saved = copy.deepcopy([optimizer.state_dict(), scheduler.state_dict()])
    resumed = optimizer_of(lib)
    other = make(lib.optim.lr_scheduler, resumed)
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    assert other.last_epoch == scheduler.last_epoch if hasattr(scheduler, "last_epoch") else True
    assert other.get_last_lr() == scheduler.get_last_lr()
    same(advance(resumed, other, 12), advance(optimizer, scheduler, 12))


@nested_warns
@needs_torch
@pytest.mark.parametrize("kind", [k for k in SCHEDULES if "lambda" not in k])
def test_resumed_from_a_state_dict_of_torch(kind):
    ours, theirs = both(SCHEDULES[kind])
    advance(*theirs, 7)
    ours[0].load_state_dict(theirs[0].state_dict())
    ours[1].load_state_dict(copy.deepcopy(theirs[1].state_dict()))
    same(advance(*ours, 12), advance(*theirs, 12))


@needs_torch
@pytest.mark.parametrize(
    "kind",
    ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine", "lambda"],
)
def test_started_in_the_middle(kind):
    """last_epoch= without a state: the groups have initial_lr."""
    import torch

    rows = []
    for lib in (mt, torch):
        optimizer = optimizer_of(lib)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"] * 2
        s = lib.optim.lr_scheduler
        scheduler = {
            "step": lambda o, s=s: s.StepLR(o, 3, last_epoch=3),
            "multistep": lambda o, s=s: s.MultiStepLR(o, [2, 5], last_epoch=3),
            "constant": lambda o, s=s: s.ConstantLR(o, 0.5, 6, last_epoch=3),
            "linear": lambda o, s=s: s.LinearLR(o, 0.5, total_iters=6, last_epoch=3),
            "exponential": lambda o, s=s: s.ExponentialLR(o, 0.9, last_epoch=3),
            "polynomial": lambda o, s=s: s.PolynomialLR(o, 9, last_epoch=3),
            "cosine": lambda o, s=s: s.CosineAnnealingLR(o, 6, last_epoch=3),
            "lambda": lambda o, s=s: s.LambdaLR(o, Falling(0.5), last_epoch=3),
        }[kind](optimizer)
        assert scheduler.last_epoch == 4
        rows.append([scheduler.get_last_lr(), advance(optimizer, scheduler, 6)])
    same(*rows)


@needs_torch
@pytest.mark.parametrize(
    "kind",
    ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine", "lambda"],
)
def test_step_with_an_epoch(kind):
    ours, theirs = both(SCHEDULES[kind])
    for epoch in (3, 1, 8, 0):
        for optimizer, scheduler in (ours, theirs):
            optimizer.step()
            with pytest.warns(
                UserWarning, match="epoch parameter in `scheduler.step\\(\\)` was not necessary"
            ):
                scheduler.step(epoch)
        same(ours[1].get_last_lr(), theirs[1].get_last_lr(), str(epoch))
        assert ours[1].last_epoch == epoch


@needs_torch
@pytest.mark.parametrize("mult", [1, 2])
def test_restarts_at_a_fraction(mult):
    ours, theirs = both(lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, T_mult=mult))
    for epoch in (0.5, 2.75, 3.0, 4.25, 10.5, 1):
        for _, scheduler in (ours, theirs):
            scheduler.step(epoch)
        same(ours[1].get_last_lr(), theirs[1].get_last_lr(), str(epoch))
        same(ours[1].state_dict(), theirs[1].state_dict(), str(epoch))
    with pytest.raises(ValueError, match="Expected non-negative epoch, but got -1"):
        ours[1].step(-1)


@needs_torch
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("options", [{}, {"cooldown": 2, "min_lr": [0.1, 0.0]}, {"eps": 0.2}])
def test_plateau(mode, threshold_mode, options):
    ours, theirs = both(
        lambda s, o: s.ReduceLROnPlateau(
            o,
            mode,
            factor=0.5,
            patience=1,
            threshold=0.05,
            threshold_mode=threshold_mode,
            **options,
        )
    )
    metrics = [3, 2, 2, 1.99, 1.98, 1.5, 1.5, 1.5, 1.5, 5, 5.2, 5.1, 5.5, 5, 5, 5, math.nan, 1, -3]
    for i, metric in enumerate(metrics):
        for _, scheduler in (ours, theirs):
            scheduler.step(metric)
        same(ours[1].state_dict(), theirs[1].state_dict(), str(i))
        same(ours[1].get_last_lr(), theirs[1].get_last_lr(), str(i))
    assert ours[1].get_last_lr() != [0.5, 0.02]


def test_plateau_takes_a_tensor_and_resumes(lib):
    optimizer = optimizer_of(lib)
    scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for metric in (1.0, 2.0):
        scheduler.step(lib.tensor(metric))
    assert scheduler.get_last_lr() == pytest.approx([0.05, 0.002])
    other = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=5)
    other.load_state_dict(scheduler.state_dict())
    assert other.mode == "min" and other.best == 1.0 and other.mode_worse == math.inf


def test_plateau_with_a_group_added_later(lib):
    optimizer = optimizer_of(lib)
    plateau = lib.optim.lr_scheduler.ReduceLROnPlateau
    one, each = plateau(optimizer, patience=0), plateau(optimizer, patience=0, min_lr=[0.0, 0.0])
    optimizer.add_param_group({"params": [lib.nn.Parameter(lib.ones(1))], "lr": 1.0})
    for scheduler in (one, each):
        scheduler.step(1.0)
    one.step(2.0)
    assert one.get_last_lr() == pytest.approx([0.05, 0.002, 0.1])
    with pytest.raises(RuntimeError, match="The number of param groups in the `optimizer` \\(3\\)"):
        each.step(2.0)


# -- order, warnings, errors -----------------------------------------------------------------------


def test_step_before_the_optimizer_warns(lib):
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer_of(lib), 1)
    with pytest.warns(
        UserWarning, match="Detected call of `lr_scheduler.step\\(\\)` before"
    ) as seen:
        scheduler.step()
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


def test_overridden_step_warns(lib):
    optimizer = optimizer_of(lib)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="`optimizer.step\\(\\)` has been overridden"):
        scheduler.step()


def test_two_schedules_share_the_watch_on_steps(lib):
    optimizer = optimizer_of(lib)
    first = lib.optim.lr_scheduler.StepLR(optimizer, 1)
    step = optimizer.step
    second = lib.optim.lr_scheduler.StepLR(optimizer, 1)
    assert optimizer.step is step
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first.step()
        second.step()


def test_step_hooks_go_on(lib):
    optimizer = optimizer_of(lib)
    seen = []
    optimizer.register_step_pre_hook(lambda o, a, k: seen.append((o, a)))
    lib.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    assert seen == [(optimizer, (optimizer,))]


@pytest.mark.parametrize("kind", ["step", "cosine", "lambda", "one cycle"])
def test_get_lr_outside_a_step_warns(lib, kind):
    scheduler = SCHEDULES[kind](lib.optim.lr_scheduler, optimizer_of(lib))
    with pytest.warns(UserWarning, match="please use `get_last_lr\\(\\)`"):
        scheduler.get_lr()


def test_own_schedule(lib):
    class Halve(lib.optim.lr_scheduler._LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = optimizer_of(lib)
    scheduler = Halve(optimizer)
    advance(optimizer, scheduler, 2)
    assert scheduler.get_last_lr() == [0.125, 0.005]
    assert scheduler.last_epoch == 2
    assert optimizer.param_groups[0]["initial_lr"] == 0.5


def test_a_schedule_without_get_lr(lib):
    with pytest.raises(NotImplementedError):
        lib.optim.lr_scheduler.LRScheduler(optimizer_of(lib))


def test_lr_that_is_a_tensor_is_changed_in_place(lib):
    lr = lib.tensor(0.5)
    optimizer = lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=lr)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == pytest.approx(0.05)
    assert scheduler.base_lrs[0].item() == 0.5


BAD = [
    (TypeError, "is not an Optimizer", lambda s, o: s.StepLR(3, 1)),
    (TypeError, "is not an Optimizer", lambda s, o: s.ReduceLROnPlateau(3)),
    (KeyError, "initial_lr", lambda s, o: s.StepLR(o, 1, last_epoch=3)),
    (ValueError, "Expected 2 lr_lambdas, but got 1", lambda s, o: s.LambdaLR(o, [abs])),
    (TypeError, "lr_lambda should be a function", lambda s, o: s.MultiplicativeLR(o, [abs, 3])),
    (ValueError, "expected to be between 0 and 1", lambda s, o: s.ConstantLR(o, factor=1.5)),
    (ValueError, "Starting multiplicative factor", lambda s, o: s.LinearLR(o, start_factor=0)),
    (ValueError, "Ending multiplicative factor", lambda s, o: s.LinearLR(o, end_factor=2)),
    (ValueError, "T_0", lambda s, o: s.CosineAnnealingWarmRestarts(o, 0)),
    (ValueError, "T_mult", lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, T_mult=0)),
    (ValueError, "eta_min", lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, eta_min="x")),
    (ValueError, "You must define either total_steps", lambda s, o: s.OneCycleLR(o, 1.0)),
    (ValueError, "total_steps", lambda s, o: s.OneCycleLR(o, 1.0, total_steps=0)),
    (ValueError, "epochs", lambda s, o: s.OneCycleLR(o, 1.0, epochs=0, steps_per_epoch=1)),
    (ValueError, "pct_start", lambda s, o: s.OneCycleLR(o, 1.0, total_steps=9, pct_start=2.0)),
    (
        ValueError,
        "anneal_strategy",
        lambda s, o: s.OneCycleLR(o, 1.0, total_steps=9, anneal_strategy="x"),
    ),
    (ValueError, "max_lr must have the same length", lambda s, o: s.CyclicLR(o, 0.1, [1.0])),
    (ValueError, "mode is invalid", lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="x")),
    (ValueError, "Factor should be < 1.0", lambda s, o: s.ReduceLROnPlateau(o, factor=1.0)),
    (ValueError, "mode x is unknown", lambda s, o: s.ReduceLROnPlateau(o, "x")),
    (
        ValueError,
        "threshold mode x is unknown",
        lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"),
    ),
    (ValueError, "expected 2 min_lrs, got 1", lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.0])),
    (ValueError, "at least one scheduler", lambda s, o: s.SequentialLR(o, [], [])),
    (ValueError, "at least one scheduler", lambda s, o: s.ChainedScheduler([])),
    (
        ValueError,
        "one more than the number of milestone",
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
    ),
    (
        ValueError,
        "does not support `ReduceLROnPlateau`",
        lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []),
    ),
    (
        ValueError,
        "does not support `ReduceLROnPlateau`",
        lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
    ),
    (TypeError, "should have `optimizer`", lambda s, o: s.SequentialLR(o, [3], [])),
]


@pytest.mark.parametrize(("error", "message", "make"), BAD, ids=[m for _, m, _ in BAD])
def test_errors(lib, error, message, make):
    with pytest.raises(error, match=message):
        make(lib.optim.lr_scheduler, optimizer_of(lib))


def test_schedules_of_two_optimizers_do_not_combine(lib):
    s = lib.optim.lr_scheduler
    a, b = optimizer_of(lib), optimizer_of(lib)
    with pytest.raises(ValueError, match="to belong to the same optimizer"):
        s.SequentialLR(a, [s.StepLR(a, 1), s.StepLR(b, 1)], [1])
    with pytest.raises(ValueError, match="to belong to the same optimizer"):
        s.ChainedScheduler([s.StepLR(a, 1), s.StepLR(b, 1)])


def test_one_cycle_ends(lib):
    optimizer = optimizer_of(lib)
    scheduler = lib.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3)
    advance(optimizer, scheduler, 3)
    with pytest.raises(ValueError, match="Tried to step 4 times"):
        advance(optimizer, scheduler, 1)


def test_cyclic_needs_a_momentum(lib):
    optimizer = optimizer_of(lib, name="Adagrad")
    with pytest.raises(ValueError, match="must support momentum or beta1"):
        lib.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0)
    with pytest.raises(ValueError, match="must support momentum or beta1"):
        lib.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)


def test_callable_objects_keep_their_attributes(lib):
    optimizer = optimizer_of(lib)
    saved = lib.optim.lr_scheduler.LambdaLR(optimizer, [Falling(0.5), lambda e: 1]).state_dict()
    assert saved["lr_lambdas"] == [{"factor": 0.5}, None]
    other = lib.optim.lr_scheduler.LambdaLR(optimizer, [Falling(0.9), lambda e: 2])
    other.load_state_dict(saved)
    assert other.lr_lambdas[0].factor == 0.5
    assert saved["lr_lambdas"] == [{"factor": 0.5}, None]
