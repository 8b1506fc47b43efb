# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.compare``: models, state dicts and files."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn


@pytest.fixture
def make(impl):
    """A function that makes a model of equal layers, with torch's modules too."""

    def model(layers=3):
        root = impl.nn.Module()
        root.layers = impl.nn.ModuleList([impl.nn.Module() for _ in range(layers)])
        for number, layer in enumerate(root.layers):
            layer.weight = impl.nn.Parameter(impl.lib.ones(2, 3) * number)
            layer.bias = impl.nn.Parameter(impl.lib.zeros(2))
        root.register_buffer("steps", impl.lib.tensor(7))
        return root

    return model


KEYS = [f"layers.{i}.{name}" for i in range(3) for name in ("weight", "bias")]


def text_of(found):
    return str(found).splitlines()[2:]


# -- what differs ----------------------------------------------------------------------------------


def test_nothing(make):
    model = make()
    found = mt.compare(model, copy.deepcopy(model))
    assert not found and text_of(found) == ["no differences"]
    assert repr(found) == str(found)
    assert (found.entries_of_a, found.entries_of_b, found.in_both, found.compared) == (7, 7, 7, 7)


def test_values(impl, make):
    a, b = make(), make()
    with impl.lib.no_grad():
        b.layers[1].weight[0, 0] = 3.0
        b.layers[2].weight.add_(0.5)
        b.steps.add_(1)
    found = mt.compare(a, b)
    assert found and set(found.values) == {"layers.1.weight", "layers.2.weight", "steps"}
    change = found.values["layers.1.weight"]
    assert (change.elements, change.different, change.max_abs) == (6, 1, 2.0)
    assert change.max_rel == pytest.approx(2 / 3)
    assert text_of(found) == [
        "values differ (3 of 7 entries):",
        "  steps: 1 of 1 element, by at most 1 (relative 0.125)",
        "  layers.1-2.weight: 2 entries: 7 of 12 elements, by at most 2 (relative 0.667)",
    ]


def test_tolerance(impl, make):
    a, b = make(), make()
    with impl.lib.no_grad():
        b.layers[2].weight.add_(0.5)
    assert mt.compare(a, b)
    assert not mt.compare(a, b, atol=0.5)
    assert not mt.compare(a, b, rtol=0.2) and mt.compare(a, b, rtol=0.19)
    assert not mt.compare(a, b, values=False) and mt.compare(a, b, values=False).compared == 0


def test_keys_that_only_one_side_has(make):
    a, b = make(2), make(4)
    del b.steps
    found = mt.compare(a, b)
    assert found.only_in_a == ["steps"]
    assert found.only_in_b == [f"layers.{i}.{n}" for i in (2, 3) for n in ("weight", "bias")]
    assert text_of(found)[:5] == [
        "only in a (1 entry):",
        "  steps",
        "only in b (4 entries):",
        "  layers.2-3.weight: 2 entries",
        "  layers.2-3.bias: 2 entries",
    ]


def test_shapes_and_dtypes(impl, make):
    a, b = make(), make()
    for layer in b.layers:
        layer.weight = impl.nn.Parameter(impl.lib.ones(2, 4))
    b.layers[0].bias = impl.nn.Parameter(impl.lib.zeros(2, dtype=impl.lib.float64))
    found = mt.compare(a, b)
    assert found.shapes["layers.0.weight"] == ((2, 3), (2, 4))
    assert found.dtypes == {"layers.0.bias": ("float32", "float64")} and not found.values
    assert text_of(found) == [
        "shapes differ (3 entries):",
        "  layers.0-2.weight: 3 entries: [2, 3] -> [2, 4]",
        "dtypes differ (1 entry):",
        "  layers.0.bias: float32 -> float64",
    ]


def test_a_dtype_that_all_entries_change(make):
    a = make()
    del a.steps
    b = copy.deepcopy(a).double()
    assert text_of(mt.compare(a, b)) == [
        "dtypes differ (6 entries):",
        "  all 6 entries: float32 -> float64",
    ]


def test_values_of_other_dtypes_are_compared_too(make):
    a, b = make(), make().double()
    b.layers[1].bias.data[0] = 2.0
    assert list(mt.compare(a, b).values) == ["layers.1.bias"]


