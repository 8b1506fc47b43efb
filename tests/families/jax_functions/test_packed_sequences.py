# SPDX-License-Identifier: BSD-3-Clause
"""Packed sequences of jax arrays, and recurrent layers over them, against torch."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt
from modtree import nn
from modtree.nn.utils import rnn

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")

LENGTHS = [2, 5, 3]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_over_packed_sequences_give_what_those_of_torch_do(kind):
    options = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    mt.manual_seed(0)
    layer = mt.to_family(getattr(nn, kind)(3, 4, **options), "jax")
    theirs = getattr(torch.nn, kind)(3, 4, **options)
    theirs.load_state_dict({k: torch.tensor(np.asarray(v)) for k, v in layer.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((3, 5, 3)).astype(np.float32)

    def run(x):
        packed = rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        output, last = layer(packed)
        padded, lengths = rnn.pad_packed_sequence(output, batch_first=True)
        assert lengths.tolist() == LENGTHS
        return padded, last

    padded, last = jax.jit(run)(jax.numpy.asarray(x))
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), LENGTHS, batch_first=True, enforce_sorted=False
    )
    output, expected_last = theirs(packed)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    np.testing.assert_allclose(padded, expected.detach().numpy(), atol=1e-5)
    states = (last, expected_last) if kind == "LSTM" else ((last,), (expected_last,))
    for a, b in zip(*states, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("make", [jax.numpy.asarray, torch.tensor], ids=["jax", "torch"])
def test_sequences_are_padded_packed_and_unpacked_in_their_library(make):
    sequences = [make(np.arange(n, dtype=np.float32)) for n in LENGTHS]
    padded = rnn.pad_sequence(sequences, batch_first=True, padding_value=-1)
    assert type(padded) is type(sequences[0]) and padded.shape == (3, 5)
    assert np.asarray(padded)[0].tolist() == [0, 1, -1, -1, -1]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    assert type(packed.data) is type(sequences[0])
    for back, sequence in zip(rnn.unpack_sequence(packed), sequences, strict=True):
        assert np.asarray(back).tolist() == np.asarray(sequence).tolist()
