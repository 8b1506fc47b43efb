# SPDX-License-Identifier: BSD-3-Clause
"""A tree of modules as data: nodes, leaves, totals, and what is folded."""

from __future__ import annotations

import re

import pytest
from helpers.seen_models import models

import modtree as mt
from modtree import nn
from modtree.inspection.inputs import every_node
from modtree.inspection.tree import fold, read_tree, signature


def test_nodes_and_leaves_have_paths_and_facts(impl):
    tree = read_tree(models(impl).Stack(3, 2))
    nodes = {node.path: node for node in every_node(tree)}
    assert list(nodes) == [
        "",
        "layers",
        "layers.0",
        "layers.0.scale",
        "layers.0.shift",
        "layers.1",
        "layers.1.scale",
        "layers.1.shift",
        "last",
    ]
    scale = nodes["layers.1.scale"]
    assert (scale.name, scale.type_name, scale.extra) == ("scale", "Scale", "shape=(3,)")
    (weight,) = scale.leaves
    assert (weight.name, weight.path, weight.kind) == (
        "weight",
        "layers.1.scale.weight",
        "parameter",
    )
    assert (weight.shape, weight.dtype, weight.numel, weight.nbytes) == ((3,), "float32", 3, 12)
    assert (weight.requires_grad, weight.persistent, weight.first_path) == (True, True, None)
    calls = nodes["layers.0.shift"].leaves[1]
    assert (calls.kind, calls.dtype, calls.nbytes, calls.requires_grad) == (
        "buffer",
        "int64",
        8,
        False,
    )


def test_totals_are_of_the_whole_subtree(impl):
    model = models(impl).Stack(3, 2)
    model.layers[0].scale.weight.requires_grad_(False)
    tree = read_tree(model)
    assert (tree.parameters, tree.trainable, tree.buffers) == (15, 12, 2)
    assert tree.nbytes == 15 * 4 + 2 * 8
    block = tree.children[0].children[0]
    assert (block.parameters, block.trainable, block.buffers, block.nbytes) == (6, 3, 1, 32)


def test_a_tensor_and_a_module_count_where_they_stand_first(impl):
    kinds = models(impl)
    shared = kinds.Block(2)
    model = impl.nn.Sequential(shared, kinds.Scale(2), shared)
    model[1].weight = shared.scale.weight
    tree = read_tree(model)
    first, tied, again = tree.children
    assert [node.first_path for node in tree.children] == [None, None, "0"]
    assert tied.leaves[0].first_path == "0.scale.weight"
    assert (first.parameters, tied.parameters, again.parameters) == (4, 0, 0)
    assert (again.children, again.leaves) == ([], [])
    assert tree.parameters == 4


def test_a_module_that_contains_itself_ends(impl):
    model = models(impl).Block(2)
    model.scale.add_module("up", model)
    up = read_tree(model).children[0].children[0]
    assert (up.name, up.first_path, up.children) == ("up", "", [])


def test_buffers_that_are_not_saved_and_names_without_a_value(impl):
    module = impl.nn.Module()
    module.register_buffer("hidden", impl.lib.zeros(2), persistent=False)
    module.register_buffer("nothing", None)
    module.register_parameter("weight", None)
    module.add_module("child", None)
    tree = read_tree(module)
    assert [(leaf.name, leaf.persistent) for leaf in tree.leaves] == [("hidden", False)]
    assert tree.children == []


def test_uninitialized_leaves_have_no_shape(lib):
    layer = lib.nn.LazyLinear(3)
    tree = read_tree(layer)
    assert [(leaf.shape, leaf.numel, leaf.nbytes) for leaf in tree.leaves] == [(None, 0, 0)] * 2
    assert tree.leaves[0].dtype == "float32"
    assert tree.parameters == 0


def test_leaves_on_meta_have_the_bytes_they_would_take(lib):
    tree = read_tree(lib.nn.Linear(3, 2, device="meta", dtype=lib.float16))
    assert (tree.parameters, tree.nbytes, tree.leaves[0].dtype) == (8, 16, "float16")


def test_an_extra_repr_of_several_lines_or_that_raises():
    class Several(nn.Module):
        def extra_repr(self):
            return "one,\n  two"

    class Raises(nn.Module):
        def extra_repr(self):
            return self.missing

    assert read_tree(Several()).extra == "one, two"
    assert read_tree(Raises()).extra == ""


def test_what_was_put_into_a_registry_past_all_checks():
    module = nn.Module()
    module._parameters["odd"] = 3
    module._modules["number"] = 4
    tree = read_tree(module)
    assert [(leaf.shape, leaf.dtype, leaf.numel) for leaf in tree.leaves] == [(None, "int", 0)]
    assert tree.children[0].type_name == "int"


def test_a_deep_chain(impl):
    module = models(impl).Scale(1)
    for _ in range(900):
        parent = impl.nn.Module()
        parent.child = module
        module = parent
    tree = read_tree(module)
    assert tree.parameters == 1
    assert len(list(every_node(tree))) == 901


@pytest.mark.parametrize("value", [3, {}, None, nn.Linear])
def test_what_is_no_module(value):
    with pytest.raises(TypeError, match="expected a module of modtree or torch"):
        read_tree(value)


