# SPDX-License-Identifier: BSD-3-Clause
"""Tools that are given a name which matches nothing say so, with a near name, or do nothing."""

from __future__ import annotations

import pytest
from helpers.edited_models import inputs, registries, stacked

import modtree as mt


def fill(tensor):
    return tensor.zero_()


#: Called with the model and what :func:`mt.find` takes.
OF_MODULES = {
    "replace": lambda m, what, nn: mt.find(m, **what).replace(nn.Identity),
    "wrap": lambda m, what, nn: mt.find(m, **what).wrap(nn.Sequential),
    "unwrap": lambda m, what, nn: mt.find(m, **what).unwrap(),
    "remove": lambda m, what, nn: mt.find(m, **what).remove(),
    "requires_grad_": lambda m, what, nn: mt.find(m, **what).requires_grad_(False),
    "train": lambda m, what, nn: mt.find(m, **what).train(False),
    "init": lambda m, what, nn: mt.find(m, **what).init(fill),
    "param_groups of a selection": lambda m, what, nn: mt.find(m, **what).param_groups(),
    "parameters": lambda m, what, nn: mt.find(m, **what).parameters().requires_grad_(False),
    "buffers": lambda m, what, nn: mt.find(m, **what).buffers().init(fill),
    "children": lambda m, what, nn: mt.find(m, **what).children().remove(),
    "parents": lambda m, what, nn: mt.find(m, **what).parents().wrap(nn.Sequential),
    "both": lambda m, what, nn: (mt.find(m, **what) & mt.find(m, "head")).remove(),
    "edit": lambda m, what, nn: mt.edit(m).find(**what).replace(nn.Identity),
    "edit.replace": lambda m, what, nn: mt.edit(m).replace(mt.find(m, **what), nn.Identity),
    "capture": lambda m, what, nn: mt.capture(m, mt.find(m, **what)),
    "intervene": lambda m, what, nn: mt.intervene(m, {mt.find(m, **what): None}),
    "param_groups": lambda m, what, nn: mt.param_groups(m, {mt.find(m, **what): {}}),
}
OF_TENSORS = {
    "find_parameters.requires_grad_": lambda found: found.requires_grad_(False),
    "find_parameters.init": lambda found: found.init(fill),
    "find_parameters.param_groups": lambda found: found.param_groups(),
}


def state(model):
    grads = [p.requires_grad for p in model.parameters()]
    return registries(model), grads, [m.training for m in model.modules()]


@pytest.mark.parametrize("tool", OF_MODULES)
def test_a_change_of_nothing(impl, tool):
    model, use = stacked(impl, 1), OF_MODULES[tool]
    before = state(model)
    with pytest.raises(LookupError, match="the names there are layers, head; did you mean 'head'?"):
        use(model, {"what": "haed"}, impl.nn)
    use(model, {"what": "haed", "missing_ok": True}, impl.nn)
    assert state(model) == before


@pytest.mark.parametrize("tool", OF_TENSORS)
def test_a_change_of_no_parameters(impl, tool):
    model, use = stacked(impl, 1), OF_TENSORS[tool]
    before = state(model)
    with pytest.raises(LookupError, match="did you mean 'weight'?"):
        use(mt.find_parameters(model, "head.wieght"))
    use(mt.find_parameters(model, "head.wieght", missing_ok=True))
    assert state(model) == before


def test_names_that_lead_to_modules_without_parameters(impl):
    model = stacked(impl, 1)
    found = mt.find(model, "**.act")
    with pytest.raises(LookupError, match="no parameters are in them"):
        found.requires_grad_(False)
    assert not len(mt.find(model, "**.act", missing_ok=True).requires_grad_(False))
    assert len(found.train(False)) == 1


def test_receipts_of_what_may_be_missing_have_no_changes(impl):
    model = stacked(impl, 1)
    receipt = mt.find(model, "haed", missing_ok=True).replace(impl.nn.Identity)
    assert str(receipt) == "Receipt: 0 changes" and receipt("head.weight") == "head.weight"
    with mt.capture(model, mt.find(model, "haed", missing_ok=True)) as acts:
        model(inputs(impl))
    assert dict(acts) == {}
    with mt.capture(model, "head", stop_after=mt.find(model, "haed", missing_ok=True)) as acts:
        model(inputs(impl))
    assert list(acts) == ["head"]
