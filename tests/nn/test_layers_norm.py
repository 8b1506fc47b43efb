# SPDX-License-Identifier: BSD-3-Clause
"""Normalization and dropout against torch's: layers, running statistics, old checkpoints,
gradients, errors.
"""

from __future__ import annotations

import copy
import itertools
import warnings

import numpy as np
import pytest
from helpers.gradients import Case
from helpers.gradients import suite as gradient_suite
from helpers.layer_checks import Layer, same, suite
from helpers.same import differentiated
from helpers.same import same as same_outcome
from helpers.support import quiet, raises, warns

import modtree as mt
from modtree import nn

torch = pytest.importorskip("torch")

IMAGE, LINE, FLAT = (4, 3, 5, 2), (4, 3, 5), (6, 3)

LAYERS = [
    Layer("BatchNorm1d", FLAT, (3,)),
    Layer("BatchNorm1d", LINE, (3, 1e-3, 0.3)),
    # (A tensor on meta has no count of batches to divide by.)
    Layer("BatchNorm1d", LINE, (3,), {"momentum": None}, on_meta=False),
    Layer("BatchNorm2d", IMAGE, (3,)),
    Layer("BatchNorm2d", IMAGE, (3,), {"affine": False}),
    Layer("BatchNorm2d", IMAGE, (3,), {"bias": False}),
    Layer("BatchNorm2d", IMAGE, (3,), {"track_running_stats": False}),
    Layer("BatchNorm2d", IMAGE, (3, 1e-5, 0.1, False, False)),
    Layer("BatchNorm3d", (2, 3, 2, 3, 2), (3,)),
    Layer("InstanceNorm1d", LINE, (3,)),
    Layer("InstanceNorm1d", (3, 5), (3,), {"affine": True}),
    Layer("InstanceNorm2d", IMAGE, (3,)),
    Layer("InstanceNorm2d", IMAGE, (3, 1e-3, 0.3, True, True)),
    Layer("InstanceNorm2d", (3, 5, 2), (3,), {"track_running_stats": True}),
    Layer("InstanceNorm2d", IMAGE, (3,), {"affine": True, "bias": False}),
    Layer("InstanceNorm3d", (2, 3, 2, 3, 2), (3,), {"affine": True}),
    Layer("GroupNorm", (4, 6, 5), (2, 6)),
    Layer("GroupNorm", (4, 6, 3, 2), (3, 6, 1e-3)),
    Layer("GroupNorm", (4, 6), (1, 6), {"affine": False}),
    Layer("GroupNorm", (4, 6, 5), (6, 6), {"bias": False}),
    Layer("LayerNorm", (4, 3, 5), (5,)),
    Layer("LayerNorm", (4, 3, 5), ((3, 5),), {"eps": 1e-3}),
    Layer("LayerNorm", (3, 5), ((3, 5),), {"elementwise_affine": False}),
    Layer("LayerNorm", (3, 5), (5,), {"bias": False}),
    Layer("RMSNorm", (4, 3, 5), (5,)),
    Layer("RMSNorm", (4, 3, 5), ((3, 5),), {"eps": 1e-3}),
    Layer("RMSNorm", (3, 5), ([3, 5],), {"elementwise_affine": False}),
    Layer("LocalResponseNorm", IMAGE, (2,)),
    Layer("LocalResponseNorm", LINE, (3, 1e-2, 0.5, 2.0)),
]

test_arguments, test_text, test_checkpoint, test_outputs, test_gradients, test_meta = suite(LAYERS)


# -- functions and their second gradients ----------------------------------------------------------


def norm(name, *args, **kwargs):
    """The function with its tensors first."""
    return lambda lib, *tensors: getattr(lib.nn.functional, name)(
        tensors[0], *args, *tensors[1:], **kwargs
    )


def batch_norm(training):
    def function(lib, x, weight, bias):
        mean, var = lib.full((3,), 0.25, dtype=x.dtype), lib.full((3,), 1.5, dtype=x.dtype)
        return lib.nn.functional.batch_norm(x, mean, var, weight, bias, training)

    return function


