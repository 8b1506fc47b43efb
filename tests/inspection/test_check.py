# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.check``: each kind of finding, where it is found and where it is not."""

from __future__ import annotations

import functools

import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs
from helpers.seen_models import models

import modtree as mt
from modtree import nn


def found(model, *example):
    """(path, kind) of all findings."""
    return [(finding.path, finding.kind) for finding in mt.check(model, *example)]


def module(impl, **attributes):
    made = impl.nn.Module()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


# -- hidden ----------------------------------------------------------------------------------------


def test_tensors_in_plain_attributes(impl):
    lib = impl.lib
    inner = module(impl, mask=lib.ones(2), nested={"a": [lib.ones(1), (lib.ones(1), 3)]}, n=4)
    assert found(module(impl, inner=inner)) == [
        ("inner.mask", "hidden-tensor"),
        ("inner.nested['a'][0]", "hidden-tensor"),
        ("inner.nested['a'][1][0]", "hidden-tensor"),
    ]


def test_a_hidden_tensor_that_keeps_a_graph(impl):
    kept = impl.lib.ones(2).requires_grad_() * 2
    (finding,) = mt.check(module(impl, kept=kept))
    assert "keeps the graph of a forward alive" in finding.message


def test_parameters_in_lists_and_dicts(impl):
    parameter = impl.nn.Parameter(impl.lib.ones(2))
    other = impl.nn.Parameter(impl.lib.ones(2))
    findings = mt.check(module(impl, scales=[parameter], by_name={"x": other}))
    assert [(f.path, f.kind) for f in findings] == [
        ("scales[0]", "hidden-parameter"),
        ("by_name['x']", "hidden-parameter"),
    ]
    assert "nn.ParameterList" in findings[0].hint
    assert "nn.ParameterDict" in findings[1].hint


def test_modules_in_lists_and_dicts(impl):
    kinds = models(impl)
    model = module(impl, heads=[kinds.Scale(2)], by_name={"x": kinds.Scale(2)})
    model.__dict__["direct"] = kinds.Scale(2)
    findings = mt.check(model)
    assert [(f.path, f.kind) for f in findings] == [
        ("heads[0]", "hidden-module"),
        ("by_name['x']", "hidden-module"),
        ("direct", "hidden-module"),
    ]
    assert "nn.ModuleList" in findings[0].hint
    assert "nn.ModuleDict" in findings[1].hint


def test_other_names_for_what_the_tree_has_are_fine(impl):
    kinds = models(impl)
    model = kinds.Stack(2, 2)
    model.ordered = [model.last, *model.layers]
    model.flat = [model.last.weight]
    for layer in model.layers:
        layer.__dict__["owner"] = model  # a way back up
    assert found(model) == []
    assert found(model.layers[0]) == []  # nor is the parent a part of the child


def test_a_hidden_thing_is_reported_once(impl):
    tensor = impl.lib.ones(2)
    assert found(module(impl, a=tensor, b=[tensor])) == [("a", "hidden-tensor")]


def test_deep_and_circular_containers_end(impl):
    loop = []
    loop.append(loop)
    assert found(module(impl, loop=loop, many=[0] * 100_000)) == []


@needs_torch
@pytest.mark.filterwarnings("ignore:.*which (modtree|torch) keeps as:UserWarning")
def test_a_module_of_the_other_library():
    import torch

    ours, theirs = nn.Module(), torch.nn.Module()
    ours.inside, theirs.inside = torch.nn.ReLU(), nn.ReLU()
    assert found(ours) == found(theirs) == [("inside", "foreign-module")]
    assert "a module of torch (ReLU) in a module of modtree" in mt.check(ours)[0].message
    assert "a module of modtree (ReLU) in a module of torch" in mt.check(theirs)[0].message


# -- names -----------------------------------------------------------------------------------------


def test_names_that_hide_methods(impl):
    assert found(module(impl, half=0.5, name=1, type="conv")) == [
        ("half", "shadowed-name"),
        ("type", "shadowed-name"),
    ]


def test_a_function_in_the_place_of_a_method_is_meant(impl):
    model = models(impl).Scale(2)
    model.forward = functools.partial(model.forward)
    model.train = lambda mode=True: model
    assert found(model) == []