def test_nan_is_the_same_as_nan(impl, make):
    a = make()
    with impl.lib.no_grad():
        a.layers[0].bias[0] = math.nan
    assert not mt.compare(a, copy.deepcopy(a))
    assert mt.compare(a, make()).values["layers.0.bias"].max_abs == math.inf


@pytest.mark.parametrize("side", ["a", "b"])
def test_meta_has_no_values(impl, make, side):
    on_meta = make().to("meta")
    pair = (on_meta, make()) if side == "a" else (make(), on_meta)
    found = mt.compare(*pair)
    assert not found and set(found.not_compared) == {*KEYS, "steps"} and found.compared == 0
    assert "values not compared (7 entries):" in text_of(found)
    assert "  layers.0-2.bias: 3 entries: it is on meta" in text_of(found)


def test_a_shape_that_is_not_known_yet(impl):
    lazy = impl.nn.LazyLinear(2)
    known = impl.nn.Linear(3, 2)
    found = mt.compare(lazy, known)
    assert found.shapes["weight"] == (None, (2, 3))
    assert "  weight: not known yet -> [2, 3]" in text_of(found)
    again = mt.compare(lazy, lazy)
    assert not again


# -- what is no tensor -----------------------------------------------------------------------------


def test_extra_state(impl):
    class Counter(impl.nn.Module):
        def __init__(self, state):
            super().__init__()
            self.state = state

        def get_extra_state(self):
            return self.state

    one = {"seen": [1, 2.5, math.nan], "where": impl.lib.ones(2), "name": "x"}
    same = {"seen": (1, 2.5, math.nan), "where": impl.lib.ones(2), "name": "x"}
    assert not mt.compare(Counter(one), Counter(same))
    found = mt.compare(Counter(one), Counter({**one, "name": "y"}))
    assert found.others == {"_extra_state.name": ("x", "y")}
    assert not mt.compare(Counter(one), Counter({**one, "name": "y"}), values=False)
    assert text_of(found) == [
        "other values differ (1 entry):",
        "  _extra_state.name: 'x' -> 'y'",
    ]
    assert mt.compare(Counter(one), Counter({**one, "seen": [1, 2.5]}))
    assert list(mt.compare(Counter(3), Counter(4)).others) == ["_extra_state"]


def test_a_tensor_in_place_of_a_number():
    found = mt.compare({"x": mt.ones(2)}, {"x": 3})
    assert found.others == {"x": ("a tensor of float32 [2]", 3)}
    assert mt.compare({"x": 3}, {"x": mt.ones(2)}).others == {"x": (3, "a tensor of float32 [2]")}


def test_state_dicts_of_optimizers(impl, make):
    model = make()
    model.steps = model.steps.float()
    optimizer = (impl.lib if impl.leaves == "torch" else mt).optim.Adam(model.parameters(), lr=0.1)
    before = copy.deepcopy(optimizer.state_dict())
    for parameter in model.parameters():
        parameter.grad = parameter.detach() + 1
    optimizer.step()
    found = mt.compare(before, optimizer)
    assert set(found.only_in_b) >= {"state.0.exp_avg", "state.5.exp_avg_sq"}
    assert "  state.0-5.exp_avg: 6 entries" in text_of(found)
    optimizer.param_groups[0]["lr"] = 0.2
    assert mt.compare(before, optimizer).others == {"param_groups.0.lr": (0.1, 0.2)}


def test_mappings_in_mappings_lose_nothing():
    cyclic = {"x": 1}
    cyclic["self"] = cyclic
    assert mt.compare({"a.b": 1, "a": {"b": 2}}, {"a.b": 1, "a": {"b": 3}}).others == {
        "a.b'": (2, 3)
    }
    assert not mt.compare(cyclic, cyclic)
    assert not mt.compare({"empty": {}}, {"empty": {}}) and mt.compare({"empty": {}}, {})


def test_values_that_cannot_be_compared():
    class Sullen:
        def __eq__(self, other):
            raise RuntimeError("not today")

        __hash__ = None

        def __repr__(self):
            raise RuntimeError("nor that")

    found = mt.compare({"x": Sullen()}, {"x": Sullen()})
    assert not found
    assert found.not_compared == {"x": "comparing the values failed: not today"}
    tensor_text = "a Sullen whose repr() fails -> 'a tensor of float32 [2]'"
    assert f"  x: {tensor_text}" in text_of(mt.compare({"x": Sullen()}, {"x": mt.ones(2)}))


