# SPDX-License-Identifier: BSD-3-Clause
"""Codes of quantized weights, and values that another dtype does not have: nothing is ruined."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.core.loading.codes import find_codes

FLOATS = np.ones(4, np.float32)

#: The entries of a module as libraries write them: dtypes by names, and those that are left alone.
MODULES = {
    "float8": ({"weight": "float8_e4m3fn", "weight_scale_inv": "float32"}, "all"),
    "plain float8": ({"weight": "float8_e4m3fn", "bias": "float32"}, ""),
    "gptq": ({"qweight": "int32", "scales": "float16", "qzeros": "int32", "bias": "float16"},
             "qweight scales qzeros"),
    "bitsandbytes": ({"weight": "uint8", "weight.absmax": "float32", "weight.quant_map": "float32",
                      "weight.nested_absmax": "float32"}, "all"),
    "int8": ({"weight": "int8", "SCB": "float32", "bias": "float32"}, "weight SCB"),
    "torch": ({"weight.int_repr": "int8", "weight.scales": "float64", "bias": "float32"},
              "weight.int_repr weight.scales"),
    "outputs": ({"p.q.int_repr": "int8", "scale": "float32"}, "all"),
    "compressed-tensors": ({"weight_packed": "int32", "weight_scale": "bfloat16",
                            "input_global_scale": "float32", "weight_shape": "int64"},
                           "weight_packed weight_scale input_global_scale"),
    "mx": ({"weight": "float8_e4m3fn", "exponents": "float8_e8m0fnu"}, "exponents"),
    "optimizer": ({"state1": "uint8", "qmap1": "float32", "absmax1": "float32"}, "all"),
    "batch norm": ({"weight": "float32", "num_batches_tracked": "int64"}, ""),
    "attention": ({"logit_scale": "float32", "index": "int64", "mask": "uint8"}, ""),
    "layer scale": ({"layer_scale": "float32", "mask": "uint8"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", MODULES)
def test_codes_and_what_belongs_to_them_are_known_by_dtypes_and_names(kind):
    entries, alone = MODULES[kind]
    found = find_codes({f"layers.0.{name}": dtype for name, dtype in entries.items()})
    expected = {*entries} if alone == "all" else set(alone.split())
    assert {*found.beside, *found.belonging} == {f"layers.0.{name}" for name in expected}


@pytest.fixture
def scaled(tmp_path):
    """A file with the codes of one layer."""
    mt.save_file(
        {
            "0.weight": np.full((4, 3), 100, np.int8),
            "0.weight_scale": np.full((), 0.0034, np.float32),
            "0.bias": FLOATS,
        },
        tmp_path / "codes.safetensors",
    )
    return tmp_path / "codes.safetensors"


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_a_conversion_leaves_codes_and_scales_alone_and_says_so(ending, scaled, cli):
    target = scaled.with_name(f"half.{ending}")
    ended = cli("convert", scaled, target, "--dtype", "float16")
    assert ended.status == 0
    assert "not converted, codes and what belongs to them: 0.weight, 0.weight_scale" in ended.lines
    read = mt.load_file(target)
    assert [str(value.dtype) for value in read.values()] == [
        *("modtree.int8", "modtree.float32", "modtree.float16")
    ]


@needs("ml_dtypes")
def test_plain_float8_numbers_are_converted(tmp_path):
    import ml_dtypes

    mt.save_file({"w": FLOATS.astype(ml_dtypes.float8_e4m3fn)}, tmp_path / "a.safetensors")
    mt.checkpoints.convert(tmp_path / "a.safetensors", tmp_path / "b.pt", dtype="float32")
    assert mt.load_file(tmp_path / "b.pt")["w"].tolist() == FLOATS.tolist()


@pytest.fixture
def wide(tmp_path):
    """A file with numbers that float16 does not have."""
    values = np.array([1e6, 1e-9, 1.0, np.inf], np.float32)
    mt.save_file({"a.w": values, "norm.w": values[:1].copy()}, tmp_path / "wide.safetensors")
    return tmp_path / "wide.safetensors"


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_what_becomes_infinite_or_zero_is_counted(ending, wide, cli):
    target = wide.with_name(f"half.{ending}")
    ended = cli("convert", wide, target, "--dtype", "float16")
    assert ended.status == 1
    assert ended.lines[1:] == [
        *("2 values became infinite, in a.w, norm.w", "1 value became zero, in a.w")
    ]
    answer = json.loads(cli("convert", wide, target, "--dtype", "float16", "--json").out)
    assert answer["became_infinite"] == {"a.w": 1, "norm.w": 1}
    with pytest.warns(UserWarning, match="2 values became infinite, the first in 'a.w': keep="):
        mt.checkpoints.convert(wide, target, dtype="float16")


def test_entries_keep_their_dtype_where_that_is_wanted(wide, cli):
    target = wide.with_name("half.safetensors")
    ended = cli("convert", wide, target, "--dtype", "float16", "--keep", "norm", "--keep", "a")
    assert (ended.status, len(ended.lines)) == (0, 1)
    assert mt.load_file(target)["norm.w"].dtype == mt.float32
    mt.checkpoints.convert(wide, target, dtype="float16", keep=["**.w"])
    assert mt.load_file(target)["a.w"].dtype == mt.float32
    assert "no entry matches" in cli.trouble("convert", wide, target, "--keep", "x")


def test_a_partial_load_does_not_take_codes_for_weights(scaled):
    model = nn.Sequential(nn.Linear(3, 4))
    before = model[0].weight.detach().clone()
    report = model.load_state_dict(mt.load_file(scaled), partial=True)
    assert report.loaded == ["0.bias"]
    assert report.skipped["0.weight"] == (
        "codes of int8, without meaning as float32 without '0.weight_scale'"
    )
    assert mt.equal(model[0].weight, before)


def test_a_failed_load_of_codes_names_the_cause(scaled):
    model = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(RuntimeError, match="'0.weight' has codes of quantized weights, in int8"):
        model.load_state_dict(mt.load_file(scaled))
    found = mt.checkpoints.verify(scaled, model)
    assert "'0.weight_scale' belongs to" in found.causes[0]
    packed = {"0.weight.qdata": mt.ones(4, 3, dtype=mt.int8), "0.bias": mt.ones(4)}
    with pytest.raises(RuntimeError, match="'0.weight.qdata' has codes"):
        model.load_state_dict(packed)
