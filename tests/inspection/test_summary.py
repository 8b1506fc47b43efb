# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.summary``: the lines, what is in them, and the inputs of the forward."""

from __future__ import annotations

import json

import pytest
from helpers.seen_models import models

import modtree as mt
from modtree import nn


def lines(summary):
    """name -> line, of the lines with names of their own."""
    return {line["name"]: line for line in summary.to_dict()["modules"]}


def test_without_an_input_there_are_no_shapes(impl):
    found = mt.summary(models(impl).Stack(3, 2)).to_dict()
    assert (found["class"], found["parameters"], found["trainable"]) == ("Stack", 15, 15)
    assert (found["buffers"], found["bytes"]) == (2, 76)
    assert "output" not in found["modules"][0]
    assert "output shape" not in str(mt.summary(models(impl).Stack(3, 2)))


def test_equal_blocks_take_the_lines_of_one(impl):
    found = mt.summary(models(impl).Stack(3, 24)).to_dict()["modules"]
    assert [(line["depth"], line["name"], line["count"]) for line in found] == [
        (0, "Stack", 1),
        (1, "layers", 1),
        (2, "0-23", 24),
        (3, "scale", 1),
        (3, "shift", 1),
        (1, "last", 1),
    ]
    block = found[2]
    assert block["paths"] == [f"layers.{i}" for i in range(24)]
    assert found[3]["paths"] == [f"layers.{i}.scale" for i in range(24)]
    assert (block["parameters"], found[1]["parameters"]) == (6, 144)


def test_without_folding_each_block_has_its_lines(impl):
    found = mt.summary(models(impl).Stack(3, 24), fold=False).to_dict()["modules"]
    assert len(found) == 3 + 24 * 3
    assert all(line["count"] == 1 for line in found)


def test_output_shapes_come_from_zeros_of_a_shape(impl):
    kinds = models(impl)
    found = mt.summary(kinds.Stack(3, 2), (5, 3))
    by_name = lines(found)
    assert by_name["Stack"]["output"] == [(5, 3), {"sum": ()}]
    assert by_name["0-1"]["output"] == (5, 3)
    assert (by_name["layers"]["output"], by_name["layers"]["calls"]) == (None, 0)
    assert found.to_dict()["input"] == [(5, 3)]
    assert json.loads(json.dumps(found.to_dict()))["modules"][0]["output"] == [[5, 3], {"sum": []}]


def test_blocks_with_different_outputs_are_not_folded():
    pools = nn.Sequential(*(nn.MaxPool1d(2) for _ in range(3)))
    assert [line["name"] for line in mt.summary(pools).to_dict()["modules"]][1:] == ["0-2"]
    found = mt.summary(pools, (1, 1, 16)).to_dict()["modules"]
    assert [line["output"] for line in found] == [(1, 1, 2), (1, 1, 8), (1, 1, 4), (1, 1, 2)]


def test_rounds_of_layers_are_folded():
    layers = [layer for _ in range(5) for layer in (nn.Linear(3, 3), nn.ReLU())]
    found = mt.summary(nn.Sequential(*layers, nn.Linear(3, 1)), (2, 3)).to_dict()["modules"]
    rounds, linear, relu, last = found[1:]
    assert (rounds["name"], rounds["class"], rounds["count"]) == ("0-9", "Linear, ReLU", 5)
    assert (rounds["parameters"], rounds["output"]) == (12, (2, 3))
    assert linear["paths"] == ["0", "2", "4", "6", "8"]
    assert (linear["depth"], relu["depth"], last["depth"]) == (2, 2, 1)


@pytest.mark.parametrize(("depth", "names"), [(0, 1), (1, 3), (2, 4), (3, 6), (None, 6)])
def test_a_limit_of_depth(impl, depth, names):
    found = mt.summary(models(impl).Stack(3, 4), depth=depth).to_dict()["modules"]
    assert len(found) == names
    assert found[0]["parameters"] == 27