def test_a_module_without_the_constructor_of_module(impl):
    class Forgets(impl.nn.Module):
        def __init__(self):
            pass

    with pytest.raises(TypeError, match=r"got Forgets, whose __init__ did not call super"):
        read_tree(Forgets())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_scripted_module(torch):
    layer = torch.nn.Linear(2, 3)
    scripted = torch.jit.script(torch.nn.Sequential(layer, torch.nn.BatchNorm1d(3), layer))
    tree = read_tree(scripted)
    assert (tree.parameters, tree.buffers) == (9 + 6, 7)
    assert tree.children[2].parameters == 0


# -- what is alike ---------------------------------------------------------------------------------


def folds(children, **options):
    return [(part.label, part.count, part.period) for part in fold(children, **options)]


def test_equal_siblings_with_numbers_are_folded(impl):
    kinds = models(impl)
    blocks = [kinds.Block(2), *(kinds.Block(3) for _ in range(4)), kinds.Scale(3)]
    tree = read_tree(impl.nn.Sequential(*blocks))
    assert folds(tree.children) == [("0", 1, 1), ("1-4", 4, 1), ("5", 1, 1)]


@pytest.mark.parametrize("change", ["requires_grad", "dtype", "extra", "buffer", "child", "tie"])
def test_what_makes_siblings_different(change):
    blocks = [nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)]
    middle = blocks[1]
    if change == "requires_grad":
        middle[0].bias.requires_grad_(False)
    elif change == "dtype":
        middle.double()
    elif change == "extra":
        middle[0].out_features = 5
    elif change == "buffer":
        middle[1].register_buffer("mean", mt.zeros(1))
    elif change == "child":
        middle.append(nn.ReLU())
    else:
        middle[0].weight = blocks[0][0].weight
    tree = read_tree(nn.Sequential(*blocks))
    assert folds(tree.children) == [("0", 1, 1), ("1", 1, 1), ("2", 1, 1)]


def test_blocks_that_are_tied_the_same_way_are_alike():
    shared = nn.ReLU()
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), shared) for _ in range(4)))
    assert folds(read_tree(blocks).children) == [("0", 1, 1), ("1-3", 3, 1)]

    inside = [nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(4)]
    for block in inside:
        block[1].weight = block[0].weight
    assert folds(read_tree(nn.Sequential(*inside)).children) == [("0-3", 4, 1)]


def test_siblings_with_names_of_their_own_stay_apart_while_they_are_few():
    named = nn.ModuleDict({name: nn.ReLU() for name in ("query", "key", "value")})
    assert [part.count for part in fold(read_tree(named).children)] == [1, 1, 1]
    many = nn.ModuleDict({f"task_{chr(97 + i)}": nn.ReLU() for i in range(20)})
    assert folds(read_tree(many).children) == [("task_a .. task_t", 20, 1)]


def test_numbers_in_names_have_to_count_up():
    model = nn.Module()
    for name in ("layer1", "layer2", "layer3", "layer7", "head1"):
        model.add_module(name, nn.ReLU())
    assert folds(read_tree(model).children) == [
        ("layer1-3", 3, 1),
        ("layer7", 1, 1),
        ("head1", 1, 1),
    ]


def test_rounds_of_different_modules_are_folded_when_asked():
    layers = [layer for _ in range(4) for layer in (nn.Linear(2, 2), nn.ReLU())]
    children = read_tree(nn.Sequential(*layers, nn.Linear(2, 1))).children
    assert len(fold(children)) == 9
    assert folds(children, longest_pattern=3) == [("0-7", 4, 2), ("8", 1, 1)]
    (rounds, _) = fold(children, longest_pattern=2)
    assert [node.type_name for node in rounds.pattern] == ["Linear", "ReLU"]
    assert rounds.first is children[0]


def test_two_rounds_stay_as_they_are():
    layers = [layer for _ in range(2) for layer in (nn.Linear(2, 2), nn.ReLU())]
    assert len(fold(read_tree(nn.Sequential(*layers)).children, longest_pattern=4)) == 4


def test_what_is_alike_can_be_told():
    children = read_tree(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3), nn.ReLU())).children
    assert folds(children, alike=lambda node: node.type_name) == [("0-1", 2, 1), ("2", 1, 1)]
    assert signature(children[0]) != signature(children[1])


@pytest.mark.parametrize("key", [3, (), None, 2.5, b"w"], ids=repr)
@pytest.mark.parametrize("registry", ["_parameters", "_buffers", "_modules"])
@pytest.mark.parametrize("path", ["", "layers.1.scale"])
def test_a_key_that_is_no_name_is_named(impl, registry, key, path):
    """Who writes into the registries can put any key there; torch stops at adding it to text."""
    model = models(impl).Stack(3, 2)
    value = impl.nn.ReLU() if registry == "_modules" else impl.lib.zeros(1)
    getattr(model.get_submodule(path), registry)[key] = value
    with pytest.raises(TypeError):
        dict(model.named_modules() if registry == "_modules" else model.state_dict())
    what = re.escape(f"{registry} of {f'the module {path!r}' if path else 'the model'} has the ")
    for look in (mt.summary, mt.check, mt.to_svg, mt.to_dot, mt.to_mermaid):
        with pytest.raises(TypeError, match=f"{what}key {re.escape(repr(key))}, a "):
            look(model)