def test_a_child_that_a_name_of_the_class_hides(impl):
    class Model(impl.nn.Module):
        head = None

        @property
        def body(self):
            return self._modules["body"]

        @property
        def wrong(self):
            raise ValueError

    model = Model()
    model.head = impl.nn.ReLU()
    model._modules["type"] = impl.nn.ReLU()
    model._modules["body"] = impl.nn.ReLU()
    model._modules["wrong"] = impl.nn.ReLU()
    assert found(model) == [
        ("head", "shadowed-name"),
        ("type", "shadowed-name"),
        ("wrong", "shadowed-name"),
    ]


def test_a_name_in_two_places(impl):
    model = models(impl).Scale(2)
    model.__dict__["weight"] = 3
    assert found(model) == [("weight", "shadowed-name")]
    other = models(impl).Scale(2)
    other._buffers["weight"] = impl.lib.ones(2)
    assert found(other) == [("weight", "shadowed-name")]


def test_names_with_dots(impl):
    model = impl.nn.Module()
    model._modules["a.b"] = impl.nn.ReLU()
    model._parameters[""] = None
    model._buffers["x."] = impl.lib.zeros(1)
    assert found(model) == [("", "dotted-name"), ("x.", "dotted-name"), ("a.b", "dotted-name")]


# -- tensors ---------------------------------------------------------------------------------------


def test_buffers_that_require_a_gradient(impl):
    model = impl.nn.Module()
    model.register_buffer("trained", impl.lib.ones(2).requires_grad_())
    model.register_buffer("computed", impl.lib.ones(2).requires_grad_() * 2)
    findings = mt.check(model)
    assert [(f.path, f.kind) for f in findings] == [
        ("trained", "buffer-requires-grad"),
        ("computed", "buffer-requires-grad"),
    ]
    assert "keeps the graph" in findings[1].message


def test_a_parameter_that_is_no_leaf(impl):
    model = models(impl).Scale(2)
    model._parameters["weight"] = model.weight * 2
    assert found(model) == [("weight", "not-a-leaf")]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", pytest.param("bfloat16", marks=needs("ml_dtypes"))]
)
def test_values_that_are_not_finite(impl, value, dtype):
    model = models(impl).Scale(3).to(getattr(impl.lib, dtype))
    with impl.lib.no_grad():
        model.weight[1:] = float(value)
    (finding,) = mt.check(model)
    assert (finding.path, finding.kind) == ("weight", "not-finite")
    word = "NaN" if value == "nan" else "infinite"
    assert finding.message == f"2 {word} among 3 values of the parameter"


def test_infinity_is_what_masks_are_made_of(impl):
    model = impl.nn.Module()
    model.register_buffer("mask", impl.lib.full((2, 2), float("-inf")))
    assert found(model) == []
    model.mask[0, 0] = float("nan")
    assert found(model) == [("mask", "not-finite")]


def test_parameters_of_several_dtypes(impl):
    kinds = models(impl)
    model = impl.nn.Sequential(kinds.Scale(2), kinds.Scale(2), kinds.Scale(2).double())
    (finding,) = mt.check(model)
    assert (finding.path, finding.kind) == ("", "mixed-dtypes")
    assert "2 of float32, 1 of float64; float64 has 2.weight" in finding.message


def test_what_was_left_on_meta(lib):
    model = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.Linear(2, 2, device="meta"))
    (finding,) = mt.check(model)
    assert (finding.path, finding.kind) == ("1.weight", "left-on-meta")
    assert found(lib.nn.Linear(2, 2, device="meta")) == []


# -- sharing ---------------------------------------------------------------------------------------


def test_ties(impl):
    kinds = models(impl)
    model = impl.nn.Sequential(kinds.Scale(2), kinds.Scale(2), kinds.Scale(2))
    model[1].weight = model[2].weight = model[0].weight
    (finding,) = mt.check(model)
    assert (finding.path, finding.kind) == ("0.weight", "tied")
    assert "1.weight, 2.weight" in finding.message


def test_what_the_finding_of_a_tie_warns_of(impl):
    """A load that assigns makes two parameters of one."""
    kinds = models(impl)
    model = impl.nn.Sequential(kinds.Scale(2), kinds.Scale(2))
    model[1].weight = model[0].weight
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert model[0].weight is not model[1].weight
    assert found(model) == []


