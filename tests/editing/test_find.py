# SPDX-License-Identifier: BSD-3-Clause
"""``find`` and ``find_parameters``: what is selected, in which order, and why nothing is."""

from __future__ import annotations

import random
import re

import pytest
from helpers.edited_models import random_tree, registries, stacked
from helpers.implementations import needs_torch
from helpers.small_modules import linear

import modtree as mt
from modtree import _C
from modtree.core.patterns import DEAD, Machine

PATTERNS = (
    "layers.*.{up,down}",
    "layers[1:3].act",
    "layers[-1].**",
    "**.act",
    "**.*p",
    "**.up.**",
    "*",
    "",
    "**",
    "head",
)


def test_patterns_find_modules_in_the_order_of_the_tree(impl):
    model = stacked(impl)
    assert mt.find(model, "layers.*.{down,up}").paths[:3] == [
        "layers.0.up",
        "layers.0.down",
        "layers.1.up",
    ]
    assert mt.find(model, "layers[1:3].act").paths == ["layers.1.act", "layers.2.act"]
    assert mt.find(model, "layers[-1]").modules == [model.layers[3]]
    assert mt.find(model, "").paths == [""]
    assert mt.find(model, "**").modules == list(model.modules())[1:]
    assert mt.find(model, ["head", "layers[0]"]).paths == ["layers.0", "head"]
    every = mt.find(model, ["", "**"])
    assert list(every) == list(model.named_modules())


def test_classes_find_modules_with_the_root(impl):
    model = impl.nn.Sequential(impl.nn.Sequential(), impl.nn.ModuleList())
    assert mt.find(model, impl.nn.Sequential).paths == ["", "0"]
    assert mt.find(model, [impl.nn.ModuleList, "0"]).paths == ["0", "1"]
    assert mt.find(model, (impl.nn.ModuleList, impl.nn.Sequential), exclude="0").paths == ["", "1"]


def test_filters_leave_out_whole_subtrees_and_single_modules(impl):
    model = stacked(impl)
    found = mt.find(model, "**.up", within="layers[1:]", exclude=["layers.2"])
    assert found.paths == ["layers.1.up", "layers.3.up"]
    assert mt.find(model, "**.up", within="layers.0").paths == ["layers.0.up"]
    wide = mt.find(model, where=lambda path, m: "weight" in dict(m._parameters) and path < "layers")
    assert wide.paths == ["head"]


def test_patterns_of_a_generator_are_kept(impl):
    model = stacked(impl)
    found = mt.find(
        model,
        (one for one in [impl.nn.ModuleList, "head", "layers.*.up"]),
        within=(pattern for pattern in ["layers", "head"]),
        exclude=(pattern for pattern in ["layers[1:]"]),
    )
    for _ in range(2):
        assert found.paths == ["layers", "layers.0.up", "head"] and "'layers[1:]'" in repr(found)
    assert "layers.1.up.weight" not in found.parameters().paths
    leaves = mt.find_parameters(model, (p for p in ["**.bias"]), within=(p for p in ["head"]))
    assert leaves.paths == leaves.paths == ["head.bias"]


@pytest.mark.parametrize("seed", range(15))
def test_shared_modules_are_found_once_under_the_first_path_that_matches(impl, seed):
    rng = random.Random(seed)
    model = random_tree(impl, rng)
    for pattern in ("**", "*.*", "**.k0", "**.0", "[1:].**", "**.{a0,k1}.*", "**.*1", "0.**.0"):
        machine, first = Machine(pattern), {}
        for path, module in model.named_modules(remove_duplicate=False):
            state, at = machine.start, model
            for name in path.split(".") if path else ():
                names = list(at._modules)
                if state != DEAD:
                    state = machine.step(state, name, names.index(name), len(names))
                at = at._modules[name]
            if machine.accepts(state):
                first.setdefault(id(module), (path, module))
        assert list(mt.find(model, pattern)) == list(first.values()), pattern


def test_a_tree_with_a_cycle_is_searched_to_its_end(impl):
    model = impl.nn.Sequential(impl.nn.Module())
    model[0].back = model
    assert mt.find(model, "**.0").paths == ["0"]
    assert mt.find(model, "**").paths == ["0", "0.back"]
    assert mt.find(model, "*.back.*.back").paths == ["0.back.0.back"]


