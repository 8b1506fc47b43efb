# SPDX-License-Identifier: BSD-3-Clause
"""Which boxes and links a drawing has."""

from __future__ import annotations

import pytest
from helpers.drawn_models import chain, experts, random_tree

import modtree as mt
from modtree import nn
from modtree.inspection.drawing.outline import Box, make_outline
from modtree.inspection.tree import read_tree


def outline(model, *, depth=None, fold=True, leaves=False, max_boxes=300):
    tree = read_tree(model)
    return make_outline(tree, depth=depth, is_folded=fold, leaves=leaves, max_boxes=max_boxes)


def shown(box: Box):
    """A box as text, with its children behind it."""
    name = box.label if box.node is None else f"{box.label}:{type(box.node.module).__name__}"
    text = name + (f"x{box.count}" if box.count > 1 else "") + (f"+{box.hidden}" * bool(box.hidden))
    return [text, *map(shown, box.children)] if box.children else text


def linked(found):
    return [
        (link.kind, found_path(link.source), found_path(link.target), link.names)
        for link in found.links
    ]


def found_path(box: Box) -> str:
    return box.node.path if box.node is not None else box.leaf.path if box.leaf else box.label


def test_each_module_has_a_box():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    found = outline(model)
    assert shown(found.root) == [
        ":Sequential",
        "0:Linear",
        ["1:Sequential", "0:ReLU", "1:Linear"],
    ]
    assert [box.number for box in found.boxes] == list(range(5))
    assert [box.depth for box in found.boxes] == [0, 1, 1, 2, 2]
    assert (found.modules, found.root.parameters) == (5, 17)


def test_repeats_are_one_box():
    blocks = [nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(24)]
    found = outline(nn.ModuleList([*blocks, nn.Linear(2, 2)]))
    assert shown(found.root) == [
        ":ModuleList",
        ["0-23:Sequentialx24", "0:Linear", "1:ReLU"],
        "24:Linear",
    ]
    block, inner = found.boxes[1:3]
    assert (block.parameters, block.copies, inner.parameters, inner.copies) == (6, 24, 6, 24)
    assert block.last_path == "23"


def test_repeats_in_repeats_multiply():
    def block():
        return nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)])

    found = outline(nn.Sequential(*[block() for _ in range(4)]))
    assert shown(found.root) == [":Sequential", ["0-3:Sequentialx4", "0-2:Linearx3"]]
    assert found.boxes[2].copies == 12


def test_repeating_rounds_are_one_box():
    layers = [f() for _ in range(450) for f in (lambda: nn.Linear(2, 2), nn.ReLU)]
    found = outline(nn.Sequential(*layers, nn.Linear(2, 1)))
    assert shown(found.root) == [
        ":Sequential",
        ["0-899x450", "0:Linear", "1:ReLU"],
        "900:Linear",
    ]
    assert found.boxes[1].kind == "round" and found.boxes[2].copies == 450
    assert found.boxes[1].parameters == 6


def test_without_folding_each_has_a_box():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(5)])
    assert len(outline(model).boxes) == 2
    assert len(outline(model, fold=False).boxes) == 6


def test_depth_says_what_is_below():
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh()), nn.ReLU()))
    assert shown(outline(model, depth=0).root) == ":Sequential+5"
    assert shown(outline(model, depth=1).root) == [":Sequential", "0:Sequential+4"]
    assert len(outline(model, depth=3).boxes) == len(outline(model, depth=99).boxes) == 6


def test_a_long_chain_ends_in_a_count():
    found = outline(chain(900))
    assert (len(found.boxes), found.boxes[-1].hidden, found.modules) == (21, 879, 900)
    assert len(outline(chain(900), depth=500, max_boxes=1000).boxes) == 501