def test_a_limit_of_depth_and_rounds():
    layers = [layer for _ in range(5) for layer in (nn.Linear(3, 3), nn.ReLU())]
    model = nn.Sequential(nn.Sequential(*layers))
    names = [line["name"] for line in mt.summary(model, depth=2).to_dict()["modules"]]
    assert names == ["Sequential", "0", "0-9"]
    assert len(mt.summary(model, depth=3).to_dict()["modules"]) == 5


def test_shared_modules_and_tied_tensors_are_marked(impl):
    kinds = models(impl)
    shared = kinds.Scale(2)
    model = impl.nn.Sequential(shared, kinds.Block(2), shared)
    model[1].scale.weight = shared.weight
    found = mt.summary(model, (1, 2))
    assert lines(found)["2"]["same_as"] == "0"
    assert lines(found)["0"]["calls"] == 2
    text = str(found)
    assert "same as 0" in text
    assert "weight is 0.weight" in text
    assert "called 2 times" in text
    assert "1 module and 1 tensor in several places, counted once" in text
    assert found.parameters == 4


def test_the_share_that_is_trained():
    model = nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 1), nn.ReLU())
    model[0].requires_grad_(False)
    text = [line.split() for line in str(mt.summary(model)).splitlines()]
    assert [line[3] for line in text[1:5]] == ["<1%", "0%", "100%", "-"]
    assert "10,201 (101 trainable, 10,100 frozen)" in str(mt.summary(model))


def test_dtypes_are_those_of_parameters_and_else_of_buffers():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, affine=False).double(), nn.ReLU())
    found = mt.summary(model).to_dict()["modules"]
    assert [line["dtypes"] for line in found] == [
        ["float32"],
        ["float32"],
        ["float64", "int64"],
        [],
    ]


# -- inputs ----------------------------------------------------------------------------------------