def test_a_module_is_entered_once_however_many_paths_lead_to_it(impl):
    model = impl.nn.Sequential(impl.nn.Module())
    for _ in range(40):
        model = impl.nn.Sequential(model, model)
    assert mt.find(model, ".".join("*" * 30)).paths == [".".join("0" * 30)]
    assert len(mt.find(model, "**.0.**.0")) == 40 and len(repr(mt.find(model, "**"))) > 100


def test_names_that_hold_none_are_no_modules(impl):
    model = impl.nn.Module()
    model.gone = impl.nn.Module()
    model.gone = None
    for pattern in ("gone", "*", "**.gone", "g*", "[0]"):
        assert mt.find(model, pattern).paths == []


def test_selections_are_of_the_tree_as_it_is(impl):
    model = stacked(impl, 1)
    acts = mt.find(model, "**.act")
    assert len(acts) == 1 and acts
    model.layers.append(stacked(impl, 1).layers[0])
    assert acts.paths == ["layers.0.act", "layers.1.act"]
    assert model.layers[1].act in acts and "layers.1.act" in acts and "head" not in acts


def test_a_list_of_a_selection_is_one_search(impl):
    model, asked = stacked(impl, 2), []
    found = mt.find(model, "layers.*", where=lambda path, m: asked.append(path) or True)
    assert list(found) == [(f"layers.{i}", layer) for i, layer in enumerate(model.layers)]
    assert asked == ["layers.0", "layers.1"]
    pairs = iter(found)
    model.layers.append(impl.nn.Module())
    assert len(found) == 3 and len(list(pairs)) == 3
    del model.layers[0]
    assert len(found) == len(tuple(found)) == 2


def test_set_operations_keep_the_order_of_the_tree(impl):
    model = stacked(impl, 2)
    ups, first = mt.find(model, "**.up"), mt.find(model, "layers.0.**")
    assert (ups & first).paths == ["layers.0.up"]
    assert (ups | first).paths == ["layers.0.up", "layers.0.act", "layers.0.down", "layers.1.up"]
    assert (first - ups).paths == ["layers.0.act", "layers.0.down"]
    assert (mt.find(model, "head") | ups).paths == ["layers.0.up", "layers.1.up", "head"]
    with pytest.raises(ValueError, match="different models"):
        ups | mt.find(stacked(impl, 1), "head")
    with pytest.raises(TypeError):
        ups | ["head"]


def test_parents_and_children(impl):
    model = stacked(impl, 2)
    assert mt.find(model, "**.up").parents().paths == ["layers.0", "layers.1"]
    assert mt.find(model, "*").parents().paths == [""]
    assert mt.find(model, "layers.*").children().paths[:4] == [
        "layers.0.up",
        "layers.0.act",
        "layers.0.down",
        "layers.1.up",
    ]


def test_one_and_first(impl):
    model = stacked(impl, 2)
    assert mt.find(model, "head").one() is model.head
    assert mt.find(model, "**.up").first() is model.layers[0].up
    with pytest.raises(LookupError, match=r"'\*\*.up': expected one module, got 2: layers.0.up, l"):
        mt.find(model, "**.up").one()
    with pytest.raises(LookupError, match="nothing there matches 'haed'.*did you mean 'head'"):
        mt.find(model, "haed").one()


def test_an_empty_selection_says_how_far_the_pattern_leads(impl):
    model = stacked(impl, 2)
    reasons = {
        "layers.*.{upp,downn}": r"'layers.\*' matches 2 modules \(layers.0, layers.1\), but nothing"
        r" there matches 'upp'; the names there are up, act, down; did you mean 'up'\?",
        "**.gone": "no path below ends in 'gone'",
        "layers[7]": r"nothing there matches 'layers\[7\]'; the names there are layers, head",
    }
    for pattern, reason in reasons.items():
        assert re.search(reason, repr(mt.find(model, pattern))), repr(mt.find(model, pattern))
    assert "4 modules were found, none of which where= accepts" in repr(
        mt.find(model, "layers.*.{up,down}", where=lambda path, m: False)
    )
    assert "1 module was found, all left out by within= or exclude=" in repr(
        mt.find(model, "head", exclude="head")
    )
    assert "no module is a" in repr(mt.find(model, impl.nn.ModuleDict))
    assert "the parameters below them match 'head.**'" in repr(mt.find_parameters(model, "head"))


