# SPDX-License-Identifier: BSD-3-Clause
"""The layers that take the number of their inputs from their first input."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.support import raises

import modtree as mt

# Name: (arguments, shape of the input, arguments of the layer that it becomes).
LAYERS = {
    "Linear": ((5,), (2, 3), (3, 5)),
    "Conv1d": ((4, 2), (2, 3, 5), (3, 4, 2)),
    "Conv2d": ((4, 2), (2, 3, 5, 5), (3, 4, 2)),
    "Conv3d": ((4, 2), (2, 3, 4, 4, 4), (3, 4, 2)),
    "ConvTranspose1d": ((4, 2), (2, 3, 5), (3, 4, 2)),
    "ConvTranspose2d": ((4, 2), (2, 3, 5, 5), (3, 4, 2)),
    "ConvTranspose3d": ((4, 2), (2, 3, 4, 4, 4), (3, 4, 2)),
    "BatchNorm1d": ((), (4, 3), (3,)),
    "BatchNorm2d": ((), (2, 3, 4, 4), (3,)),
    "BatchNorm3d": ((), (2, 3, 2, 2, 2), (3,)),
    "InstanceNorm1d": ((), (2, 3, 5), (3,)),
    "InstanceNorm2d": ((), (2, 3, 4, 4), (3,)),
    "InstanceNorm3d": ((), (2, 3, 2, 2, 2), (3,)),
}
CONVOLUTIONS = [name for name in LAYERS if "Conv" in name]
NORMS = [name for name in LAYERS if "Norm" in name]


def lazy(lib, name, *args, **kwargs):
    return getattr(lib.nn, f"Lazy{name}")(*(args or LAYERS[name][0]), **kwargs)


def usual(lib, name, **kwargs):
    """The layer that the lazy one becomes; lazy norms have all there is."""
    if "Instance" in name:
        kwargs = {"affine": True, "track_running_stats": True} | kwargs
    return getattr(lib.nn, name)(*LAYERS[name][2], **kwargs)


def sample(lib, name, dtype=np.float32):
    return lib.from_numpy(np.random.default_rng(0).standard_normal(LAYERS[name][1]).astype(dtype))


def tensors(module):
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def described(module):
    return {
        k: (tuple(t.shape), str(t.dtype).rpartition(".")[2]) for k, t in tensors(module).items()
    }


@needs_torch
@pytest.mark.parametrize("name", LAYERS)
def test_arguments_are_torchs(name):
    import torch

    ours, theirs = (
        list(inspect.signature(getattr(lib.nn, f"Lazy{name}")).parameters.values())
        for lib in (mt, torch)
    )
    assert [(p.name, p.default, p.kind) for p in ours] == [
        (p.name, p.default, p.kind) for p in theirs
    ]


@pytest.mark.parametrize("name", LAYERS)
def test_before_the_first_call(lib, name):
    m = lazy(lib, name)
    kind = getattr(lib.nn, name)
    assert m.cls_to_become is kind
    # Lazy norms are none of those that they become.
    assert isinstance(m, kind) == (name not in NORMS)
    assert m.has_uninitialized_params()
    assert list(m.state_dict()) == list(usual(lib, name).state_dict())
    shapeless = {k for k, t in tensors(m).items() if lib.nn.parameter.is_lazy(t)}
    assert shapeless == {k for k in m.state_dict() if "num_batches" not in k}
    m.reset_parameters()
    assert m.has_uninitialized_params()


@needs_torch
@pytest.mark.parametrize("name", LAYERS)
def test_text_is_torchs(name):
    import torch

    assert repr(lazy(mt, name)) == repr(lazy(torch, name))


@pytest.mark.parametrize("name", LAYERS)
def test_the_first_call_makes_it_usual(lib, name):
    m, x = lazy(lib, name), sample(lib, name)
    same = dict(tensors(m))
    shape = m(x).shape
    reference = usual(lib, name)
    assert type(m) is type(reference)
    assert repr(m) == repr(reference)
    assert described(m) == described(reference)
    assert all(tensors(m)[k] is t for k, t in same.items())
    assert not m._forward_pre_hooks
    assert shape == reference(x).shape
    m(x).sum().backward()
    assert all(p.grad is not None for p in m.parameters())


@pytest.mark.parametrize("name", LAYERS)
def test_it_computes_what_the_usual_one_does(lib, name):
    m, x = lazy(lib, name), sample(lib, name)
    lib.manual_seed(0)
    first = m(x)
    lib.manual_seed(0)
    reference = usual(lib, name)
    np.testing.assert_array_equal(first.detach().numpy(), reference(x).detach().numpy())
    for key, value in reference.state_dict().items():
        np.testing.assert_array_equal(m.state_dict()[key].numpy(), value.numpy())


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_dict_gives_the_shapes(lib, name):
    if lib.__name__ == "torch" and "Instance" in name:
        pytest.skip("num_features stays 0, which the first call then refuses")
    reference, x = usual(lib, name), sample(lib, name)
    m = lazy(lib, name)
    assert str(m.load_state_dict(reference.state_dict())) == "<All keys matched successfully>"
    assert not m.has_uninitialized_params()
    assert described(m) == described(reference)
    np.testing.assert_array_equal(m(x).detach().numpy(), reference(x).detach().numpy())
    assert type(m) is type(reference)
    assert dict(m.state_dict())["weight"].tolist() == reference.weight.tolist()


@pytest.mark.parametrize("name", LAYERS)
def test_sizes_are_those_of_what_was_loaded(lib, name):
    """torch leaves in_channels and num_features at 0."""
    reference = usual(lib, name)
    m = lazy(lib, name)
    m.load_state_dict(reference.state_dict())
    if lib.__name__ == "torch" and "Instance" in name:
        with raises(ValueError, "to match num_features (0)"):
            m(sample(lib, name))
        return
    m(sample(lib, name))
    if lib.__name__ == "modtree" or name == "Linear":
        assert repr(m) == repr(reference)
    else:
        assert repr(m) != repr(reference)


@pytest.mark.parametrize("name", LAYERS)
def test_dtype_and_device(lib, name):
    m = lazy(lib, name, dtype=lib.float64)
    m(sample(lib, name, np.float64))
    assert m.weight.dtype == lib.float64
    assert described(m) == described(usual(lib, name, dtype=lib.float64))
    meta = lazy(lib, name, device="meta")
    assert all(t.is_meta for t in tensors(meta).values())
    with lib.device("meta"):
        assert all(t.is_meta for t in tensors(lazy(lib, name)).values())


@pytest.mark.parametrize("name", LAYERS)
def test_conversion_before_the_first_call(lib, name):
    m = lazy(lib, name).double()
    m(sample(lib, name, np.float64))
    assert m.weight.dtype == lib.float64


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("converted", [False, True])
def test_copies_and_pickles(name, converted):
    m = lazy(mt, name).double() if converted else lazy(mt, name, dtype=mt.float64)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert other.has_uninitialized_params()
        assert other.weight is not m.weight
        other(sample(mt, name, np.float64))
        assert type(other) is getattr(mt.nn, name)
        assert described(other) == described(usual(mt, name, dtype=mt.float64))
    assert m.has_uninitialized_params()


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in NORMS])
def test_without_bias(lib, name):
    m = lazy(lib, name, bias=False)
    assert m.bias is None
    assert list(m.state_dict()) == ["weight"]
    m(sample(lib, name))
    assert described(m) == described(usual(lib, name, bias=False))


@pytest.mark.parametrize(
    "options",
    [
        {"affine": False},
        {"bias": False},
        {"track_running_stats": False},
        {"momentum": None, "eps": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", NORMS)
def test_options_of_norms(lib, name, options):
    if "Instance" in name and "momentum" in options:
        options = {"momentum": 0.3, "eps": 0.1}
    m = lazy(lib, name, **options)
    m(sample(lib, name))
    reference = usual(lib, name, **options)
    assert described(m) == described(reference)
    assert repr(m) == repr(reference)


def test_a_norm_without_tensors(lib):
    m = lib.nn.LazyBatchNorm1d(affine=False, track_running_stats=False)
    assert not m.has_uninitialized_params()
    m(lib.ones(4, 3))
    assert type(m) is lib.nn.BatchNorm1d


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_groups(lib, name):
    m = lazy(lib, name, 4, 2, groups=2)
    shape = (2, 6, *LAYERS[name][1][2:])
    m(lib.ones(*shape))
    reference = getattr(lib.nn, name)(6, 4, 2, groups=2)
    assert described(m) == described(reference)
    assert repr(m) == repr(reference)
    again = lazy(lib, name, 4, 2, groups=2)
    again.load_state_dict(reference.state_dict())
    again(lib.ones(*shape))
    if lib.__name__ == "modtree":
        assert again.in_channels == 6
    m = lazy(lib, name, 4, 2, groups=2)
    with raises(ValueError, "in_channels must be divisible by groups"):
        m(lib.ones(2, 3, *shape[2:]))
    assert m.has_uninitialized_params()


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_inputs_without_a_batch(lib, name):
    m = lazy(lib, name)
    y = m(sample(lib, name)[0])
    assert described(m) == described(usual(lib, name))
    assert y.ndim == len(LAYERS[name][1]) - 1
    m = lazy(lib, name)
    with raises(RuntimeError, "(batched) input to Lazy" + name):
        m(lib.ones(3))
    assert m.has_uninitialized_params()


@pytest.mark.parametrize("name", [n for n in NORMS if "Instance" in n])
def test_instances_without_a_batch(lib, name):
    """torch takes the size of the axis after the channels."""
    x = sample(lib, name)[0]
    m = lazy(lib, name)
    if lib.__name__ == "torch":
        with warnings.catch_warnings(), pytest.raises((ValueError, RuntimeError)):
            warnings.simplefilter("ignore")
            m(x)
    else:
        m(x)
        assert described(m) == described(usual(lib, name))


@pytest.mark.parametrize("name", NORMS)
def test_norms_check_the_rank_of_their_input(lib, name):
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        lazy(lib, name)(lib.ones(3))


def test_padding_modes(lib):
    m = lib.nn.LazyConv2d(4, 3, padding=1, padding_mode="circular", stride=2, dilation=1)
    reference = lib.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular", stride=2)
    x = lib.ones(1, 3, 6, 6)
    assert m(x).shape == reference(x).shape
    assert repr(m) == repr(reference)
    m = lib.nn.LazyConvTranspose2d(4, 3, stride=2, output_padding=1)
    assert m(x, output_size=[13, 13]).shape == (1, 4, 13, 13)
    with raises(ValueError, 'Only "zeros" padding mode is supported'):
        lib.nn.LazyConvTranspose2d(4, 3, padding_mode="circular")


def test_a_state_of_another_width_is_told_at_the_first_call(lib):
    m = lib.nn.LazyLinear(5)
    m.load_state_dict(lib.nn.Linear(3, 5).state_dict())
    with raises(AssertionError, "inferred from input: 4", "3"):
        m(lib.ones(2, 4))


def test_training_a_lazy_model(lib):
    lib.manual_seed(0)
    model = lib.nn.Sequential(
        lib.nn.LazyConv2d(4, 3),
        lib.nn.LazyBatchNorm2d(),
        lib.nn.ReLU(),
        lib.nn.Flatten(),
        lib.nn.LazyLinear(2),
    )
    x = lib.ones(3, 1, 5, 5) * lib.arange(3).float().reshape(3, 1, 1, 1)
    model(x)  # the dry run
    assert [type(m).__name__ for m in model] == [
        "Conv2d",
        "BatchNorm2d",
        "ReLU",
        "Flatten",
        "Linear",
    ]
    assert model[4].in_features == 4 * 3 * 3
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), lib.tensor([0, 1, 0]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@needs_torch
@pytest.mark.parametrize("name", LAYERS)
def test_checkpoints_of_torch_load(name):
    import torch

    theirs = usual(torch, name)
    m = lazy(mt, name)
    m.load_state_dict({k: mt.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(1).standard_normal(LAYERS[name][1]).astype(np.float32)
    np.testing.assert_allclose(
        m(mt.from_numpy(x)).detach().numpy(),
        theirs(torch.from_numpy(x)).detach().numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("wrap", ["weight_norm", "spectral_norm"])
def test_norms_of_weights_need_weights(lib, wrap):
    m = lib.nn.LazyLinear(3)
    with raises(ValueError, "can't have uninitialized parameters"):
        getattr(lib.nn.utils, wrap)(m)
    m(lib.ones(2, 4))
    getattr(lib.nn.utils, wrap)(m)
    assert tuple(m(lib.ones(2, 4)).shape) == (2, 3)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize("shape", [(2, 0), (2, 3, 0), (0,), (0, 0)], ids=str)
def test_an_input_without_values(lib, shape):
    m = lib.nn.LazyLinear(3)
    x = lib.ones(*shape, requires_grad=True)
    y = m(x)
    assert tuple(y.shape) == (*shape[:-1], 3)
    # Nothing has initialized the bias: its memory may hold NaN.
    np.testing.assert_array_equal(y.detach().numpy(), m.bias.detach().expand(y.shape).numpy())
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert m.weight.grad.shape == m.weight.shape
    assert m.bias.grad.tolist() == [y.numel() / 3] * 3


@pytest.mark.parametrize(
    ("lazy", "loaded", "size"),
    [
        (lambda: mt.nn.LazyLinear(4), lambda: mt.nn.Linear(7, 4), "in_features=7"),
        (
            lambda: mt.nn.LazyConv2d(4, 3, groups=2),
            lambda: mt.nn.Conv2d(6, 4, 3, groups=2),
            "(6, 4",
        ),
        (lambda: mt.nn.LazyConvTranspose1d(4, 3), lambda: mt.nn.ConvTranspose1d(5, 4, 3), "(5, 4"),
        (lambda: mt.nn.LazyBatchNorm1d(), lambda: mt.nn.BatchNorm1d(9), "(9, eps"),
    ],
)
def test_a_loaded_layer_shows_the_size_that_it_got(lazy, loaded, size):
    layer = lazy()
    layer.load_state_dict(loaded().state_dict())
    assert size in repr(layer)
    assert "0, " in repr(lazy()) or "in_features=0" in repr(lazy())