def test_a_shared_module_is_no_tie(impl):
    shared = models(impl).Scale(2)
    assert found(impl.nn.Sequential(shared, shared)) == []


def test_parameters_over_one_memory(impl):
    nn, lib = impl.nn, impl.lib
    base = lib.ones(6, 2)
    model = module(impl, a=nn.Parameter(base[:4]), b=nn.Parameter(base[3:]))
    (finding,) = mt.check(model)
    assert (finding.path, finding.kind) == ("b", "shared-memory")
    assert "the memory of a" in finding.message


def test_parameters_side_by_side_in_one_memory(impl):
    nn, lib = impl.nn, impl.lib
    base = lib.ones(6, 2)
    assert found(module(impl, a=nn.Parameter(base[:3]), b=nn.Parameter(base[3:]))) == []
    assert found(module(impl, a=nn.Parameter(base[:, 0]), b=nn.Parameter(base[:, 1]))) == []
    assert found(module(impl, a=nn.Parameter(base.T), b=nn.Parameter(lib.ones(2)))) == []


# -- modes and hooks -------------------------------------------------------------------------------


def test_a_part_in_training_mode(impl):
    model = models(impl).Stack(2, 2).eval()
    model.layers[1].train()
    assert found(model) == [("layers.1", "mixed-modes")]


def test_a_part_that_is_frozen_in_evaluation_mode_is_fine(impl):
    model = models(impl).Stack(2, 2)
    model.layers[1].eval()
    assert found(model) == []


def test_a_module_in_two_parents_of_different_modes(impl):
    kinds = models(impl)
    shared = kinds.Scale(2)
    model = impl.nn.Sequential(impl.nn.Sequential(shared), impl.nn.Sequential(shared))
    assert found(model) == []
    model[1].eval()
    assert found(model) == [("0.0", "mixed-modes")]


def hook(*arguments):
    """Does nothing."""


def test_hooks_that_are_still_there(impl):
    model = models(impl).Stack(2, 1)
    handles = [
        model.register_forward_hook(hook),
        model.last.register_forward_pre_hook(hook),
        model.last.register_full_backward_hook(hook),
        model.last.register_full_backward_pre_hook(functools.partial(hook)),
    ]
    findings = mt.check(model)
    assert [(f.path, f.kind) for f in findings] == [("", "hook-left")] + [("last", "hook-left")] * 3
    assert "test_check.hook" in findings[0].message
    for handle in handles:
        handle.remove()
    assert found(model) == []


def test_hooks_for_all_modules(impl):
    handle = impl.module.register_module_forward_hook(hook)
    try:
        (finding,) = mt.check(models(impl).Scale(2))
    finally:
        handle.remove()
    assert (finding.path, finding.kind) == ("", "hook-left")
    assert "for all modules" in finding.message
    assert found(models(impl).Scale(2)) == []


# -- the report ------------------------------------------------------------------------------------


def test_the_report_has_kinds_with_the_first_findings_and_hints():
    model = nn.Module()
    model.many = [mt.ones(1) for _ in range(9)]
    model.half = 3
    lines = str(mt.check(model)).splitlines()
    assert lines[0] == "hidden-tensor (9)"
    assert lines[1].startswith("  many[0]: a tensor in a plain attribute of Module")
    assert lines[6].startswith(
        "    for i, tensor in enumerate(self.many): self.register_buffer(f'many_{i}', tensor)"
    )
    assert lines[7] == "  and 4 more"
    assert lines[9] == "shadowed-name (1)"
    assert str(mt.check(nn.ReLU())) == "nothing found"


def test_a_finding_prints_as_a_sentence():
    model = nn.Module()
    model.half = 3
    (finding,) = mt.check(model)
    first, second = str(finding).splitlines()
    assert first.startswith("half: an attribute (int) in the place of the method half()")
    assert first.endswith("[shadowed-name]")
    assert second == "  give the attribute another name"


def test_what_is_no_module():
    with pytest.raises(TypeError, match="expected a module of modtree or torch, got list"):
        mt.check([nn.ReLU()])


def test_a_check_changes_nothing(impl):
    kinds = models(impl)
    model = kinds.Stack(2, 3)
    model.layers[1].eval()
    modes = [part.training for part in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    mt.check(model, impl.lib.ones(1, 2))
    assert [part.training for part in model.modules()] == modes
    assert all(value.tolist() == state[name].tolist() for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