def test_an_empty_combination_says_what_is_empty(impl):
    model = stacked(impl, 1)
    head, act, none = (mt.find(model, pattern) for pattern in ("head", "**.act", "haed"))
    reasons = {
        head & act: "nothing is in both",
        head - head: "the second has all of the first",
        head & none: "did you mean 'head'",
        none & head: "did you mean 'head'",
        none | none: "did you mean 'head'",
        mt.find(model, "").parents(): "nothing holds them",
        head.children(): "nothing is in them",
        none.children(): "did you mean 'head'",
        act.parameters(): "no parameters are in them",
        none.buffers(): "did you mean 'head'",
    }
    for found, reason in reasons.items():
        assert reason in repr(found)
        with pytest.raises(LookupError, match=reason):
            found.one()


@needs_torch
def test_a_class_of_the_other_library_is_named():
    import torch

    model = torch.nn.Sequential(torch.nn.ReLU())
    assert "the model has torch.nn.modules.activation.ReLU, another class" in repr(
        mt.find(model, mt.nn.ReLU)
    )


def test_the_repr_folds_equal_branches():
    net = mt.nn.Sequential(*(mt.nn.Sequential(mt.nn.Linear(1, 2), mt.nn.ReLU()) for _ in range(9)))
    net[4] = mt.nn.Identity()
    assert repr(mt.find(net, "**.1")).splitlines() == [
        "9 modules of Sequential: '**.1'",
        "  Sequential",
        "    0: Sequential",
        "      1: ReLU  <--",
        "    1: Sequential  <--",
        "      1: ReLU  <--",
        "    2-3 x 2: Sequential",
        "      1: ReLU  <--",
        "    5-8 x 4: Sequential",
        "      1: ReLU  <--",
    ]


def test_a_long_repr_is_cut():
    kinds = (mt.nn.ReLU, mt.nn.GELU)
    net = mt.nn.Sequential(*(kinds[i % 2]() for i in range(66)))
    lines = repr(mt.find(net, "*")).splitlines()
    assert len(lines) == 42 and lines[-1] == "  ... and 27 more lines"


def test_parameters_and_buffers(impl):
    model = stacked(impl, 2)
    assert mt.find_parameters(model, "**.up.bias").paths == ["layers.0.up.bias", "layers.1.up.bias"]
    found = mt.find_parameters(model, "**")
    assert [(p, id(t)) for p, t in found] == [(p, id(t)) for p, t in model.named_parameters()]
    assert mt.find_parameters(model, "**.scale", kind="buffers").paths == [
        name for name, _ in model.named_buffers()
    ]
    both = mt.find_parameters(model, "head.*", kind="all")
    assert both.paths == ["head.weight", "head.bias", "head.scale"]
    assert mt.find(model, "head").parameters().paths == ["head.weight", "head.bias"]
    assert mt.find(model, ["layers.0", "layers.0.up"]).buffers().paths == [
        "layers.0.up.scale",
        "layers.0.down.scale",
    ]
    biases = mt.find_parameters(model, "**.bias")
    assert (biases & mt.find(model, "head").parameters()).paths == ["head.bias"]
    assert (mt.find_parameters(model, "head.scale", kind="all") | biases).paths[-1] == "head.scale"
    assert mt.find_parameters(model, where=lambda path, p: p.ndim == 1).paths == biases.paths
    with pytest.raises(ValueError, match="kind: expected"):
        mt.find_parameters(model, kind="gradients")


def test_tied_parameters_are_found_once(impl):
    model = impl.nn.Sequential(linear(impl), linear(impl))
    model[1].weight = model[0].weight
    assert mt.find_parameters(model, "**.weight").paths == ["0.weight"]
    assert mt.find_parameters(model, "1.weight").paths == ["1.weight"]


def test_a_search_changes_nothing(impl):
    model = stacked(impl)
    before = registries(model)
    for pattern in PATTERNS:
        repr(mt.find(model, pattern))
    assert registries(model) == before


@pytest.mark.parametrize("value", [3, None, mt.nn.Linear])
def test_what_is_not_a_model_is_refused(value):
    with pytest.raises(TypeError, match="expected a module of modtree or torch, got"):
        mt.find(value, "**")


def test_what_is_not_a_pattern_is_refused(impl):
    model = stacked(impl, 1)
    for value in (3, None, model.head, [3], 3.5):
        with pytest.raises(TypeError, match="expected a pattern such as 'layers.*.mlp', got "):
            mt.find(model, value)
    for name in ("within", "exclude"):
        with pytest.raises(TypeError, match="expected a pattern such as 'layers.*.mlp', got 3"):
            mt.find(model, "**", **{name: 3})


