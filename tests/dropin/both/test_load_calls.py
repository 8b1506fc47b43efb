# SPDX-License-Identifier: BSD-3-Clause
"""What errors of loads of torch's own models suggest is done, and the model computes the same."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
parametrizations = nn.utils.parametrizations


@pytest.fixture(autouse=True)
def native(under_dropin):
    if not under_dropin:
        pytest.skip("the class of modtree explains, torch's does not")


def follow(model, state, error=RuntimeError):
    with pytest.raises(error) as caught:
        model.load_state_dict(state)
    line = next(line for line in str(caught.value).splitlines() if "Try: " in line)
    call = line.partition("Try: ")[2].removesuffix(".").replace(", before loading", "")
    exec(call, {"model": model, "state_dict": state, "re": re, "torch": torch, "nn": nn})
    return call


def normed(form):
    layers = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.ConvTranspose1d(5, 2, 2))
    for layer in layers[::2]:
        if form is not None:
            form(layer)
    for _ in range(20):  # of the power iterations
        layers[0](torch.ones(2, 3))
        layers[2](torch.ones(2, 5, 4))
    return layers.eval()


FORMS = {
    "plain": None,
    "weight_norm": parametrizations.weight_norm,
    "older weight_norm": nn.utils.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "older spectral_norm": nn.utils.spectral_norm,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("weight_norm", "plain"),
        ("older weight_norm", "plain"),
        ("weight_norm", "older weight_norm"),
        ("spectral_norm", "plain"),
        ("older spectral_norm", "plain"),
        ("spectral_norm", "older spectral_norm"),
        ("older spectral_norm", "spectral_norm"),
    ],
)
def test_forms_of_norms(given, own):
    source, model = normed(FORMS[given]), normed(FORMS[own])
    state = source.state_dict()
    follow(model, state)
    if own == "plain":
        model.load_state_dict(state)
    for layer, other, x in (
        (source[0], model[0], torch.ones(2, 3)),
        (source[2], model[2], torch.ones(2, 5, 4)),
    ):
        torch.testing.assert_close(layer.eval()(x), other.eval()(x))


@pytest.mark.parametrize("is_split", [True, False])
def test_queries_keys_and_values(is_split):
    names = ("q_proj", "k_proj", "v_proj")
    split = nn.ModuleDict({name: nn.Linear(4, 4) for name in (*names, "out_proj")})
    whole = nn.MultiheadAttention(4, 2)
    source, model = (split, whole) if is_split else (whole, split)
    call = follow(model, source.state_dict())
    assert ("torch.cat" in call) is is_split
    for entry in ("weight", "bias"):
        joined = torch.cat([getattr(split[name], entry) for name in names])
        assert torch.equal(joined, getattr(whole, f"in_proj_{entry}"))


def test_a_pointwise_convolution():
    source, model = nn.Linear(2, 3), nn.Conv2d(2, 3, 1)
    follow(model, source.state_dict())
    assert torch.equal(model.weight[:, :, 0, 0], source.weight)


@pytest.mark.parametrize("mark", ["/", "_"])
def test_separators(mark):
    source, model = (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) for _ in range(2))
    follow(model, {key.replace(".", mark): value for key, value in source.state_dict().items()})
    assert torch.equal(model[0].weight, source[0].weight)


def test_what_is_not_a_state_dict(tmp_path):
    source = nn.Linear(2, 3)
    torch.save(source.state_dict(), tmp_path / "model.pt")
    state = source.state_dict()
    for given in (source, tmp_path / "model.pt", list(state.items()), list(state.values())):
        model = nn.Linear(2, 3)
        follow(model, given, TypeError)
        assert torch.equal(model.weight, source.weight)


def test_averages():
    source, model = nn.Linear(2, 3), nn.Linear(2, 3)
    average = torch.optim.swa_utils.AveragedModel(source)
    with pytest.raises(RuntimeError, match="as AveragedModel saves averages of weights"):
        model.load_state_dict(average.state_dict())