def instance_norm(lib, x, weight, bias):
    return lib.nn.functional.instance_norm(x, None, None, weight, bias)


AFFINE = [(shape, (3,), (3,)) for shape in (FLAT, LINE, IMAGE)]
CASES = [
    Case("batch_norm training", batch_norm(True), AFFINE, mixed=False, tolerance=1e-8),
    Case("batch_norm eval", batch_norm(False), AFFINE, mixed=False),
    Case(
        "batch_norm plain", norm("batch_norm", None, None, training=True), [(LINE,)], tolerance=1e-8
    ),
    Case("instance_norm", instance_norm, AFFINE[1:], mixed=False, tolerance=1e-8),
    Case(
        "group_norm",
        norm("group_norm", 2),
        [((2, 4, 3), (4,), (4,)), ((3, 4), (4,), (4,))],
        mixed=False,
        tolerance=1e-8,
    ),
    Case(
        "layer_norm",
        norm("layer_norm", (5,)),
        [((2, 3, 5), (5,), (5,))],
        mixed=False,
        tolerance=1e-8,
    ),
    Case(
        "layer_norm whole",
        norm("layer_norm", (3, 5)),
        [((3, 5), (3, 5), (3, 5))],
        mixed=False,
        tolerance=1e-8,
    ),
    Case("rms_norm", norm("rms_norm", (5,)), [((2, 3, 5), (5,))], mixed=False, tolerance=1e-8),
    Case("local_response_norm", norm("local_response_norm", 3), [(IMAGE,)]),
]
test_function_gradients = gradient_suite(CASES)


def test_half_precision():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 6, 5)).astype("f2"), rng.standard_normal(6).astype("f2")
    for name, args in (("batch_norm", (None, None)), ("group_norm", (2,))):
        results = []
        for lib in (mt, torch):
            t, weight = (lib.from_numpy(a.copy()).requires_grad_() for a in (x, w))
            options = {"training": True} if name == "batch_norm" else {}
            y = getattr(lib.nn.functional, name)(t, *args, weight, **options)
            y.sum().backward()
            results.append([y, weight.grad])
        for mine, theirs in zip(*results, strict=True):
            same(mine, theirs, 5e-3)


@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "layer_norm"])
def test_half_precision_with_single_parameters(name):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3, 3)).astype("f2")
    w, b = (rng.standard_normal(3).astype("f4") for _ in range(2))
    results = []
    for lib in (mt, torch):
        tensors = [lib.from_numpy(a.copy()).requires_grad_() for a in (x, w, b)]
        args = {"batch_norm": (None, None), "group_norm": (3,), "layer_norm": ((3,),)}[name]
        options = {"training": True} if name == "batch_norm" else {}
        y = getattr(lib.nn.functional, name)(tensors[0], *args, *tensors[1:], **options)
        (y * y).sum().backward()
        results.append([y, *(t.grad for t in tensors)])
    for mine, theirs in zip(*results, strict=True):
        same(mine, theirs, 3e-2)


@pytest.mark.parametrize(
    "needs", [n for n in itertools.product((0, 1), repeat=3) if any(n)], ids=str
)
@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "layer_norm"])
def test_gradients_of_some_arguments(name, needs):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((4, 3, 3), (3,), (3,))]
    results = []
    for lib in (mt, torch):
        tensors = [
            lib.from_numpy(a.copy()).requires_grad_(bool(n))
            for a, n in zip(arrays, needs, strict=True)
        ]
        args = {"batch_norm": (None, None), "group_norm": (3,), "layer_norm": ((3,),)}[name]
        options = {"training": True} if name == "batch_norm" else {}
        y = getattr(lib.nn.functional, name)(tensors[0], *args, *tensors[1:], **options)
        (y * y * y).sum().backward()
        results.append([t.grad for t in tensors])
    for mine, theirs in zip(*results, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            same(mine, theirs, 1e-8)


@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "instance_norm"])
def test_no_samples(name):
    args = {"batch_norm": (None, None, None, None, True), "group_norm": (3,)}.get(name, ())
    results = []
    for lib in (mt, torch):
        x = lib.zeros(0, 3, 4, requires_grad=True)
        y = getattr(lib.nn.functional, name)(x, *args)
        y.sum().backward()
        results.append([y, x.grad])
    for mine, theirs in zip(*results, strict=True):
        same(mine, theirs, 0)