class Name(str):
    """A name whose comparison changes the tree."""

    def __eq__(self, other):
        Name.on_compare()
        return str.__eq__(self, other)

    __hash__ = str.__hash__
    on_compare = staticmethod(lambda: None)


def test_names_of_a_str_class_whose_comparison_changes_the_tree(impl):
    model = stacked(impl, 2)
    model.layers._modules[Name("odd")] = impl.nn.Module()
    assert mt.find(model, "layers.{odd,0}").paths == ["layers.0", "layers.odd"]
    Name.on_compare = staticmethod(model.layers._modules.clear)
    try:
        for pattern in ("layers.{odd,0}", "**.odd.x", "layers.*.up", "layers[-1]"):
            try:
                repr(mt.find(model, pattern))
            except RuntimeError as error:
                assert "changed" in str(error)
    finally:
        Name.on_compare = staticmethod(lambda: None)


def test_keys_that_are_no_names_are_refused(impl):
    model = impl.nn.Sequential(impl.nn.Module())
    model._modules[3] = impl.nn.Module()
    model[0]._parameters[4] = impl.nn.Parameter(impl.lib.ones(1))
    with pytest.raises(TypeError, match="a registry has the key 3, where names are str"):
        len(mt.find(model, "*"))
    with pytest.raises(TypeError, match="a registry has the key 4, where names are str"):
        len(mt.find_parameters(model, "0.*"))
    assert mt.find(model, "0").paths == ["0"]


@pytest.mark.parametrize(
    ("states", "start", "ask", "tables"),
    [
        ([], 0, None, None),
        ([(1, 2)], 0, None, None),
        ([(True, False, {"0": 7}, -1)], 0, None, None),
        ([(True, False, {"0": "x"}, -1)], 0, None, None),
        ([(True, False, {}, -2)], 0, None, None),
        ([(True, False, {}, -2)], 0, lambda *args: "x", None),
        ([(True, False, {}, 0)], 10**12, None, None),
        ([(True, False, {}, 0)], 0, None, ("_buffers", 3)),
        ((1,), 0, None, None),
    ],
)
def test_the_native_walk_refuses_what_is_not_a_machine(states, start, ask, tables):
    with pytest.raises(TypeError):
        _C._match_paths(mt.nn.Sequential(mt.nn.ReLU()), states, start, ask, tables)


def test_a_registry_that_is_emptied_while_it_is_read(impl):
    model = impl.nn.Sequential(impl.nn.Module(), impl.nn.Module())
    states = [(True, False, {}, -2)]

    def ask(*args):
        states.clear()
        model._modules.clear()
        return 0

    with pytest.raises(RuntimeError, match="changed size during iteration"):
        _C._match_paths(model, states, 0, ask, None)


def test_registries_of_other_classes(impl):
    class Table(dict):
        def items(self):
            return [*super().items()][::-1]

    model = stacked(impl, 2)
    model._modules = Table(model._modules)
    assert mt.find(model, "**.{up,head}").paths == [name for name, _ in model.named_modules()
                                                    if name.endswith(("up", "head"))]  # fmt: skip
    assert mt.find(model, "*").paths == ["head", "layers"]


def test_a_module_without_its_registries_is_empty(impl):
    model = impl.nn.Sequential(impl.nn.Module.__new__(impl.nn.Module))
    model._modules["1"] = impl.nn.Module()
    assert mt.find(model, "**").paths == ["0", "1"]
    assert mt.find_parameters(model, "**").paths == []


def test_a_very_deep_chain(impl):
    deepest = at = impl.nn.Module()
    for _ in range(5_000):
        above = impl.nn.Module()
        above.c = at
        at = above
    deepest.w = impl.nn.Parameter(impl.lib.ones(1))
    assert mt.find_parameters(at, "**.w").paths == [".".join(["c"] * 5_000 + ["w"])]
    assert mt.find(at, "**", where=lambda path, m: not m._modules).one() is deepest
    with mt.find(at, "**", where=lambda path, m: not m._modules).replace(impl.nn.Module):
        pass


def test_searches_keep_nothing_alive(impl, gc_tester):
    def searched():
        model = stacked(impl, 2)
        model.layers[0].shared = model.head
        found = mt.find(model, "**.{up,head}")
        assert len(found) == 3 and mt.find_parameters(model, "**")
        return model

    gc_tester(searched)
