# SPDX-License-Identifier: BSD-3-Clause
"""The causes of a failed load by which keys or values have another layout, each with the call that
mends it: what the text says is run, and the model computes what the saved one computed.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import modtree
from modtree import nn


def saved(model):
    return dict(model.state_dict())


def explained(model, state):
    with pytest.raises(RuntimeError) as info:
        model.load_state_dict(state)
    return str(info.value).partition("\n\n")[2]


def follow(text, model, state):
    line = next(line for line in text.splitlines() if "Try: " in line)
    call = line.partition("Try: ")[2].partition(", which leaves")[0].removesuffix(".")
    exec(call, {"model": model, "state_dict": state, "re": re, "modtree": modtree})


def assert_same(some, other):
    for key, value in some.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), other.state_dict()[key].numpy())


# -- what separates the parts of keys --------------------------------------------------------------


def numbered(mark):
    """Norms as attributes with a number, or in a container."""
    norms = [nn.LayerNorm(3) for _ in range(3)]
    block = nn.Module()
    if mark == ".":
        block.norm = nn.ModuleDict({str(i): norm for i, norm in enumerate(norms, 1)})
    else:
        for i, norm in enumerate(norms, 1):
            block.add_module(f"norm{mark}{i}", norm)
    block.batch_norm = nn.BatchNorm1d(3)
    block.fc1 = nn.Linear(3, 4)
    model = nn.Module()
    model.blocks = nn.ModuleList([block])
    for i, p in enumerate(model.parameters()):
        p.data.fill_(i)
    return model


@pytest.mark.parametrize("own", ["", ".", "_"])
@pytest.mark.parametrize("given", ["", ".", "_"])
def test_numbers_behind_words(given, own):
    source, model = numbered(given), numbered(own)
    for p in model.parameters():
        p.data.fill_(-1)
    if given == own:
        model.load_state_dict(saved(source))
        return
    text = explained(model, saved(source))
    assert f"'norm{given}1' is 'norm{own}1' now" in text
    follow(text, model, saved(source))
    for p, q in zip(model.parameters(), source.parameters(), strict=True):
        assert modtree.equal(p, q)


def test_numbers_behind_words_that_do_not_all_agree():
    """norm.1 may be norm1, or norm2, where the model counts from 1 and the checkpoint from 0."""
    model = nn.ModuleDict({f"norm{i}": nn.LayerNorm(3) for i in (1, 2)})
    state = saved(nn.ModuleDict({"norm": nn.ModuleList([nn.LayerNorm(3) for _ in range(2)])}))
    assert "Try: " not in explained(model, state)


@pytest.mark.parametrize("mark", ["/", "_", "-", ":", ""])
def test_other_separators(mark):
    source, model = numbered(""), numbered("")
    for p in model.parameters():
        p.data.fill_(-1)
    state = {key.replace(".", mark): value for key, value in saved(source).items()}
    text = explained(model, state)
    assert ("have '/' for '.'" if mark == "/" else f"have {mark!r} where") in text
    follow(text, model, state)
    assert_same(model, source)


def test_keys_that_are_one_without_dots():
    model = nn.ModuleDict({"a_b": nn.Linear(2, 2, bias=False)})
    model.a = nn.ModuleDict({"b": nn.Linear(2, 2, bias=False)})
    state = {key.replace(".", "_"): value for key, value in saved(model).items()}
    assert "get)" not in explained(model, state | {"a_c_weight": modtree.ones(2, 2)})


def test_a_key_too_many_keeps_the_call_back():
    model = numbered("")
    state = {key.replace(".", "_"): value for key, value in saved(model).items()}
    assert "get)" not in explained(model, state | {"more": modtree.ones(1)})


# -- None ------------------------------------------------------------------------------------------


def test_buffers_that_are_none_in_the_model():
    source = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False))
    text = explained(model, saved(source))
    assert "'1.running_mean' and 2 more are None in the model" in text
    exec("model.load_state_dict(" + text.partition("with model.load_state_dict(")[2][:-1],
         {"model": model, "state_dict": saved(source)})  # fmt: skip
    assert modtree.equal(model[0].weight, source[0].weight)
    assert model[1].running_mean is None


def test_what_is_none_beside_something_else():
    model = nn.Linear(2, 3, bias=False)
    text = explained(model, saved(nn.Linear(2, 3)) | {"more": modtree.ones(1)})
    assert "'bias' is None in the model" in text and "strict=False" not in text


def test_none_in_the_checkpoint():
    source, model = nn.Linear(2, 3, bias=False), nn.Linear(2, 3, bias=False)
    state = saved(source) | {"bias": None}
    text = explained(model, state)
    assert "the state dict has None under 'bias'" in text
    follow(text, model, state)
    assert_same(model, source)
    text = explained(model, state | {"more": modtree.ones(1)})
    assert "the state dict has None under 'bias'" in text and "Try: " not in text


# -- 1x1 convolutions ------------------------------------------------------------------------------


def dense():
    return nn.ModuleDict({"one": nn.Linear(2, 3), "two": nn.Linear(3, 4, bias=False)})


def convolutions(kind):
    return nn.ModuleDict({"one": kind(2, 3, 1), "two": kind(3, 4, 1, bias=False)})


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_pointwise_convolutions(kind, is_reverse):
    source, model = dense(), convolutions(kind)
    if is_reverse:
        source, model = model, source
    text = explained(model, saved(source))
    of = "a 1x1 convolution, and is that of a linear layer" if is_reverse else "a linear layer, and"
    assert f"it was that of {of}" in text
    follow(text, model, saved(source))
    for p, q in zip(model.parameters(), source.parameters(), strict=True):
        np.testing.assert_array_equal(p.detach().numpy().ravel(), q.detach().numpy().ravel())


def test_pointwise_convolutions_in_other_places():
    """Two layers may have changed their places, and not their kinds."""
    source = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Conv2d(3, 3, 1, bias=False)})
    model = nn.ModuleDict({"a": nn.Conv2d(3, 3, 1, bias=False), "b": nn.Linear(3, 3, bias=False)})
    text = explained(model, saved(source))
    assert "or modules are in other places" in text and "Try: " not in text


def test_a_larger_kernel_is_no_linear_layer():
    text = explained(nn.Linear(2, 3), saved(nn.Conv2d(2, 3, 3)))
    assert "convolution" not in text


# -- queries, keys and values ----------------------------------------------------------------------

NAMES = [("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("to_q", "to_k", "to_v")]


def split(names, count=2, size=4):
    def attention():
        return nn.ModuleDict({
            **{name: nn.Linear(size, size) for name in names}, "out_proj": nn.Linear(size, size)
        })  # fmt: skip

    return nn.ModuleDict({"layers": nn.ModuleList([attention() for _ in range(count)])})


def fused(count=2, size=4):
    rows = nn.ModuleList([nn.MultiheadAttention(size, 2) for _ in range(count)])
    return nn.ModuleDict({"layers": rows})


def parts_of(model, names):
    """Queries, keys and values, weights and biases, of all layers."""
    found = []
    for layer in model["layers"]:
        for entry in ("weight", "bias"):
            if isinstance(layer, nn.MultiheadAttention):
                found.append(getattr(layer, f"in_proj_{entry}"))
            else:
                found.append(modtree.cat([getattr(layer[name], entry) for name in names]))
        found += [layer.get_submodule("out_proj").weight, layer.get_submodule("out_proj").bias]
    return [value.detach().numpy() for value in found]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("is_split", [True, False])
def test_queries_keys_and_values(names, is_split):
    source, model = (split(names), fused()) if is_split else (fused(), split(names))
    text = explained(model, saved(source))
    three = f"'layers.0.{names[0]}.weight', 'layers.0.{names[1]}.weight'"
    assert three in text and "([4, 4] + [4, 4] + [4, 4])" in text and "([12, 4])" in text
    follow(text, model, saved(source))
    for value, other in zip(parts_of(model, names), parts_of(source, names), strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("is_split", [True, False])
def test_rows_of_an_unknown_order(is_split):
    one = nn.ModuleDict({"qkv": nn.Linear(4, 12)})
    three = nn.ModuleDict({name: nn.Linear(4, 4) for name in "qkv"})
    source, model = (three, one) if is_split else (one, three)
    text = explained(model, saved(source))
    assert "'q.weight', 'k.weight', 'v.weight' ([4, 4] + [4, 4] + [4, 4])" in text
    assert "whose rows may be in another order" in text and "Try: " not in text


def test_fewer_keys_than_queries():
    one = nn.ModuleDict({"qkv_proj": nn.Linear(8, 12, bias=False)})
    three = nn.ModuleDict({
        f"{name}_proj": nn.Linear(8, 8 if name == "q" else 2, bias=False) for name in "qkv"
    })  # fmt: skip
    assert "([8, 8] + [2, 8] + [2, 8])" in explained(one, saved(three))


def test_queries_keys_and_values_beside_something_else():
    state = saved(split(NAMES[0])) | {"more": modtree.ones(1)}
    text = explained(fused(), state)
    assert "of the state dict are 'layers.0.in_proj_weight'" in text and "cat" not in text


# -- averages --------------------------------------------------------------------------------------


def averaged(model):
    average = modtree.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    return average


def test_the_averages_of_an_averaged_model():
    source, model = nn.Linear(2, 3), nn.Linear(2, 3)
    state = saved(averaged(source))
    text = explained(model, state)
    assert "as AveragedModel saves averages of weights; those of the last step are in" in text
    follow(text, model, state)
    assert_same(model, source)


def test_an_averaged_model_gets_the_weights_of_a_model():
    source, model = nn.Linear(2, 3), averaged(nn.Linear(2, 3))
    text = explained(model, saved(source))
    assert "it is an AveragedModel, and its copy gets the weights" in text
    follow(text, model, saved(source))
    assert_same(model.module, source)
    assert model.n_averaged.item() == 1


@pytest.mark.parametrize("name", ["ema", "model_ema", "ema_state_dict", "swa_model", "averages"])
def test_averages_in_a_checkpoint(name):
    state = saved(nn.Linear(2, 3))
    text = explained(nn.Linear(2, 3), {"model": state, name: dict(state)})
    is_said = name != "averages"
    says = " (averages of weights)" if is_said else ""
    assert f"['model'] and ['{name}']{says}" in text and "Try: " not in text
    text = explained(nn.Linear(2, 3), {name: state, "epoch": 3})
    assert f"under ['{name}']{says}, as checkpoints" in text


def test_a_part_with_a_count_of_averages_is_one():
    model = nn.Linear(2, 3)
    whole = {"model": saved(model), "second": saved(averaged(model))}
    assert "['second'] (averages of weights)" in explained(nn.Linear(2, 3), whole)