def test_a_wide_level_ends_in_a_count():
    model = nn.Sequential(*[nn.Linear(1, i % 71 + i // 50) for i in range(1, 1001)])
    found = outline(model, max_boxes=50)
    assert len(found.boxes) == 50
    assert (found.boxes[-1].kind, found.boxes[-1].hidden) == ("more", 1000 - 48)


def test_of_a_level_that_does_not_fit_the_first_are_opened():
    model = nn.Module()
    for i in range(10):
        part = nn.Sequential(*[nn.Linear(i + 1, k + 1) for k in range(6)])
        model.add_module(f"part{i}x", part)
    found = outline(model, max_boxes=30)
    assert [box.hidden for box in found.root.children] == [0] * 3 + [6] * 7
    assert len(found.boxes) == 1 + 10 + 3 * 6
    few = [nn.Sequential(nn.ReLU(), nn.Tanh()) for _ in range(5)]
    many = [nn.Sequential(*[nn.Linear(i, k) for k in range(1, 8)]) for i in range(1, 6)]
    found = outline(nn.ModuleList([*many, *few]), fold=False, max_boxes=1 + 10 + 5 * 2)
    assert [box.hidden for box in found.root.children] == [7] * 5 + [0] * 5


def test_a_round_that_does_not_fit_is_counted():
    kinds = [nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.CELU, nn.Mish, nn.Sigmoid]
    model = nn.Sequential(*[kind() for _ in range(3) for kind in kinds], nn.GLU())
    assert len(outline(model).boxes) == 1 + 9 + 1
    for max_boxes in (9, 10):
        assert shown(outline(model, max_boxes=max_boxes).root) == ":Sequential+25"


@pytest.mark.parametrize("max_boxes", [1, 2, 9, 40, 300])
def test_no_module_is_lost(max_boxes, rounds):
    """Boxes and counts of what has none are all modules."""
    for seed in range(rounds(4, 20)):
        found = outline(random_tree(seed), fold=False, max_boxes=max_boxes, depth=99)
        assert len(found.boxes) <= max_boxes
        drawn = sum(box.kind == "module" for box in found.boxes)
        assert drawn + sum(box.hidden for box in found.boxes) == found.modules
        folded = outline(random_tree(seed), max_boxes=max_boxes, leaves=True)
        assert len(folded.boxes) <= max_boxes


def test_a_shared_module_is_linked_to_its_box():
    shared = nn.Linear(2, 2)
    found = outline(nn.ModuleDict({"a": nn.Sequential(shared, nn.ReLU()), "b": shared}))
    assert shown(found.root) == [":ModuleDict", ["a:Sequential", "0:Linear", "1:ReLU"], "b:Linear"]
    assert found.boxes[-1].kind == "shared"
    assert linked(found) == [("shared", "b", "a.0", [])]


def test_links_lead_to_the_box_that_hides_the_module():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": nn.Sequential(nn.Sequential(shared)), "b": nn.Sequential(shared)})
    assert linked(outline(model, depth=1)) == [("shared", "b", "a", [])]
    assert linked(outline(model, depth=0)) == []


def test_links_of_folded_blocks_are_those_of_the_first():
    rotary = nn.Module()
    rotary.register_buffer("angles", mt.zeros(3))
    blocks = [nn.ModuleDict({"linear": nn.Linear(2, 2), "rotary": rotary}) for _ in range(24)]
    found = outline(nn.ModuleList(blocks))
    assert [box.label for box in found.root.children] == ["0", "1-23"]
    assert linked(found) == [("shared", "1.rotary", "0.rotary", [])]


def test_a_module_that_contains_itself():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential())
    model[1].up = model
    found = outline(model)
    assert shown(found.root) == [":Sequential", "0:Linear", ["1:Sequential", "up:Sequential"]]
    assert linked(found) == [("shared", "1.up", "", [])]


def tied_model():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5)})
    model["head"].weight = model["embed"].weight
    return model


def test_ties_are_links():
    found = outline(tied_model())
    assert linked(found) == [("tied", "head", "embed", ["weight"])]
    assert found.root.parameters == 20 and found.boxes[2].parameters == 5


def test_more_links_than_can_be_told_apart_are_left_out():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(290)])
    for layer in list(model)[2:]:
        layer.weight, layer.bias = model[0].weight, model[1].bias
    found = outline(model, fold=False)
    assert (len(found.boxes), len(found.links)) == (291, 200)
    text = mt.to_mermaid(model, fold=False)
    assert text.count("-->") + text.count("-.->") <= 500


def test_tensors_have_boxes_on_request():
    found = outline(tied_model(), leaves=True)
    assert [(box.kind, box.label) for box in found.boxes[1:]] == [
        ("module", "embed"),
        ("parameter", "weight"),
        ("module", "head"),
        ("parameter", "weight"),
        ("parameter", "bias"),
    ]
    assert linked(found) == [("tied", "head.weight", "embed.weight", ["weight"])]
    kinds = [box.kind for box in outline(nn.BatchNorm1d(2), leaves=True).boxes]
    assert kinds == ["module", "parameter", "parameter", "buffer", "buffer", "buffer"]


def test_tensors_without_a_box_are_counted():
    model = nn.Module()
    for i in range(100):
        model.register_parameter(f"p{i}", nn.Parameter(mt.zeros(1)))
    found = outline(model, leaves=True, max_boxes=20)
    assert len(found.boxes) == 20 and found.boxes[-1].hidden_tensors == 100 - 18
    assert outline(model, leaves=True, max_boxes=3).root.hidden_tensors == 100


def test_twenty_thousand_modules_are_a_few_boxes():
    found = outline(experts(76, 260))
    assert found.modules == 76 * 264 + 2
    assert [box.depth for box in found.boxes] == [0, 1, 1, 2, 2, 2, 3]
