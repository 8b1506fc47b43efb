# SPDX-License-Identifier: BSD-3-Clause
"""The causes that the error of a failed load names, each with the call that mends it: what the text
says is run, and the load succeeds.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import modtree
from modtree import nn
from modtree.nn.utils import parametrizations


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.attn = nn.Linear(4, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


class Net(nn.Module):
    def __init__(self, count=3, words=10):
        super().__init__()
        self.embed = nn.Embedding(words, 4)
        self.layers = nn.ModuleList([Block() for _ in range(count)])
        self.bn = nn.BatchNorm1d(4)
        self.lm_head = nn.Linear(4, words, bias=False)


class Wrapped(nn.Module):
    def __init__(self, name, module):
        super().__init__()
        self.add_module(name, module)


def saved(model=None):
    return dict((model or Net()).state_dict())


def replaced(pattern, by, state=None):
    return {re.sub(pattern, by, key): value for key, value in (state or saved()).items()}


def explained(model, state, **options):
    with pytest.raises(RuntimeError) as info:
        model.load_state_dict(state, **options)
    return str(info.value).partition("\n\n")[2]


def call_in(text):
    """The first call that the text suggests."""
    line = next(line for line in text.splitlines() if "Try: " in line)
    return line.partition("Try: ")[2].partition(", which leaves")[0].removesuffix(".")


def follow(text, model, state):
    """Does what the text says, as a user would paste it."""
    scope = {"model": model, "state_dict": state, "re": re, "nn": nn, "modtree": modtree}
    exec(call_in(text).replace(", before loading", ""), scope)
    return scope


def assert_loaded(model, state):
    """All that the state dict has for this model is in it."""
    values = [np.sort(v.numpy().reshape(-1)) for v in state.values()]
    given = np.sort(np.concatenate(values))
    own = np.concatenate([v.numpy().reshape(-1) for v in model.state_dict().values()])
    np.testing.assert_allclose(np.sort(own), given)


PREFIXES = ["module.", "_orig_mod.", "model.", "transformer.", "module._orig_mod.", "a.b.c.",
            "base_model.model.", "_forward_module."]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_of_the_state_dict(prefix):
    state, model = {prefix + key: value for key, value in saved().items()}, Net()
    text = explained(model, state)
    assert f"begin with {prefix!r}" in text and "partial" not in call_in(text)
    follow(text, model, state)
    assert_loaded(model, state)


@pytest.mark.parametrize("path", [["module"], ["model"], ["model", "transformer"]])
def test_a_prefix_of_the_model(path):
    model, state = Net(), saved()
    for name in reversed(path):
        model = Wrapped(name, model)
    text = explained(model, state)
    assert f"the keys of the model begin with {'.'.join(path) + '.'!r}" in text
    follow(text, model, state)
    assert_loaded(model, state)


def test_a_prefix_of_some_keys_of_the_model():
    model = Wrapped("backbone", Net())
    model.head = nn.Linear(4, 2)
    state = saved() | {f"head.{key}": value for key, value in saved(nn.Linear(4, 2)).items()}
    text = explained(model, state)
    assert "the keys of the model begin with 'backbone.'" in text
    follow(text, model, state)
    assert_loaded(model, state)


def test_a_prefix_and_a_head_of_another_task():
    state = {f"model.{key}": value for key, value in saved().items() if "lm_head" not in key}
    state["classifier.weight"] = modtree.ones(2, 4)
    model = Net()
    text = explained(model, state)
    assert "which leaves 1 missing, 1 not expected" in text
    follow(text, model, state)
    assert modtree.equal(model.layers[1].attn.weight, state["model.layers.1.attn.weight"])


@pytest.mark.parametrize(
    ("pattern", "by", "reason"),
    [
        ("^embed", "tokens", "'tokens' is 'embed' now"),
        ("^layers", "h", "'h' is 'layers' now"),
        (r"^layers\.(\d)", r"h.\1.block", "'h.*.block' is 'layers.*' now"),
        (r"\.attn\.", ".self_attn.", "'self_attn' is 'attn' now"),
        (r"\.attn\.", ".attn.base.", "have 'base' in them, which the model has not"),
        (r"^layers\.(\d+)\.attn", r"encoder.\1.self_attn", "'self_attn' is 'attn' now"),
        (r"\.weight$", ".kernel", "entries called 'kernel' are called 'weight' now"),
    ],
)
def test_other_names(pattern, by, reason):
    state, model = replaced(pattern, by), Net()
    text = explained(model, state)
    if "encoder" in by:
        assert "'encoder.*.self_attn' is 'layers.*.attn' now" in text
    else:
        assert reason in text
    follow(text, model, state)
    assert_loaded(model, state)


def nested(state):
    tree = {}
    for key, value in state.items():
        *path, name = key.split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[name] = value
    return tree


OTHER_FORMS = {
    "zeros": lambda state: replaced(r"\.(\d)\.", r".0\1.", state),
    "three zeros": lambda state: replaced(r"\.(\d)\.", r".000\1.", state),
    "upper case": lambda state: {key.upper(): value for key, value in state.items()},
    "some of it": lambda state: replaced("attn", "Attn", state),
    "nested dicts": nested,
    "values": lambda state: {f"{key}.value": value for key, value in state.items()},
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_other_forms_of_the_same_keys(form):
    model, state_dict = Net(), OTHER_FORMS[form](saved())
    text = explained(model, state_dict)
    exec(call_in(text), {"model": model, "state_dict": state_dict, "re": re})
    assert all(modtree.equal(model.state_dict()[key], value) for key, value in saved(model).items())


def test_a_model_with_upper_case_gets_names_of_its_own():
    model = Wrapped("Body", nn.Linear(2, 2))
    state_dict = {key.lower(): value for key, value in model.state_dict().items()}
    exec(call_in(explained(model, state_dict)), {"model": model, "state_dict": state_dict})


@pytest.mark.parametrize("make", [str.encode, lambda key: tuple(key.split("."))])
def test_keys_of_bytes_and_tuples(make):
    model = Net()
    state_dict = {make(key): value for key, value in saved().items()}
    with pytest.raises(TypeError, match="the keys of a state_dict must be str") as info:
        model.load_state_dict(state_dict)
    model.load_state_dict(eval(str(info.value).partition("; try ")[2], {"state_dict": state_dict}))


def test_several_names_at_once():
    state = replaced("^layers", "h", replaced(r"\.attn\.", ".self_attn."))
    state = replaced(r"norm\.weight$", "norm.gamma", replaced(r"norm\.bias$", "norm.beta", state))
    state = {f"module.{key}": value for key, value in state.items()}
    model = Net()
    follow(explained(model, state), model, state)
    assert_loaded(model, state)


def test_what_fits_two_ways_is_not_guessed():
    class Attention(nn.Module):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.add_module(name, nn.Linear(2, 2))

    def make(names):
        return nn.ModuleList([Attention(names) for _ in range(3)])

    text = explained(make(["wq", "wk", "wv"]), saved(make(["query", "key", "value"])))
    assert "Likely cause" not in text


def test_a_rule_that_would_break_what_fits_is_not_given():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    state = saved(nn.ModuleDict({"a": nn.Linear(2, 2), "c": nn.Linear(2, 2)}))
    follow(explained(model, state), model, state)
    assert_loaded(model, state)


def turned(state, part=""):
    return {key: v.T if part in key and v.ndim == 2 else v for key, v in state.items()}


def test_transposed_weights():
    def make():
        return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4), nn.LayerNorm(4))

    given = saved(make())
    state, model = turned(given), make()
    text = explained(model, state)
    assert "transposed entries (2 of 2 of the wrong shape)" in text and "other sizes" not in text
    follow(text, model, state)
    for key, value in model.state_dict().items():
        assert modtree.equal(value, given[key])


def test_transposed_weights_beside_square_ones():
    """Nobody sees whether the square ones are transposed as well."""
    text = explained(Net(), turned(saved()))
    assert "square ones, 'layers.0.attn.weight' and 2 more, may be so too" in text
    assert "load_state_dict" not in text.replace("in loading state_dict", "")


def test_layers_of_other_sizes_are_not_called_transposed_ones():
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False))
    text = explained(model, saved(nn.Sequential(*reversed(list(model)))))
    assert "or modules of other sizes" in text and "Try: " not in text


@pytest.mark.parametrize(("own", "given"), [(5, 3), (3, 5), (1, 2)])
def test_another_number_of_layers(own, given):
    """Which of equal blocks are the same nobody knows: one from the middle may have been taken
    out.
    """
    text = explained(Net(own), saved(Net(given)))
    block = "block" if own == 1 else "blocks"
    assert f"'layers' has {own} {block} in the model and {given} in the state dict" in text
    assert f"Try: build the model with {given}." in text and "partial" not in text
    assert "numbers may have shifted: the state dict has 'layers.0', 'layers.1'" in text
    assert "dry_run=True" in text


def test_another_number_of_layers_of_other_sizes():
    """Then the shapes tell which they are."""

    def make(count):
        model = nn.Module()
        model.layers = nn.ModuleList([nn.Linear(i, i + 1) for i in range(1, 1 + count)])
        return model

    model, state = make(3), saved(make(5))
    text = explained(model, state)
    assert "build the model with 5, or load what fits" in text
    exec(call_in(text).partition("with model.")[2].join(("model.", "")), {
        "model": model, "state_dict": state})  # fmt: skip
    for key, value in model.state_dict().items():
        assert modtree.equal(value, state[key])


def test_another_number_of_layers_under_a_prefix():
    state = {f"module.{key}": value for key, value in saved(Net(5)).items()}
    text = explained(Net(), state)
    assert "rename={'module.': ''} takes that away, which leaves 16 not expected" in text
    assert "'layers' has 3 blocks in the model and 5 in the state dict" in text
    assert "partial" not in text


def test_a_tied_entry_is_missing():
    model = Net()
    model.lm_head.weight = model.embed.weight
    state = saved()
    del state["lm_head.weight"]
    text = explained(model, state)
    assert "is the same tensor as" in text
    follow(text, model, state)
    assert modtree.equal(model.lm_head.weight, state["embed.weight"])


@pytest.mark.parametrize("prefix", ["", "module."])
def test_arrays(prefix):
    model = Net()
    state = {prefix + key: value.numpy() for key, value in saved().items()}
    text = explained(model, state)
    line = next(line for line in text.splitlines() if "arrays of NumPy" in line)
    scope = follow(line, model, state)
    rename = {"module.": ""} if prefix else None
    assert model.load_state_dict(scope["state_dict"], rename=rename) == ([], [])


def test_arrays_beside_other_values():
    model = Net()
    state = {key: value.numpy() for key, value in saved().items()}
    state["bn.weight"] = modtree.ones(4)
    text = explained(model, state)
    line = next(line for line in text.splitlines() if "arrays of NumPy" in line)
    assert model.load_state_dict(follow(line, model, state)["state_dict"]) == ([], [])


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("names", [["state_dict"], ["model"], ["ema"], ["checkpoint", "model"]])
def test_a_whole_checkpoint(names, prefix):
    state = {prefix + key: value for key, value in saved().items()}
    whole = state
    for name in reversed(names):
        whole = {name: whole, "epoch": 3}
    whole["optimizer"] = {"state": {}, "param_groups": []}
    model = Net()
    text = explained(model, whole)
    assert f"under {''.join(f'[{name!r}]' for name in names)}" in text
    follow(text, model, whole)
    assert_loaded(model, state)


def test_the_state_of_an_optimizer():
    state = {"state": {0: {"step": modtree.zeros(1)}}, "param_groups": [{"lr": 0.1}]}
    assert "the state of an optimizer" in explained(Net(), state)


def test_what_holds_no_state_dict_is_not_called_one():
    state = {"model": {"name": "net"}, "config": {"size": 3}}
    assert "Likely cause" not in explained(Net(), state)


def weight_normed(module, function=parametrizations.weight_norm):
    for part in module.modules():
        if isinstance(part, nn.Linear):
            function(part)
    return module


def linears(count=2):
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(count)))


@pytest.mark.parametrize("count", [1, 2, 6])
def test_saved_under_weight_norm(count):
    state, model = saved(weight_normed(linears(count))), linears(count)
    text = explained(model, state)
    assert "was parametrized when it was saved" in text
    calls = call_in(text)
    assert calls.count("get_submodule") == min(count, 4)
    if count <= 4:
        follow(text, model, state)
        assert model.load_state_dict(state) == ([], [])


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("function", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_saved_under_weight_norm_of_another_dimension(function):
    source, model = nn.Linear(3, 5), nn.Linear(3, 5)
    function(source, dim=1)
    state = saved(source)
    text = explained(model, state)
    assert "dim=1)" in text
    follow(text, model, state)
    assert model.load_state_dict(state) == ([], [])
    model(modtree.ones(1, 3))  # the older one computes it then
    np.testing.assert_allclose(model.weight.detach().numpy(), source.weight.detach().numpy())


def test_another_parametrization_of_two_tensors_is_not_called_weight_norm():
    class Sum(nn.Module):
        def forward(self, one, other):
            return one + other

        def right_inverse(self, value):
            return value / 2, value / 2

    source = nn.Linear(3, 5)
    nn.utils.parametrize.register_parametrization(source, "weight", Sum())
    text = explained(nn.Linear(3, 5), saved(source))
    assert "parametrize the model in the same way" in text and "weight_norm" not in text


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_saved_under_the_older_weight_norm():
    state = saved(weight_normed(linears(), nn.utils.weight_norm))
    model = linears()
    text = explained(model, state)
    assert "was saved under weight_norm" in text
    follow(text, model, state)
    assert model.load_state_dict(state) == ([], [])


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("function", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_saved_under_weight_norm_and_a_prefix(function):
    state = {
        f"module.{key}": value for key, value in saved(weight_normed(linears(), function)).items()
    }
    text = explained(linears(), state)
    assert "rename={'module.': ''}, partial=True), which leaves 2 missing, 4 not expected" in text
    assert "when it was saved" in text or "was saved under weight_norm" in text


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_saved_under_the_newer_weight_norm():
    state = saved(weight_normed(linears()))
    model = weight_normed(linears(), nn.utils.weight_norm)
    text = explained(model, state)
    assert "the model has the older weight_norm" in text
    follow(text, model, state)
    assert_loaded(model, state)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_model_with_the_older_weight_norm():
    text = explained(weight_normed(linears(), nn.utils.weight_norm), saved(linears()))
    assert "'0.weight' has weight_norm in the model, and had not when it was saved" in text
    assert "rename=" not in text


def test_a_model_that_is_parametrized():
    assert "'0.weight' is parametrized in the model" in explained(
        weight_normed(linears()), saved(linears())
    )


FORMS = {
    "plain": lambda layer: layer,
    "weight_norm": parametrizations.weight_norm,
    "older weight_norm": nn.utils.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "older spectral_norm": nn.utils.spectral_norm,
}
LAYERS = {
    "linear": (lambda: nn.Linear(3, 5), (2, 3)),
    "conv": (lambda: nn.Conv2d(2, 3, 2), (1, 2, 3, 3)),
    "transposed conv": (lambda: nn.ConvTranspose2d(2, 3, 2), (1, 2, 3, 3)),
    "square": (lambda: nn.Linear(3, 3), (2, 3)),
}
#: Pairs of which the values of one are not those of the other; the rest has a call.
WITHOUT_CALL = {
    (some, other)
    for some in FORMS
    for other in FORMS
    if "spectral" in other and "spectral" not in some or "weight" in other and "weight" not in some
} | {("weight_norm", "spectral_norm"), ("older weight_norm", "older spectral_norm")}


def normed(form, layer):
    """Layers of which two have the norm, with values of their own."""
    model = nn.Sequential(*(LAYERS[layer][0]() for _ in range(3)))
    for p in model.parameters():
        p.data.normal_()
    FORMS[form](model[0])
    FORMS[form](model[2])
    for _ in range(20):  # of the power iterations
        [part(modtree.ones(LAYERS[layer][1])) for part in model]
    return model.eval()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("own", FORMS)
@pytest.mark.parametrize("given", FORMS)
def test_every_form_of_a_norm(given, own, layer):
    source, model = normed(given, layer), normed(own, layer)
    state = saved(source)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        text = str(error).partition("\n\n")[2]
        assert ("Try: " in text and "first" not in text) is ((given, own) not in WITHOUT_CALL), text
        if (given, own) in WITHOUT_CALL:
            return
        follow(text, model, state)
        if own == "plain":  # what is called before loading
            assert model.load_state_dict(state) == ([], [])
    else:
        assert given == own or (given, own) == ("older weight_norm", "weight_norm")
    x = modtree.randn(LAYERS[layer][1])
    for part, other in zip(source.eval(), model.eval(), strict=True):
        np.testing.assert_allclose(
            part(x).detach().numpy(), other(x).detach().numpy(), rtol=1e-4, atol=1e-5
        )


def test_another_vocabulary():
    text = explained(Net(), saved(Net(words=12)))
    assert "the first size of 'embed.weight' is 12 in the checkpoint and 10 in the model" in text


def test_other_sizes_everywhere():
    def make(size):
        return nn.Sequential(nn.Linear(size, size), nn.Linear(size, size), nn.LayerNorm(size))

    text = explained(make(8), saved(make(4)))
    assert "4 in the checkpoint is 8 in the model" in text and "build the model with 4" in text


def test_a_newer_version():
    state = Net().state_dict()
    state._metadata["bn"]["version"] = 3
    del state["bn.num_batches_tracked"]
    model = Net()
    text = explained(model, state)
    assert "'bn' was saved in version 3 of its class, which is at version 2 now" in text
    follow(text, model, state)


def test_a_newer_version_of_another_shape():
    """strict=False takes no other shapes."""
    state = Net().state_dict()
    state._metadata["bn"]["version"] = 3
    del state["bn.num_batches_tracked"]
    state["bn.weight"] = modtree.ones(7)
    assert "strict=False" not in explained(Net(), state)


def test_an_older_version_without_the_count_of_batches_loads():
    state = saved()
    del state["bn.num_batches_tracked"]
    assert Net().load_state_dict(state) == ([], [])


def test_keys_and_values_of_any_kind():
    class Odd:
        @property
        def shape(self):
            raise KeyboardInterrupt

        __class__ = shape  # type: ignore[assignment]

    odd = Odd()
    for state in (
        {"module.embed.weight": odd, "module.": 1, ".": 2, "": 3, "a" * 1000: 4},
        {f"{i}": {f"{k}": {} for k in range(3)} for i in range(50)},
        {"model": {1: 2, None: odd}, "x": {"y": odd}},
        {f"layers.{i}": i for i in range(30)},
        {"layers." * 3000 + "weight": 1, "layers.\u0663.weight": 2},
    ):
        text = explained(Net(), state)
        assert "partial=True" in text or "Likely cause" in text