def test_numpy_arrays_are_tensors():
    assert not mt.compare({"x": np.ones(3, np.float32)}, {"x": mt.ones(3)})
    words = {"x": np.array(["a", "b"])}
    assert not mt.compare(words, {"x": np.array(["a", "b"])})
    assert mt.compare(words, {"x": np.array(["a", "c"])}).others


def test_versions_where_both_sides_know_them():
    a = nn.Sequential(nn.BatchNorm1d(2)).state_dict()
    b = copy.deepcopy(a)
    b._metadata["0"]["version"] = 1
    found = mt.compare(a, b)
    assert found and found.versions == {"0": (2, 1)}
    assert text_of(found) == ["versions of modules differ (1 module):", "  0: 2 -> 1"]
    assert not mt.compare(a, dict(b))


# -- other names -----------------------------------------------------------------------------------


def test_a_prefix_is_found(make):
    wrapped = {f"module.{key}": value for key, value in make().state_dict().items()}
    found = mt.compare(wrapped, make())
    assert found.likely_rename == {"module.": ""}
    assert "rename={'module.': ''}" in str(found)
    assert not mt.compare(wrapped, make(), rename=found.likely_rename)
    back = mt.compare(make(), wrapped)
    assert not mt.compare(make(), wrapped, rename=back.likely_rename)


def test_renamed_modules_are_found(make):
    renamed = {k.replace("layers.", "blocks."): v for k, v in make().state_dict().items()}
    found = mt.compare(make(), renamed)
    assert found.likely_rename == {"layers.": "blocks."}
    assert not mt.compare(make(), renamed, rename=found.likely_rename)


def test_near_keys():
    found = mt.compare({"encoder.weights": 1, "x": 2}, {"encoder.weight": 1, "x": 2})
    assert found.near_keys == {"encoder.weights": "encoder.weight"}
    assert "encoder.weights of a is perhaps encoder.weight of b" in text_of(found)


def test_rename_leaves_out_and_refuses_two_of_one_key():
    a = {"x": mt.ones(1), "y": mt.zeros(1)}
    assert not mt.compare(a, {"z": mt.ones(1)}, rename=lambda key: "z" if key == "x" else None)
    with pytest.raises(ValueError, match="rename gives 'x' and 'y' the same key 'z'"):
        mt.compare(a, a, rename=lambda key: "z")
    with pytest.raises(TypeError, match="rename gave 3 for the key 'x': expected a str or None"):
        mt.compare(a, a, rename=lambda key: 3)
    with pytest.raises(TypeError, match="rename"):
        mt.compare(a, a, rename=3)


# -- text and JSON ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["a.0.w", "a.1.w", "a.2.w"], ["  a.0-2.w: 3 entries"]),
        (["a.0.w", "a.2.w", "a.3.w", "a.9.w"], ["  a.0,2-3,9.w: 4 entries"]),
        ([f"a.{i}.b.{j}.w" for i in range(3) for j in (1, 2)], ["  a.0-2.b.1-2.w: 6 entries"]),
        (["a.0.b.1", "a.1.b.2"], ["  a.*.b.*: 2 entries"]),
        ([f"a.{2 * i}" for i in range(9)], ["  a.*: 9 entries"]),
        (["a.0.w", "a.1.v", "b.0.w"], ["  a.0.w", "  a.1.v", "  b.0.w"]),
        (["a.01", "a.1"], ["  a.01", "  a.1"]),
        (["a", "a.0", "0", "1", ""], ["  a", "  a.0", "  0-1: 2 entries", "  "]),
    ],
)
def test_keys_fold(keys, expected):
    found = mt.compare(dict.fromkeys(keys, 1), {})
    assert text_of(found)[1:] == expected
    assert found.to_text(fold=False).splitlines()[3:] == [f"  {key}" for key in keys]


def test_text_obeys_nothing_that_keys_say():
    found = mt.compare({"a\x1b[2Jb\nc": 1, "é": 1}, {"é": "\x1b[2J"})
    assert (
        text_of(found)[1] == "  a\\x1b[2Jb\\nc" and "é" in str(found) and "\x1b" not in str(found)
    )


def test_endless_keys_take_no_time():
    dotted = {".".join("ab" * 200_000): 1, **{f"{i}.{'x' * 1000}": 1 for i in range(300)}}
    other = {f"c.{key}": 1 for key in dotted}
    found = mt.compare(dotted, other)
    assert len(found.only_in_a) == len(found.only_in_b) == 301 and not found.near_keys
    assert len(str(found)) > 800_000


