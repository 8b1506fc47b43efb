# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers against torch's: every option, gradients, checkpoints, packed sequences, cells,
errors.
"""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest
from helpers.layers_common import (
    check_copies,
    check_description,
    check_run,
    check_where,
    convert,
    load,
    make,
    same,
    tensors,
)
from helpers.same import differentiated
from helpers.same import same as same_outcome
from helpers.support import raises

import modtree as mt
from modtree import nn
from modtree.nn.utils import rnn

torch = pytest.importorskip("torch")

LAYERS = {
    "RNN": ((4, 5), {}),
    "RNN relu": ((4, 5), {"nonlinearity": "relu", "num_layers": 2}),
    "RNN positions": ((4, 5, 2, "relu", False, True), {}),
    "RNN all": ((4, 5, 2), {"bias": False, "bidirectional": True, "batch_first": True}),
    "LSTM": ((4, 5), {}),
    "LSTM layers": ((4, 5), {"num_layers": 3}),
    "LSTM both ways": ((4, 5), {"bidirectional": True}),
    "LSTM all": (
        (4, 5, 2),
        {"bias": False, "bidirectional": True, "batch_first": True, "dropout": 0.3},
    ),
    "LSTM projected": ((4, 5), {"proj_size": 3}),
    "LSTM projected all": ((4, 5, 2), {"proj_size": 2, "bidirectional": True, "batch_first": True}),
    "GRU": ((4, 5), {}),
    "GRU layers": ((4, 5), {"num_layers": 2, "dropout": 0.5}),
    "GRU all": ((4, 5, 2), {"bias": False, "bidirectional": True, "batch_first": True}),
}
layer = pytest.mark.parametrize("label", LAYERS)


def pair(label):
    args, kwargs = LAYERS[label]
    return make(label.split()[0], args, kwargs)


def states_of(theirs, batch):
    """Random first states as torch wants them: one array, or a pair."""
    rng = np.random.default_rng(2)
    count = theirs.num_layers * (2 if theirs.bidirectional else 1)
    lead = (count,) if batch is None else (count, batch)
    h = rng.standard_normal((*lead, theirs.proj_size or theirs.hidden_size))
    if theirs.mode != "LSTM":
        return h
    return h, rng.standard_normal((*lead, theirs.hidden_size))


def sequence(theirs, batch=3, steps=6):
    rng = np.random.default_rng(1)
    if batch is None:
        return rng.standard_normal((steps, 4))
    shape = (batch, steps, 4) if theirs.batch_first else (steps, batch, 4)
    return rng.standard_normal(shape)


@layer
def test_description(label):
    ours, theirs = pair(label)
    check_description(ours, theirs)
    check_copies(ours)
    assert ours._flat_weights_names == theirs._flat_weights_names
    assert [[tuple(w.shape) for w in ws] for ws in ours.all_weights] == [
        [tuple(w.shape) for w in ws] for ws in theirs.all_weights
    ]
    assert [tuple(w.shape) for w in ours._flat_weights] == [
        tuple(w.shape) for w in theirs._flat_weights
    ]
    assert ours.flatten_parameters() is None
    bound = 1 / np.sqrt(5)
    for p in ours.parameters():
        assert 0 < np.abs(p.detach().numpy()).max() <= bound


@layer
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize("batch", [3, 1, None])
def test_runs(label, batch, given, dtype):
    ours, theirs = pair(label)
    inputs = [sequence(theirs, batch)] + ([states_of(theirs, batch)] if given else [])
    check_run(ours.eval(), theirs.eval(), inputs, dtype=dtype)


@pytest.mark.parametrize("label", ["RNN", "LSTM", "GRU", "LSTM projected all"])
def test_one_step_and_one_sequence(label):
    ours, theirs = pair(label)
    check_run(ours, theirs, [sequence(theirs, 2, 1), states_of(theirs, 2)])


@pytest.mark.parametrize("label", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("which", ["outputs", "last"])
def test_gradients_through_one_of_the_results(label, which):
    ours, theirs = pair(label)
    load(ours.double(), theirs.double())
    x, first = sequence(theirs), states_of(theirs, 3)

    def run(lib, module):
        given, start = convert(lib, [x, first], grad=True)
        output, last = module(given, start)
        results = [output] if which == "outputs" else tensors(last)[-1:]
        sum((r * r).sum() for r in results).backward()
        return [
            given.grad,
            *(s.grad for s in tensors(start)),
            *(p.grad for p in module.parameters()),
        ]

    for mine, other in zip(run(mt, ours), run(torch, theirs), strict=True):
        same(mine, other, 1e-10)


@pytest.mark.parametrize("label", ["RNN relu", "LSTM", "LSTM projected", "GRU"])
def test_results_may_be_changed_in_place(label):
    ours, theirs = pair(label)
    load(ours.double(), theirs.double())
    x = sequence(theirs)

    def run(lib, module):
        given = lib.from_numpy(x.copy()).requires_grad_()
        output, last = module(given)
        output.mul_(3.0)
        for t in tensors(last):
            t.add_(1.0)
        (output.sum() + sum((t * t).sum() for t in tensors(last))).backward()
        return [given.grad, *(p.grad for p in module.parameters())]

    for mine, other in zip(run(mt, ours), run(torch, theirs), strict=True):
        same(mine, other, 1e-10)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "label",
    ["RNN", "RNN relu", "RNN all", "LSTM", "LSTM all", "LSTM projected all", "GRU", "GRU all"],
)
def test_second_derivatives(label, packed):
    ours, theirs = pair(label)
    load(ours.double().eval(), theirs.double().eval())
    x, first = sequence(theirs), states_of(theirs, 3)

    def run(lib, module):
        given, start = convert(lib, [x, first], grad=True)
        leaves = [given, *tensors(start), *module.parameters()]
        tools = lib.nn.utils.rnn
        if packed:
            data = tools.pack_padded_sequence(given, [6, 3, 2], theirs.batch_first)
            output, last = module(data, start)
            output = output.data
        else:
            output, last = module(given, start)
        total = sum((r * r).sum() for r in [output, *tensors(last)])
        grads = lib.autograd.grad(total, leaves, create_graph=True)
        return lib.autograd.grad(sum((g * g).sum() for g in grads), leaves)

    for mine, other in zip(run(mt, ours), run(torch, theirs), strict=True):
        same(mine, other, 1e-8)


@pytest.mark.parametrize("label", ["LSTM", "GRU", "RNN"])
def test_only_what_needs_a_gradient_gets_one(label):
    ours, _ = pair(label)
    ours.weight_hh_l0.requires_grad_(False)
    ours.bias_ih_l0.requires_grad_(False)
    ours(mt.randn(3, 2, 4))[0].sum().backward()
    assert ours.weight_hh_l0.grad is None
    assert ours.bias_ih_l0.grad is None
    assert ours.bias_hh_l0.grad is not None
    for p in ours.parameters():
        p.requires_grad_(False)
    x = mt.randn(3, 2, 4, requires_grad=True)
    ours(x)[0].sum().backward()
    assert tuple(x.grad.shape) == (3, 2, 4)


def test_dropout_between_layers():
    mt.manual_seed(0)
    ours = nn.LSTM(4, 50, 2, dropout=0.5)
    x = mt.randn(6, 3, 4)
    a, b = ours(x)[0], ours(x)[0]
    assert not (a == b).all()
    ours.eval()
    assert (ours(x)[0] == ours(x)[0]).all()
    # Everything dropped: the second layer sees zeros.
    silent = nn.GRU(4, 5, 2, dropout=1.0)
    first, second = silent(x)[0], silent(x * 3)[0]
    assert (first == second).all()
    a.sum().backward()
    assert ours.weight_ih_l0.grad is not None


@pytest.mark.parametrize("label", ["LSTM all", "GRU all", "RNN all", "LSTM projected all"])
def test_meta(label):
    args, kwargs = LAYERS[label]
    theirs = pair(label)[1]
    module = getattr(nn, label.split()[0])(*args, **kwargs, device="meta")
    output, last = module(mt.empty(3, 6, 4, device="meta"))
    expected, expected_last = theirs(torch.zeros(3, 6, 4))
    assert output.is_meta
    assert tuple(output.shape) == tuple(expected.shape)
    assert [tuple(t.shape) for t in tensors(last)] == [
        tuple(t.shape) for t in tensors(expected_last)
    ]


@layer
def test_device_and_dtype(label):
    args, kwargs = LAYERS[label]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_where(label.split()[0], args, kwargs)


def test_half_precision():
    ours, theirs = pair("LSTM layers")
    load(ours, theirs)
    x = sequence(theirs).astype("f4")
    full = ours(mt.from_numpy(x))[0]
    half = ours.half()(mt.from_numpy(x).half())[0]
    assert half.dtype is mt.float16
    np.testing.assert_allclose(half.float().detach().numpy(), full.detach().numpy(), atol=3e-3)


# -- packed sequences ------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize(
    "label",
    [
        "RNN",
        "LSTM",
        "LSTM layers",
        "LSTM both ways",
        "LSTM projected all",
        "GRU",
        "GRU all",
        "RNN all",
    ],
)
def test_packed(label, given, ordered):
    ours, theirs = pair(label)
    load(ours.double().eval(), theirs.double().eval())
    lengths = [6, 4, 4, 1] if ordered else [2, 6, 1, 4]
    x, first = sequence(theirs, 4), states_of(theirs, 4)

    def run(lib, module):
        tools = lib.nn.utils.rnn
        given_x, start = convert(lib, [x, first], grad=True)
        packed = tools.pack_padded_sequence(given_x, lengths, theirs.batch_first, ordered)
        output, last = module(packed, start) if given else module(packed)
        padded, sizes = tools.pad_packed_sequence(output, theirs.batch_first)
        assert sizes.tolist() == lengths
        results = [padded, *tensors(last)]
        sum((r * r).sum() for r in results).backward()
        leaves = [given_x, *(tensors(start) if given else []), *module.parameters()]
        return [*results, *(leaf.grad for leaf in leaves)]

    for mine, other in zip(run(mt, ours), run(torch, theirs), strict=True):
        same(mine, other, 1e-10)


@pytest.mark.parametrize("ordered", [True, False])
def test_packing(ordered):
    lengths = [5, 3, 3, 1] if ordered else [3, 1, 5, 3]
    x = np.random.default_rng(0).standard_normal((4, 5, 2, 3))

    def run(lib):
        tools = lib.nn.utils.rnn
        leaf = lib.from_numpy(x.copy()).requires_grad_()
        packed = tools.pack_padded_sequence(leaf, lib.tensor(lengths), True, ordered)
        padded, sizes = tools.pad_packed_sequence(packed, True, padding_value=-7.0, total_length=8)
        padded.sum().backward()
        found = [packed.data, packed.batch_sizes, padded, sizes, leaf.grad]
        return found, packed.sorted_indices, packed.unsorted_indices

    (mine, *orders), (other, *other_orders) = run(mt), run(torch)
    for a, b in zip(mine, other, strict=True):
        same(a, b, 0)
    if ordered:
        assert orders == other_orders == [None, None]
    else:
        assert [sorted(i.tolist()) for i in orders] == [[0, 1, 2, 3]] * 2
        assert np.array(lengths)[orders[0].numpy()].tolist() == [5, 3, 3, 1]
        assert rnn.invert_permutation(orders[0]).tolist() == orders[1].tolist()


def test_lists_of_sequences():
    arrays = [np.random.default_rng(n).standard_normal((n, 2)) for n in (3, 1, 4)]

    def run(lib):
        tools = lib.nn.utils.rnn
        leaves = [lib.from_numpy(a.copy()).requires_grad_() for a in arrays]
        found = [
            tools.pad_sequence(leaves),
            tools.pad_sequence(leaves, batch_first=True, padding_value=2.5),
            tools.pad_sequence(leaves, batch_first=True, padding_side="left"),
        ]
        # A copy: torch's function turns its argument.
        found += tools.unpad_sequence(found[0].clone(), lib.tensor([3, 1, 4]))
        found += tools.unpack_sequence(tools.pack_sequence(leaves, enforce_sorted=False))
        sum((f * f).sum() for f in found).backward()
        return [*found, *(leaf.grad for leaf in leaves)]

    mine, other = run(mt), run(torch)
    assert len(mine) == len(other)
    for a, b in zip(mine, other, strict=True):
        same(a, b, 1e-12)


def test_unpadding_leaves_its_argument_alone():
    padded = mt.zeros(4, 3, 2)
    assert len(rnn.unpad_sequence(padded, mt.tensor([3, 1, 4]))) == 3
    assert tuple(padded.shape) == (4, 3, 2)


def test_a_packed_sequence_is_a_tuple_of_four():
    packed = rnn.pack_padded_sequence(mt.randn(3, 2, 4), [3, 2])
    assert isinstance(packed, tuple)
    data, sizes, order, back = packed
    assert data is packed.data
    assert sizes.tolist() == [2, 2, 1]
    assert (order, back) == (None, None)
    double = packed.double()
    assert double.data.dtype is mt.float64
    assert double.batch_sizes is packed.batch_sizes
    assert packed.to(mt.float32) is packed
    assert not packed.is_cuda
    again = rnn.PackedSequence(packed.data, packed.batch_sizes, mt.tensor([1, 0]))
    assert again.unsorted_indices.tolist() == [1, 0]


def test_errors_of_packing():
    x = mt.zeros(4, 5, 2)
    with raises(RuntimeError, "`lengths` array must be sorted in decreasing order when"):
        rnn.pack_padded_sequence(x, [1, 2, 3, 4, 4])
    with raises(RuntimeError, "Length of all samples has to be greater than 0"):
        rnn.pack_padded_sequence(x, [4, 3, 2, 0, 0])
    with raises(RuntimeError, "`len(lengths)` to be equal to batch_size, but got 2 (batch_size=5)"):
        rnn.pack_padded_sequence(x, [4, 3])
    with raises(RuntimeError, "a length of 9", "4 steps"):
        rnn.pack_padded_sequence(x, [9, 3, 2, 1, 1])
    packed = rnn.pack_padded_sequence(x, [4, 3, 2, 1, 1])
    with raises(ValueError, "total_length=3 and max sequence length being 4"):
        rnn.pad_packed_sequence(packed, total_length=3)
    with raises(RuntimeError, "padding_side", "'up'"):
        rnn.pad_sequence([x], padding_side="up")


# -- cells -----------------------------------------------------------------------------------------

CELLS = {
    "RNNCell": ((4, 5), {}),
    "RNNCell relu": ((4, 5, False, "relu"), {}),
    "LSTMCell": ((4, 5), {}),
    "LSTMCell no bias": ((4, 5, False), {}),
    "GRUCell": ((4, 5), {}),
    "GRUCell no bias": ((4, 5), {"bias": False}),
}
cell = pytest.mark.parametrize("label", CELLS)


@cell
def test_cell_description(label):
    name = label.split()[0]
    args, kwargs = CELLS[label]
    ours, theirs = make(name, args, kwargs)
    check_description(ours, theirs)
    check_copies(ours)
    check_where(name, args, kwargs)
    found = [
        (p.name, p.default)
        for p in inspect.signature(getattr(nn, name).__init__).parameters.values()
    ]
    expected = inspect.signature(getattr(torch.nn, name).__init__).parameters.values()
    assert found == [(p.name, p.default) for p in expected]


@cell
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4,)], ids=str)
def test_cell_runs(label, shape, given, dtype):
    args, kwargs = CELLS[label]
    ours, theirs = make(label.split()[0], args, kwargs)
    rng = np.random.default_rng(0)
    states = [rng.standard_normal((*shape[:-1], 5)) for _ in range(2)]
    inputs = [rng.standard_normal(shape)]
    if given:
        inputs.append(tuple(states) if label.startswith("LSTM") else states[0])
    check_run(ours, theirs, inputs, dtype=dtype)


def test_a_loop_of_cells_is_a_layer():
    ours = nn.LSTM(4, 5)
    step = nn.LSTMCell(4, 5)
    step.load_state_dict({k.removesuffix("_l0"): v for k, v in ours.state_dict().items()})
    x = mt.randn(6, 3, 4)
    state = None
    for t in range(6):
        state = step(x[t], state)
    output, (h, c) = ours(x)
    np.testing.assert_allclose(state[0].detach().numpy(), h[0].detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(state[1].detach().numpy(), c[0].detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(output[-1].detach().numpy(), h[0].detach().numpy())


# -- errors ----------------------------------------------------------------------------------------

ATTEMPTS = {
    "width": (RuntimeError, "Expected 2, got 7", lambda nn, z: nn.LSTM(2, 3)(z(4, 5, 7))),
    "dims": (ValueError, "2D or 3D, got 4D instead", lambda nn, z: nn.LSTM(2, 3)(z(4, 5, 2, 1))),
    "batch": (
        RuntimeError,
        "Expected hidden[0] size (1, 5, 3), got [1, 4, 3]",
        lambda nn, z: nn.LSTM(2, 3)(z(4, 5, 2), (z(1, 4, 3), z(1, 5, 3))),
    ),
    "layers": (
        RuntimeError,
        "Expected hidden size (1, 5, 3), got [2, 5, 3]",
        lambda nn, z: nn.GRU(2, 3)(z(4, 5, 2), z(2, 5, 3)),
    ),
    "cells": (
        RuntimeError,
        "Expected hidden[1] size (1, 5, 3), got [1, 5, 2]",
        lambda nn, z: nn.LSTM(2, 3)(z(4, 5, 2), (z(1, 5, 3), z(1, 5, 2))),
    ),
    "batched states": (
        RuntimeError,
        "For batched 3-D input, hx and cx should also be 3-D but got (2-D, 2-D) tensors",
        lambda nn, z: nn.LSTM(2, 3)(z(4, 5, 2), (z(5, 3), z(5, 3))),
    ),
    "unbatched states": (
        RuntimeError,
        "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor",
        lambda nn, z: nn.RNN(2, 3)(z(4, 2), z(1, 1, 3)),
    ),
    "dropout": (ValueError, "in range [0, 1]", lambda nn, z: nn.LSTM(2, 3, dropout=1.5)),
    "dropout by position": (
        ValueError,
        "in range [0, 1]",
        lambda nn, z: nn.LSTM(2, 3, 1, True, False, True),
    ),
    "hidden type": (TypeError, "hidden_size should be of type int", lambda nn, z: nn.LSTM(2, 3.5)),
    "hidden": (ValueError, "hidden_size must be greater than zero", lambda nn, z: nn.GRU(2, 0)),
    "no layers": (
        ValueError,
        "num_layers must be greater than zero",
        lambda nn, z: nn.GRU(2, 3, 0),
    ),
    "large proj": (
        ValueError,
        "proj_size has to be smaller than hidden_size",
        lambda nn, z: nn.LSTM(2, 3, proj_size=3),
    ),
    "negative proj": (
        ValueError,
        "proj_size should be a positive integer or zero",
        lambda nn, z: nn.LSTM(2, 3, proj_size=-1),
    ),
    "proj of GRU": (
        ValueError,
        "proj_size argument is only supported for LSTM",
        lambda nn, z: nn.GRU(2, 3, proj_size=2),
    ),
    "proj of RNN": (
        ValueError,
        "proj_size argument is only supported for LSTM",
        lambda nn, z: nn.RNN(2, 3, proj_size=2),
    ),
    "nonlinearity": (
        ValueError,
        "Unknown nonlinearity 'x'. Select from 'tanh' or 'relu'.",
        lambda nn, z: nn.RNN(2, 3, nonlinearity="x"),
    ),
    "mode": (ValueError, "Unrecognized RNN mode: X", lambda nn, z: nn.RNNBase("X", 2, 3)),
    "cell dims": (
        ValueError,
        "LSTMCell: Expected input to be 1D or 2D, got 3D instead",
        lambda nn, z: nn.LSTMCell(2, 3)(z(4, 2, 2)),
    ),
    "cell state dims": (
        ValueError,
        "GRUCell: Expected hidden to be 1D or 2D, got 3D instead",
        lambda nn, z: nn.GRUCell(2, 3)(z(4, 2), z(3, 1, 2)),
    ),
    "cell width": (
        RuntimeError,
        "input has inconsistent input_size: got 7 expected 2",
        lambda nn, z: nn.RNNCell(2, 3)(z(4, 7)),
    ),
    "cell batch": (
        RuntimeError,
        "Input batch size 4 doesn't match hidden0 batch size 5",
        lambda nn, z: nn.LSTMCell(2, 3)(z(4, 2), (z(5, 3), z(5, 3))),
    ),
    "cell hidden": (
        RuntimeError,
        "hidden0 has inconsistent hidden_size: got 1, expected 3",
        lambda nn, z: nn.GRUCell(2, 3)(z(2, 2), z(2, 1)),
    ),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_errors(what):
    kind, text, attempt = ATTEMPTS[what]
    with raises(kind, text):
        attempt(torch.nn, torch.zeros)
    with raises(kind, text):
        attempt(nn, mt.zeros)


def test_dtypes_must_agree():
    for lib in (torch, mt):
        with raises(ValueError, "RNN input dtype", "does not match weight dtype"):
            lib.nn.LSTM(2, 3)(lib.zeros(4, 5, 2, dtype=lib.float64))


def test_dropout_with_one_layer_warns_at_the_caller():
    with pytest.warns(UserWarning, match="dropout=0.5 and num_layers=1") as caught:
        nn.LSTM(2, 3, dropout=0.5)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("dtype", ["complex128", "int64", "bool"])
def test_layers_of_other_dtypes(name, dtype):
    rows = 3 * (4 if "LSTM" in name else 3 if "GRU" in name else 1)
    shapes = [(rows, 2), (rows, 3), (rows,), (rows,)]
    numbers = np.random.default_rng(1).integers(-2, 3, size=60).astype(dtype) * np.ones((), dtype)
    arrays = [numbers[: np.prod(s, dtype=int)].reshape(s) for s in [(2, 2), *shapes]]

    def program(lib, x, *parameters):
        layer = getattr(lib.nn, name)(2, 3)
        names = [key for key, _ in layer.named_parameters()]
        result = lib.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))
        return result if "Cell" in name and "LSTM" not in name else result[0]

    run = differentiated(program, *arrays) if dtype == "complex128" else None
    same_outcome(run or (lambda lib: program(lib, *map(lib.from_numpy, arrays))))


def test_integers_in_a_layer_of_relu():
    def program(lib):
        layer = lib.nn.RNN(2, 1, nonlinearity="relu", bias=False, dtype=lib.float32)
        parameters = {"weight_ih_l0": lib.ones(1, 2).long(), "weight_hh_l0": lib.ones(1, 1).long()}
        return lib.func.functional_call(layer, parameters, (lib.ones(3, 1, 2).long(),))[0]

    same_outcome(program)


def test_parameters_of_several_dtypes_are_refused():
    def program(lib):
        return lib.nn.GRUCell(2, 3)(lib.ones(2).half())

    same_outcome(program)
    with raises(TypeError, "bias"):
        mt.nn.GRU(2, 3, bias=1)


@pytest.mark.parametrize("name", ["RNN", "RNNCell"])
def test_nan_lets_a_gradient_through_relu(name):
    gradients = []
    for lib in (mt, torch):
        cell = getattr(lib.nn, name)(1, 1, bias=False, nonlinearity="relu")
        with lib.no_grad():
            for weight in cell.parameters():
                weight.fill_(float("nan"))
        result = cell(lib.ones(1, 1))
        (result[0] if name == "RNN" else result).backward(lib.ones(1, 1))
        gradients.append([weight.grad.tolist() for weight in cell.parameters()])
    assert gradients[0] == gradients[1] == [[[1.0]], [[0.0]]]