def test_nodes_have_the_names_of_torch():
    for lib in (mt, torch):
        x = lib.ones(2, 3, 4, 4, requires_grad=True)
        for layer, name in (
            (lib.nn.Conv2d(3, 2, 3), "Convolution"),
            (lib.nn.ConvTranspose2d(3, 2, 3), "Convolution"),
            (lib.nn.BatchNorm2d(3), "NativeBatchNorm"),
            (lib.nn.LayerNorm(4), "NativeLayerNorm"),
            (lib.nn.GroupNorm(3, 3), "NativeGroupNorm"),
        ):
            assert layer(x).grad_fn.name() == name + "Backward0"


# -- running statistics ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "momentum"),
    [
        ("BatchNorm2d", 0.1),
        ("BatchNorm2d", 0.7),
        ("BatchNorm2d", None),
        ("InstanceNorm2d", 0.1),
        ("InstanceNorm2d", 0.7),
    ],
)
def test_running_statistics_over_steps(name, momentum):
    rng = np.random.default_rng(0)
    layers = []
    for lib in (mt, torch):
        layers.append(
            getattr(lib.nn, name)(3, momentum=momentum, track_running_stats=True).double()
        )
    for step in range(4):
        if step == 2:
            [layer.eval() for layer in layers]
        x = rng.standard_normal(IMAGE) * 3 + 1
        mine, theirs = (
            layer(lib.from_numpy(x.copy())) for layer, lib in zip(layers, (mt, torch), strict=True)
        )
        same(mine, theirs, 1e-12)
        for key, value in layers[1].state_dict().items():
            same(layers[0].state_dict()[key], value, 1e-12, f"{key} after step {step}")
    [layer.reset_running_stats() for layer in layers]
    for key, value in layers[1].state_dict().items():
        same(layers[0].state_dict()[key], value, 0, key)


def test_training_counts_as_a_change_of_the_running_statistics():
    layer = nn.BatchNorm1d(3)
    before = [b._version for b in layer.buffers()]
    layer(mt.randn(4, 3))
    assert all(b._version > v for b, v in zip(layer.buffers(), before, strict=True))
    before = [b._version for b in layer.buffers()]
    layer.eval()(mt.randn(4, 3))
    assert [b._version for b in layer.buffers()] == before


