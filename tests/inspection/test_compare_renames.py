# SPDX-License-Identifier: BSD-3-Clause
"""The renaming that ``modtree.compare`` suggests, and the causes that ``verify`` gives, are right
for a load, or not given.
"""

from __future__ import annotations

import copy
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

import modtree as mt
from modtree import nn
from modtree.checkpoints import verify

#: What leaves each entry under a key of its own, with its own values.
RENAMING = [
    name
    for name in HARMS
    if not any(word in name for word in ("nested", "transposed", "tops", "flat", "of one more"))
]


def cases(part, count):
    rng = random.Random(part)
    for seed in range(count):
        name, edit, harm = (rng.choice(list(of)) for of in (MODELS, EDITS, RENAMING))
        if is_seen(name, edit, seed):
            yield f"{name}, {edit}, {harm}, {seed}", *make_case(name, edit, (harm,), seed)


@pytest.mark.parametrize("part", range(3))
def test_renames_of_a_diff(part):
    given = 0
    for what, model, state, right in cases(part, 50):
        found = mt.compare(state, model, values=False)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        for rules in (found.likely_rename, found.near_keys):
            if not rules:
                continue
            given += 1
            loaded = copy.deepcopy(model)
            rename = rules if rules is found.likely_rename else lambda k, r=rules: r.get(k, k)
            loaded.load_state_dict(state, rename=rename, partial=True)
            assert not wrong_values(loaded, before, right), f"{what}: {rules}\n{found}"
    assert given


def test_causes_of_verify(tmp_path):
    given = 0
    for what, model, state, right in cases(7, 40):
        path = tmp_path / "a.safetensors"
        mt.save_file(state, path)
        problems = verify(path, model)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        for call in calls_in("\n".join(problems.causes)):
            given += 1
            loaded = copy.deepcopy(model)
            follow(call, loaded, mt.load_file(path))
            assert not wrong_values(loaded, before, right), f"{what}: {call}"
    assert given


def linears(*first):
    return nn.Sequential(*first, nn.Linear(2, 2), nn.Linear(2, 2))


def test_shifted_numbers():
    found = mt.compare(linears(), linears(nn.Flatten()))
    assert found.likely_rename == {} and found.near_keys == {}
    assert found.doubts == [
        "numbers have shifted: the state dict has '0', '1' where the model has '1', '2'"
    ]
    assert "not clear: numbers have shifted" in str(found)
    assert found.to_dict()["doubts"] == found.doubts


def test_shifted_numbers_of_layers_of_all_sizes():
    def make(*first):
        return nn.Sequential(*first, nn.Linear(2, 3), nn.Linear(3, 4))

    a, b = make(), make(nn.Flatten())
    b.load_state_dict(a.state_dict(), rename={"1.": "2.", "0.": "1."})
    found = mt.compare(a, b)
    assert found.likely_rename == {"1.": "2.", "0.": "1."}
    assert not mt.compare(a, b, rename=found.likely_rename)


def test_why_a_model_lacks_a_key(impl):
    model = impl.nn.Module()
    model.register_module("gone", None)
    model.register_buffer("table", impl.lib.ones(1), persistent=False)
    found = mt.compare({"gone.x": impl.lib.ones(1), "table": impl.lib.ones(1), "y": 1}, model)
    assert found.only_in_a == ["gone.x", "table", "y"]
    assert list(found.reasons) == ["gone.x", "table"]
    assert "gone.x: 'gone' is None in the model" in str(found)
    assert found.to_dict()["reasons"] == found.reasons