class Two(nn.Module):
    """Takes two arguments."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, indices, weights):
        return self.table(indices) * weights


def test_several_shapes_with_their_dtypes():
    found = mt.summary(Two(), [(2, 3), (2, 3, 4)], dtypes=[mt.int64, mt.float32])
    assert lines(found)["Two"]["output"] == (2, 3, 4)


def test_shapes_by_name():
    shapes = {"weights": (2, 3, 4), "indices": (2, 3)}
    found = mt.summary(Two(), shapes, dtypes={"indices": mt.int64})
    assert lines(found)["Two"]["output"] == (2, 3, 4)


def test_an_example_of_each_form():
    indices, weights = mt.zeros(2, 3, dtype=mt.int64), mt.ones(4)
    for example in [(indices, weights), [indices, weights], dict(indices=indices, weights=weights)]:
        assert lines(mt.summary(Two(), example=example))["Two"]["output"] == (2, 3, 4)
    assert lines(mt.summary(nn.ReLU(), example=weights))["ReLU"]["output"] == (4,)


def test_zeros_have_the_dtype_of_the_model(lib):
    found = mt.summary(lib.nn.Linear(3, 2).double(), (1, 3))
    assert lines(found)["Linear"]["output"] == (1, 2)


def test_a_model_without_tensors(lib):
    assert lines(mt.summary(lib.nn.ReLU(), (1, 3)))["ReLU"]["output"] == (1, 3)


def test_a_model_on_meta_runs_on_meta(lib):
    layer = lib.nn.Linear(3, 2, device="meta")
    assert lines(mt.summary(layer, (1, 3)))["Linear"]["output"] == (1, 2)
    assert lines(mt.summary(layer, example=lib.ones(4, 3)))["Linear"]["output"] == (4, 2)


def test_a_lazy_model_is_shown_as_it_will_be_and_stays_as_it_is(lib):
    model = lib.nn.Sequential(lib.nn.LazyLinear(3), lib.nn.LazyBatchNorm1d())
    before = str(mt.summary(model))
    assert "LazyLinear" in before
    assert "6 tensors without a shape before the first call" in before
    found = mt.summary(model, (2, 5)).to_dict()
    assert (found["class"], found["parameters"]) == ("Sequential", 18 + 6)
    assert [line["class"] for line in found["modules"]] == ["Sequential", "Linear", "BatchNorm1d"]
    assert str(mt.summary(model)) == before
    assert tuple(model(lib.ones(2, 7)).shape) == (2, 3)  # still takes what comes first


def test_an_example_in_the_place_of_the_shape():
    model, words = mt.nn.Embedding(5, 3), mt.tensor([[1, 2]])
    expected = mt.summary(model, example=words).to_dict()
    for given in (words, (words,), [words], {"input": words}):
        assert mt.summary(model, given).to_dict() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_shape": 3}, "input_shape is a shape with the batch dimension"),
        ({"input_shape": (2.5, 1)}, "input_shape is a shape with the batch dimension"),
        ({"input_shape": (-1, 2)}, "input_shape is a shape with the batch dimension"),
        ({"input_shape": "12"}, "input_shape is a shape with the batch dimension"),
        ({"input_shape": [(1, 2), 3]}, "input_shape is a shape with the batch dimension"),
        ({"input_shape": (1, 2), "dtypes": [None, None]}, "got 2 dtypes for 1 inputs"),
        ({"input_shape": {"x": (1,)}, "dtypes": {"y": None}}, r"does not have: \['y'\]"),
        ({"input_shape": (1, 2), "example": 3}, "without input_shape"),
        ({"example": 3, "dtypes": mt.float32}, "without dtypes"),
        ({"dtypes": mt.float32}, "dtypes needs input_shape or example"),
        ({"times": True}, "times needs input_shape or example"),
        ({"depth": -1}, "depth is a number of levels"),
        ({"depth": "2"}, "depth is a number of levels"),
        ({"input_shape": (1, 2), "times": -1}, "times is"),
        ({"input_shape": (1, 2), "times": "yes"}, "times is"),
        ({"columns": "sizes"}, "columns are name, class, .*, or 'all', got 'sizes'"),
        ({"columns": ["mult-adds"]}, "the column 'mult-adds' needs input_shape or example"),
        ({"input_shape": (1, 2), "columns": ["time"]}, "the column 'time' needs times"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message):
    with pytest.raises(TypeError, match=message):
        mt.summary(nn.Linear(2, 2), **arguments)


def test_what_is_no_module():
    with pytest.raises(TypeError, match="expected a module of modtree or torch, got dict"):
        mt.summary({}, (1, 2))


# -- times -----------------------------------------------------------------------------------------


def test_times_are_measured_on_request(impl):
    found = mt.summary(models(impl).Stack(3, 4), (2, 3), times=2)
    by_name = lines(found)
    assert by_name["Stack"]["seconds"] >= by_name["last"]["seconds"] > 0
    assert by_name["layers"]["seconds"] is None
    # One of four, on average: less than all of them together.
    assert 0 < by_name["0-3"]["seconds"] <= by_name["Stack"]["seconds"]
    assert "seconds" not in lines(mt.summary(models(impl).Stack(3, 4), (2, 3)))["Stack"]


def test_times_count_the_quickest_run():
    runs = []

    class Counts(nn.Module):
        def forward(self, x):
            runs.append(1)
            return x

    mt.summary(Counts(), (1,), times=5)
    assert len(runs) == 6
    mt.summary(Counts(), (1,), times=True)
    assert len(runs) == 6 + 4


# -- work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shapes", "expected"),
    [
        ("Linear(3, 5)", (2, 7, 3), 2 * 7 * 3 * 5),
        ("Bilinear(3, 4, 5)", [(2, 3), (2, 4)], 2 * 5 * (3 * 4 + 3)),
        ("Conv2d(4, 6, (3, 5), groups=2, padding=1)", (2, 4, 8, 9), 2 * 6 * 8 * 7 * 2 * 15),
        ("ConvTranspose1d(4, 6, 3, stride=2, groups=2)", (2, 4, 5), 2 * 4 * 5 * 3 * 3),
        ("LSTM(3, 4, num_layers=2, bidirectional=True)", (5, 2, 3), 10 * 2 * 16 * (3 + 4 + 8 + 4)),
        ("GRUCell(3, 4)", (2, 3), 2 * 12 * (3 + 4)),
        (
            "MultiheadAttention(8, 2, kdim=4, vdim=6)",
            [(3, 2, 8), (5, 2, 4), (5, 2, 6)],
            2 * 8 * (3 * 8 + 5 * 4 + 5 * 6 + 2 * 3 * 5 + 3 * 8),
        ),
        ("BatchNorm1d(3)", (2, 3), 0),
    ],
)
def test_multiply_adds_of_layers(impl, layer, shapes, expected):
    module = eval(f"nn.{layer}", {"nn": impl.nn})
    found = mt.summary(module, shapes)
    assert found.multiply_adds == found.to_dict()["modules"][0]["multiply_adds"] == expected
    assert f"mult-adds    {expected:,}" in str(found)


def test_all_calls_and_layers_are_added_up(impl):
    shared = impl.nn.Linear(3, 3)
    model = impl.nn.Sequential(shared, impl.nn.Sequential(shared, impl.nn.ReLU()))
    found = mt.summary(model, (2, 3))
    assert (found.multiply_adds, found.activation_bytes) == (2 * 18, 3 * 2 * 3 * 4)
    without = mt.summary(model)
    assert without.multiply_adds is without.activation_bytes is None


def test_a_class_of_the_user_with_the_name_of_a_layer():
    class Linear(nn.Module):
        def forward(self, x):
            return x

    assert mt.summary(Linear(), (1, 3)).multiply_adds == 0


def test_the_choice_of_columns(lib):
    model = lib.nn.Sequential(lib.nn.Conv1d(2, 3, 5), lib.nn.ReLU())
    head = str(mt.summary(model, (1, 2, 9), columns=["share", "kernel", "input shape"]))
    assert head.splitlines()[0].split() == "name kernel input shape share".split()
    assert head.splitlines()[2].split() == ["0", "5", "(1,", "2,", "9)", "100%"]
    assert mt.summary(model, columns="all").to_dict()["modules"][1]["kernel"] == (5,)
    assert "notes" in str(mt.summary(model, columns="notes")).splitlines()[0]


def test_fused_encoder_layers_show_their_modules(torch):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    before = torch.backends.mha.get_fastpath_enabled()
    assert lines(mt.summary(layer, (1, 3, 8)))["linear1"]["output"] == (1, 3, 16)
    assert torch.backends.mha.get_fastpath_enabled() is before


@pytest.mark.filterwarnings("ignore")
def test_quantized_layers_have_the_sizes_that_they_are_stored_in(torch):
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    found = mt.summary(model, (2, 8))
    assert (found.nbytes, found.multiply_adds) == (8 * 4 + 4 * 4, 2 * 8 * 4)
    assert "qint8" in str(found)


def test_wrapped_tensors_have_the_sizes_of_what_is_in_them(torch):
    class Packed(torch.Tensor):
        @staticmethod
        def __new__(cls, codes, scale):
            return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.bfloat16)

        def __init__(self, codes, scale):
            self.codes, self.scale = codes, scale

        def __tensor_flatten__(self):
            return ["codes", "scale"], None

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return NotImplemented

    module = torch.nn.Module()
    module.register_buffer("weight", Packed(torch.ones(6, 4, dtype=torch.int8), torch.ones(6)))
    found = mt.summary(module)
    assert (found.buffers, found.nbytes) == (24, 24 + 6 * 4)
    assert found.to_dict()["modules"][0]["dtypes"] == ["int8"]