def test_two_steps_before_one_backward():
    """The second pass overwrites the running statistics; the first one's gradient does not need
    them.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal(FLAT)
    grads = []
    for lib in (mt, torch):
        layer = lib.nn.BatchNorm1d(3).double()
        first = layer(lib.from_numpy(x.copy()))
        second = layer(lib.from_numpy(x * 2))
        (first * second).sum().backward()
        grads.append([p.grad for p in layer.parameters()])
    for mine, theirs in zip(*grads, strict=True):
        same(mine, theirs, 1e-10)


def test_no_statistics_of_meta_tensors():
    layer = nn.BatchNorm2d(3, device="meta")
    assert layer(mt.empty(IMAGE, device="meta")).is_meta
    assert all(b.is_meta for b in layer.buffers())


# -- old checkpoints -------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", ["none", "version 1"])
@pytest.mark.parametrize("lib", [mt, torch], ids=["modtree", "torch"])
def test_checkpoints_without_a_count_of_batches_load(lib, metadata):
    layer = lib.nn.BatchNorm2d(3)
    layer.num_batches_tracked.fill_(5)
    state = layer.state_dict()
    del state["num_batches_tracked"]
    state["running_mean"] = lib.full((3,), 2.0)
    if metadata == "none":
        state = dict(state)
    else:
        state._metadata[""]["version"] = 1
    assert not layer.load_state_dict(state, strict=True).missing_keys
    assert layer.num_batches_tracked.item() == 5
    assert layer.running_mean.tolist() == [2.0] * 3
    fresh = lib.nn.BatchNorm2d(3)
    fresh.load_state_dict(state)
    assert fresh.num_batches_tracked.item() == 0
    state = layer.state_dict()
    del state["num_batches_tracked"]
    with raises(RuntimeError, "Missing key(s) in state_dict", "num_batches_tracked"):
        layer.load_state_dict(state)


def test_statistics_in_old_checkpoints_of_instance_norm():
    for lib in (mt, torch):
        layer = lib.nn.InstanceNorm2d(3)
        state = {"running_mean": lib.zeros(3), "running_var": lib.ones(3)}
        with raises(
            RuntimeError, "Unexpected running stats buffer(s)", '"running_mean" and "running_var"'
        ):
            layer.load_state_dict(copy.copy(state))


# -- dropout ---------------------------------------------------------------------------------------

DROPOUTS = [
    Layer("Dropout1d", LINE),
    Layer("Dropout2d", IMAGE, (0.2,)),
    Layer("Dropout3d", (2, 3, 2, 3, 2), (), {"inplace": True}),
    Layer("AlphaDropout", FLAT, (0.3, True)),
    Layer("FeatureAlphaDropout", IMAGE),
]
(test_dropout_arguments, test_dropout_text, *_) = suite(DROPOUTS)


@pytest.mark.parametrize(
    ("name", "shape", "channels"),
    [
        ("dropout1d", (50, 40, 7), (0, 1)),
        ("dropout1d", (2000, 7), (0,)),
        ("dropout2d", (50, 40, 3, 2), (0, 1)),
        ("dropout2d", (50, 40, 6), (0, 1)),
        ("dropout3d", (50, 40, 3, 2, 2), (0, 1)),
        ("dropout3d", (2000, 3, 2, 2), (0,)),
    ],
)
def test_whole_channels_are_dropped(name, shape, channels):
    mt.manual_seed(0)
    x = mt.ones(shape, requires_grad=True)
    with quiet():
        y = getattr(mt.nn.functional, name)(x, 0.3)
    y.sum().backward()
    values = y.detach().numpy().reshape(*(shape[i] for i in channels), -1)
    assert (values == values[..., :1]).all()
    kept = values[..., 0] != 0
    assert abs(kept.mean() - 0.7) < 0.05
    np.testing.assert_allclose(values[kept], 1 / 0.7, rtol=1e-6)
    assert (x.grad == y).all()


def test_dropout_in_place_and_off():
    F = mt.nn.functional
    mt.manual_seed(1)
    x = mt.ones(40, 50, 2)
    assert F.dropout1d(x, 0.5, inplace=True) is x
    assert (x == 0).any()
    for name in ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        function = getattr(F, name)
        with quiet():
            assert (function(x, 0.5, training=False) == x).all()
            assert (function(x, 1.0, training=True) == 0).all()
            with raises(ValueError, "dropout probability has to be between 0 and 1, but got 1.5"):
                function(x, 1.5)


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name):
    mt.manual_seed(0)
    x = mt.randn(200, 300, 2)
    y = getattr(mt.nn.functional, name)(x, 0.2, training=True).numpy()
    assert abs(y.mean()) < 0.02
    assert abs(y.std() - 1) < 0.02
    # torch's dropped value, after its scale and shift.
    torch.manual_seed(0)
    theirs = torch.nn.functional.alpha_dropout(torch.zeros(1000), 0.2, training=True)
    low, high = sorted(set(np.round(theirs.tolist(), 5)))
    mine = mt.nn.functional.alpha_dropout(mt.zeros(1000), 0.2, training=True)
    np.testing.assert_allclose(sorted(set(np.round(mine.tolist(), 5))), [low, high], atol=2e-5)


def test_dropout_warns_about_ranks_as_torch():
    for name, shape in (("dropout2d", (2, 3)), ("dropout2d", (2, 3, 4)), ("dropout3d", (2, 3, 4))):
        texts = []
        for lib in (mt, torch):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                getattr(lib.nn.functional, name)(lib.ones(shape))
            texts.append([str(w.message)[:60] for w in caught])
            assert all(w.filename == __file__ for w in caught)
        assert texts[0] == texts[1]
    with raises(RuntimeError, "dropout1d: Expected 2D or 3D input, but received a 1D input"):
        mt.nn.functional.dropout1d(mt.ones(3))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("BatchNorm1d", IMAGE, "expected 2D or 3D input (got 4D input)"),
        ("BatchNorm2d", LINE, "expected 4D input (got 3D input)"),
        ("BatchNorm3d", IMAGE, "expected 5D input (got 4D input)"),
        ("BatchNorm1d", (1, 3), "Expected more than 1 value per channel when training"),
        ("InstanceNorm1d", (2, 3, 1), "Expected more than 1 spatial element when training"),
        ("InstanceNorm2d", (3, 4), "expected 3D or 4D input (got 2D input)"),
    ],
)
def test_layer_errors(name, shape, text):
    for lib in (mt, torch):
        with raises(ValueError, text):
            getattr(lib.nn, name)(3)(lib.ones(shape))


def test_wrong_numbers_of_channels():
    for lib in (mt, torch):
        F, x = lib.nn.functional, lib.ones(2, 3, 4)
        with raises(RuntimeError, "running_mean should contain 3 elements not 2"):
            F.batch_norm(x, lib.zeros(2), lib.ones(2))
        with raises(RuntimeError, "weight should contain 3 elements not 2"):
            F.batch_norm(x, lib.zeros(3), lib.ones(3), lib.ones(2))
        with raises(RuntimeError, "running_mean must be defined in evaluation mode"):
            F.batch_norm(x, None, None)
        with raises(
            RuntimeError, "Expected number of channels in input to be divisible by num_groups"
        ):
            F.group_norm(x, 2)
        with raises(RuntimeError, "Expected weight to be a vector of size equal to the number"):
            F.group_norm(x, 3, lib.ones(2))
        with raises(RuntimeError, "Expected weight to be of same shape as normalized_shape"):
            F.rms_norm(x, (4,), lib.ones(3))
        with raises(RuntimeError, "Given normalized_shape=[3], expected input with shape [*"):
            F.rms_norm(x, (3,))
        with raises(ValueError, "num_channels (3) must be divisible by num_groups (2)"):
            lib.nn.GroupNorm(2, 3)
        with raises(ValueError, "match num_features (5), but got: 3"):
            lib.nn.InstanceNorm1d(5, affine=True)(x)
        with warns(UserWarning, "input's size at dim=1 does not match num_features"):
            lib.nn.InstanceNorm1d(5)(x)


def test_errors_in_our_words():
    F = mt.nn.functional
    with raises(RuntimeError, "batch_norm", "weight", "float32", "float64", ".to(dtype)"):
        F.batch_norm(mt.ones(2, 3), None, None, mt.ones(3, dtype=mt.float64), training=True)
    with raises(NotImplementedError, "batch_norm", "int64"):
        F.batch_norm(mt.ones(2, 3, dtype=mt.int64), None, None, training=True)
    with raises(TypeError, "group_norm: expected a modtree.Tensor, got list"):
        F.group_norm([1.0], 1)
    with raises(RuntimeError, "at least 2 dimensions"):
        F.batch_norm(mt.ones(3), None, None, training=True)


@pytest.mark.parametrize("groups", [0, -1, 3, 1.5])
def test_groups_that_there_are_not(groups):
    same_outcome(lambda lib: lib.nn.functional.group_norm(lib.ones(2, 2), groups))


@pytest.mark.parametrize("weight", [None, np.array([1j, 2]), np.array([1.0, 2])])
@pytest.mark.parametrize("shape", [(2,), (1, 2), (3,), ()])
def test_rms_norm_of_complex_numbers(weight, shape):
    x = np.array([[1 + 1j, 2], [0.5j, -3]])
    weight = weight if weight is None or shape != (1, 2) else weight[None]
    same_outcome(
        differentiated(lambda lib, *v: lib.nn.functional.rms_norm(v[0], shape, v[1]), x, weight)
    )


def test_functions_at_the_top_take_single_values():
    same_outcome(lambda lib: lib.group_norm(lib.ones(1, 2), 2))
    same_outcome(
        lambda lib: lib.instance_norm(
            lib.ones(1, 2, 1), None, None, None, None, True, 0.5, 1e-5, False
        )
    )


@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.float64])
def test_rms_norm_with_a_weight_of_another_dtype(dtype):
    x, weight = np.array([[1, 2]], np.float32), np.array([1, 3], dtype)
    same_outcome(
        differentiated(lambda lib, *v: lib.nn.functional.rms_norm(v[0], (2,), v[1]), x, weight),
        1e-3,
    )


def test_the_gradient_of_batch_norm_does_not_depend_on_the_order_of_memory():
    x = np.random.default_rng(1).normal(size=(1, 2, 3, 1))
    gradients = []
    for order in "CF":
        leaf = mt.from_numpy(x.copy(order)).requires_grad_()
        running = mt.zeros(2, dtype=mt.float64), mt.ones(2, dtype=mt.float64)
        y = mt.nn.functional.batch_norm(leaf, *running, training=True)
        (y * mt.arange(6.0).reshape(1, 2, 3, 1)).sum().backward()
        gradients.append(leaf.grad.numpy())
    assert np.allclose(*gradients)


@pytest.mark.parametrize(
    "line",
    [
        "f.batch_norm(x, v, v, training=True, eps=0)",
        "f.batch_norm(x, v, v, eps=-1)",
        "f.batch_norm(x[0, 0, 0], None, None, training=True)",
        "f.batch_norm(x[:1, :, 0], None, None, training=True)",
        "m.batch_norm(x[:1, :, 0], None, None, None, None, True, 0.1, 1e-5, True)",
        "f.group_norm(x[0, 0, 0], 0)",
        "f.group_norm(x[:1, :, 0], 2)",
        "m.group_norm(x[0, 0], 1)",
        "m.instance_norm(x[0, 0], None, None, None, None, True, 0.1, 1e-5, True)",
        "f.instance_norm(x, v)",
        "f.instance_norm(x, None, x)",
        "f.rms_norm(x[0, 0, 0], (2,))",
        "f.rms_norm(x[0, 0, 0], (2,), v[:1])",
        "f.rms_norm(m.tensor([0.157], dtype=m.float16), (1,))",
        "f.local_response_norm((x * 8).long(), 2, alpha=0.5)",
        "f.local_response_norm((x * 8).int(), 2)",
        "f.local_response_norm(x * 1j, 2)",
        "f.local_response_norm(x, 2, beta=2**70)",
    ],
)
def test_arguments_and_what_is_refused(line):
    x, v = np.arange(12.0).reshape(2, 2, 3) / 8 - 0.5, np.array([0.5, 2])
    names = {"x": x, "v": v}
    same_outcome(
        lambda lib: eval(
            line,
            {"m": lib, "f": lib.nn.functional, **{k: lib.from_numpy(a) for k, a in names.items()}},
        )
    )


def test_instances_of_nothing_leave_the_statistics_alone():
    def program(lib):
        running = lib.ones(1) * 3, lib.ones(1) * 4
        lib.nn.functional.instance_norm(lib.zeros(2, 1, 2, 0), *running)
        return running

    same_outcome(program)


def test_instances_of_one_pixel_have_statistics_at_the_top():
    def program(lib):
        running = lib.ones(1) * 3, lib.ones(1) * 4
        lib.instance_norm(lib.ones(2, 1, 1), None, None, *running, True, 0.1, 1e-5, True)
        return running

    same_outcome(program)


@pytest.mark.parametrize("affine", [False, True])
def test_infinities_stay_out_of_the_gradient_by_given_statistics(affine):
    gradients = []
    for lib in (mt, torch):
        x = lib.tensor([[float("inf"), 1.0], [float("nan"), 2.0]], requires_grad=True)
        layer = lib.nn.BatchNorm1d(2, affine=affine).eval()
        layer(x).backward(lib.tensor([[1.0, 2.0], [3.0, 4.0]]))
        found = [x.grad, *(p.grad for p in layer.parameters())]
        gradients.append([g.numpy() for g in found])
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