def test_json(impl, make):
    a, b = make(), make(2)
    with impl.lib.no_grad():
        b.layers[0].bias[1] = math.nan
    answer = json.loads(json.dumps(mt.compare(a, b).to_dict(), allow_nan=False))
    assert answer["differs"] is True and answer["a"]["entries"] == 7 and answer["compared"] == 5
    assert answer["only_in_a"] == ["layers.2.weight", "layers.2.bias"] and answer["shapes"] == {}
    assert answer["values"] == {
        "layers.0.bias": {"elements": 2, "different": 1, "max_abs": "inf", "max_rel": "inf"}
    }
    others = mt.compare({"x": 1.5, "y": [1]}, {"x": math.inf, "y": None}).to_dict()["others"]
    assert others == {"x": [1.5, "inf"], "y": ["[1]", None]}


# -- files -----------------------------------------------------------------------------------------


@needs("ml_dtypes")
def test_files_models_and_state_dicts_in_any_combination(tmp_path):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2).bfloat16())
    path = tmp_path / "model.safetensors"
    mt.save_file(model, path)
    sides = [model, model.state_dict(), path, str(path)]
    for a in sides:
        for b in sides:
            assert not mt.compare(a, b)
    model[1].running_mean.add_(1)
    found = mt.compare(path, model)
    assert list(found.values) == ["1.running_mean"] and found.a == str(path)


def test_ties_views_and_extra_state_of_files(tmp_path):
    base = mt.arange(12.0).reshape(3, 4)
    state = {"base": base, "tie": base, "part": base[1:, ::2], "turned": base.t()}
    path = tmp_path / "model.safetensors"
    mt.save_file(state, path)
    found = mt.compare(path, state)
    assert not found and found.compared == 4
    state["part"] = state["part"] + 1
    assert list(mt.compare(path, state).values) == ["part"]


def test_extra_state_of_files(tmp_path):
    state = {"x": mt.ones(1), "_extra_state": {"seen": [1, [2, 3]], "by": {"epoch": 3}}}
    path = tmp_path / "model.safetensors"
    mt.save_file(state, path)
    assert not mt.compare(path, state)
    state["_extra_state"] = {"seen": [1, [2, 3]], "by": {"epoch": 4}}
    assert mt.compare(path, state).others == {"_extra_state.by.epoch": (3, 4)}


def test_a_file_that_cannot_be_read(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError):
        mt.compare(path, {})
    path.write_bytes(b"no checkpoint")
    with pytest.raises(
        mt.CheckpointError, match="model.safetensors: not a known checkpoint format"
    ):
        mt.compare({}, path)
    mt.save_file({"x": mt.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(mt.CheckpointError, match="truncated"):
        mt.compare(path, {})


# -- arguments -------------------------------------------------------------------------------------


def test_wrong_arguments(make):
    model = make()
    for wrong in (3, None, mt.ones(2)):
        with pytest.raises(TypeError, match="only models, state dicts and checkpoints"):
            mt.compare(model, wrong)
    for name in ("rtol", "atol"):
        with pytest.raises(ValueError, match=f"{name} is a tolerance of 0 or more, got"):
            mt.compare(model, model, **{name: -1.0})
        with pytest.raises(ValueError, match=name):
            mt.compare(model, model, **{name: math.nan})


@needs_torch
def test_torch_and_modtree_together():
    import torch

    ours, torchs = nn.Linear(2, 3), torch.nn.Linear(2, 3)
    assert set(mt.compare(ours, torchs).values) == {"weight", "bias"}
    with torch.no_grad():
        for name, value in ours.state_dict().items():
            torchs.state_dict()[name].copy_(torch.from_numpy(value.numpy()))
    assert not mt.compare(ours, torchs) and not mt.compare(torchs.state_dict(), ours)
    assert mt.compare(ours, torchs.bfloat16()).dtypes["bias"] == ("float32", "bfloat16")


@needs_torch
def test_torch_tensors_without_an_array():
    import torch

    sparse = {"x": torch.eye(3).to_sparse()}
    found = mt.compare(sparse, {"x": torch.eye(3)})
    assert not found and "cannot be had as an array" in found.not_compared["x"]
