# SPDX-License-Identifier: BSD-3-Clause
"""What the error of a failed load suggests is done, and the model is right, or nothing is
suggested: for models of many kinds, changes in them, and checkpoints damaged in many ways.
"""

from __future__ import annotations

import copy
import itertools
import random

import pytest
from helpers.damaged_checkpoints import (
    EDITS,
    HARMS,
    MODELS,
    calls_in,
    follow,
    is_seen,
    make_case,
    wrong_values,
)

from modtree import nn


def check(name, edit, harms, seed):
    """How many calls were suggested, all of them right; None where the load succeeds."""
    model, state, right = make_case(name, edit, harms, seed)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    try:
        copy.deepcopy(model).load_state_dict(state)
    except RuntimeError as error:
        text = str(error).partition("\n\n")[2]
    else:
        return None
    calls = list(calls_in(text))
    for call in calls:
        if "nn.utils" in call:
            continue  # for a load after it
        loaded = copy.deepcopy(model)
        follow(call, loaded, state)
        may_be_turned = any("transposed" in harm for harm in harms) and ".T" not in call
        wrong = wrong_values(loaded, before, right, may_be_turned)
        assert not wrong, f"{name}, {edit}, {harms}, seed {seed}: {call} gives {wrong}\n{text}"
    return len(calls)


def is_told_apart(name, edit, harms, seed):
    """Can anybody see what has happened? Not where what is left looks like something else."""
    if sum("nested" in harm for harm in harms) > 1 or ("tops" in harms and edit != "nothing"):
        return False
    if "a teacher" in harms and len(harms) > 1:  # of which the student may be lost
        return False
    if name == "no biases" and any("transposed" in harm for harm in harms):
        return False
    return is_seen(name, edit, seed)


@pytest.mark.parametrize("harm", HARMS)
def test_damaged_checkpoints(harm):
    for seed, name in enumerate(MODELS):
        if is_told_apart(name, "nothing", (harm,), seed):
            check(name, "nothing", (harm,), seed)


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit != "nothing"])
def test_changed_models(edit):
    for seed, name in enumerate(MODELS):
        if is_told_apart(name, edit, (), seed):
            check(name, edit, (), seed)


@pytest.mark.parametrize("part", range(3))
def test_several_at_once(part):
    rng = random.Random(part)
    for seed in range(60):
        name, edit = rng.choice(list(MODELS)), rng.choice(list(EDITS))
        harms = tuple(rng.sample(list(HARMS), rng.choice([1, 1, 2])))
        if is_told_apart(name, edit, harms, seed):
            check(name, edit, harms, seed)


#: What is to be mended by the call that stands in the message.
MENDED = [
    *itertools.product(
        ["equal layers", "conv and norm", "transformer", "attention", "dict", "stages"],
        ["DataParallel", "torch.compile", "two prefixes", "a prefix of its own", "nested",
         "nested twice", "kernel"],
    ),
    ("transformer", "another name"),
    ("transformer", "another name of a row"),
    ("layers of all sizes", "numbers from 1"),
    ("layers of all sizes", "numbers from 5"),
    ("one layer", "transposed"),
    *itertools.product(
        ["branches", "transformer", "conv and norm", "entries", "multi head"],
        ["slashes", "underscores", "no separators", "averages", "nested averages"],
    ),
    ("branches", "numbers behind underscores"),
    ("transformer", "numbers behind underscores"),
    ("branches", "dots before numbers"),
    ("branches", "numbers without dots"),
    ("numbers in names", "dots before numbers"),
    ("transformer", "numbers without dots"),
    ("attention", "fused"),
    ("pointwise", "pointwise"),
    ("branches", "pointwise"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "harm"), MENDED)
def test_advice_that_has_to_be_given(name, harm):
    model, state, right = make_case(name, "nothing", (harm,), 1)
    with pytest.raises(RuntimeError) as info:
        copy.deepcopy(model).load_state_dict(state)
    (call,) = calls_in(str(info.value))
    follow(call, model, state)
    assert wrong_values(model, right, right) == []


# -- numbers that have shifted ---------------------------------------------------------------------


def failed(model, state):
    with pytest.raises(RuntimeError) as info:
        model.load_state_dict(state)
    return str(info.value).partition("\n\n")[2]


def linears(count, first=(), size=2):
    return nn.Sequential(*first, *(nn.Linear(size, size) for _ in range(count)))


@pytest.mark.parametrize("prefix", ["", "module."])
def test_shifted_layers_that_are_alike(prefix):
    """All keys would match after '0' is renamed to '2', and every layer would be wrong."""
    state = {prefix + key: value for key, value in linears(2).state_dict().items()}
    text = failed(linears(2, [nn.Flatten()]), state)
    assert "numbers have shifted: the state dict has '0', '1' where the model has '1', '2'" in text
    assert "partial" not in text and "'0.'" not in text


def test_shifted_blocks():
    def make(first):
        model = nn.Module()
        model.h = nn.ModuleDict({str(i): linears(2) for i in range(first, first + 12)})
        return model

    text = failed(make(0), make(1).state_dict())
    assert "the state dict has 'h.1', 'h.2', ... 'h.12' (12) where the model has 'h.0'" in text
    assert "rename=" not in text


def test_shifted_layers_of_which_no_two_are_alike():
    def make(*first):
        return nn.Sequential(*first, nn.Linear(2, 3), nn.Linear(3, 4), nn.Linear(4, 5))

    source, model = make(), make(nn.Flatten())
    text = failed(model, source.state_dict())
    assert "rename={'2.': '3.', '1.': '2.', '0.': '1.'}" in text
    (call,) = calls_in(text)
    follow(call, model, source.state_dict())
    assert model[3].weight.tolist() == source[2].weight.tolist()


def test_shifted_layers_in_every_block():
    def make(*first):
        blocks = [nn.Sequential(*first, nn.Linear(2, 3), nn.Linear(3, 2)) for _ in range(4)]
        return nn.ModuleDict({"blocks": nn.ModuleList(blocks)})

    source, model = make(), make(nn.ReLU())
    (call,) = calls_in(failed(model, source.state_dict()))
    follow(call, model, source.state_dict())
    assert [p.tolist() for p in model.parameters()] == [p.tolist() for p in source.parameters()]


def test_names_in_another_order():
    model = nn.ModuleDict({name: nn.Linear(2, 2) for name in "bc"})
    text = failed(model, nn.ModuleDict({name: nn.Linear(2, 2) for name in "ab"}).state_dict())
    assert "several explanations fit" in text and "rename=" not in text


@pytest.mark.parametrize("sides", [("student", "teacher"), ("a", "ema")])
def test_several_that_fit(sides):
    state = nn.ModuleDict({side: linears(2) for side in sides}).state_dict()
    text = failed(linears(2), state)
    assert f"'{sides[0]}', '{sides[1]}' of the state dict" in text and "rename=" not in text
    text = failed(nn.ModuleDict({side: linears(2) for side in sides}), linears(2).state_dict())
    assert "several explanations fit" in text and "rename=" not in text


def test_several_state_dicts_in_one_mapping():
    text = failed(linears(1), {"model": linears(1).state_dict(), "ema": linears(1).state_dict()})
    assert "several state dicts that fit" in text and "['model'] and ['ema']" in text
    assert list(calls_in(text)) == []
