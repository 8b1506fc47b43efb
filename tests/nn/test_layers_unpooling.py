# SPDX-License-Identifier: BSD-3-Clause
"""MaxUnpool, LPPool and FractionalMaxPool against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, between, distinct
from helpers.gradients import suite as gradient_suite
from helpers.layer_checks import Layer, outputs, same, suite
from helpers.layers_common import check_arguments, check_copies, check_description, check_run, make
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")

IMAGE, LONE, LINE, SPACE = (2, 3, 8, 9), (3, 8, 9), (2, 3, 9), (2, 2, 4, 5, 6)


def positive(rng, shape):
    return rng.uniform(0.5, 2, shape)


LAYERS = [
    Layer("LPPool1d", LINE, (2, 3)),
    Layer("LPPool1d", (3, 9), (3.0, 2, 1, True), sample=positive),
    Layer("LPPool2d", IMAGE, (2, 2)),
    Layer("LPPool2d", LONE, (1.5, (3, 2)), {"stride": (2, 1)}, sample=positive),
    Layer("LPPool2d", IMAGE, (3, 3, 2, True)),
    Layer("LPPool2d", IMAGE, (1, 2)),
    Layer("LPPool3d", SPACE, (2, 2)),
    Layer("LPPool3d", (2, 4, 5, 6), (2, (1, 2, 3), 2, True)),
]

test_arguments, test_text, test_checkpoint, test_outputs, test_gradients, test_meta = suite(LAYERS)


def of(name, *args, **kwargs):
    return lambda lib, x: getattr(lib.nn.functional, name)(x, *args, **kwargs)


def unpooled(n, *args):
    """Pools and unpools, so that the indices are those of the library."""

    def function(lib, x):
        functions = lib.nn.functional
        values, indices = getattr(functions, f"max_pool{n}d")(x, *args, return_indices=True)
        unpool = getattr(functions, f"max_unpool{n}d")
        return unpool(values, indices, *args, output_size=tuple(x.shape[-n:]))

    return function


def fractional(n, kernel, wanted):
    """With numbers in place of the random ones."""

    def function(lib, x):
        batch = tuple(x.shape[:2]) if x.dim() == n + 2 else (1, x.shape[0])
        samples = np.random.default_rng(4).uniform(0, 1, (*batch, n))
        pool = getattr(lib.nn.functional, f"fractional_max_pool{n}d")
        drawn = lib.from_numpy(samples).to(x.dtype)
        return pool(x, kernel, **wanted, return_indices=True, _random_samples=drawn)

    return function


PLANES, SPACES = [((2, 3, 7, 6),), ((3, 6, 7),)], [((2, 2, 4, 5, 6),), ((2, 5, 4, 6),)]
CASES = [
    Case("lp_pool1d", of("lp_pool1d", 2, 3, 2), [((2, 3, 7),), ((3, 7),)]),
    Case("lp_pool2d", of("lp_pool2d", 3, 2), PLANES, between(0.5, 2)),
    Case("lp_pool2d ceil", of("lp_pool2d", 2.5, 3, 2, True), PLANES, between(0.5, 2)),
    Case("lp_pool3d", of("lp_pool3d", 2, 2), SPACES),
    Case("max_unpool1d", unpooled(1, 3), [((2, 3, 9),)], distinct),
    Case("max_unpool2d", unpooled(2, 2), PLANES, distinct),
    Case("max_unpool2d overlapping", unpooled(2, 3, 1), PLANES, distinct),
    Case("max_unpool2d padded", unpooled(2, 3, 2, 1), PLANES, distinct),
    Case("max_unpool3d", unpooled(3, 2), SPACES, distinct),
    Case("fractional 2d", fractional(2, 2, {"output_size": (4, 3)}), PLANES, distinct),
    Case(
        "fractional 2d ratio", fractional(2, (3, 1), {"output_ratio": (0.6, 0.5)}), PLANES, distinct
    ),
    Case("fractional 2d one", fractional(2, 3, {"output_size": 1}), PLANES, distinct),
    Case("fractional 3d", fractional(3, 2, {"output_size": (2, 2, 4)}), SPACES, distinct),
    Case("fractional 3d ratio", fractional(3, 1, {"output_ratio": 0.7}), SPACES, distinct),
]
test_function_gradients = gradient_suite(CASES)


# -- layers of more than one input -----------------------------------------------------------------

UNPOOL = [
    ("MaxUnpool1d", (2,), (2, 3, 4), None),
    ("MaxUnpool1d", ((3,), 2, 1), (3, 4), None),
    ("MaxUnpool2d", (2,), (2, 3, 4, 3), None),
    ("MaxUnpool2d", ((3, 2), (2, 3), (1, 0)), (3, 4, 3), None),
    ("MaxUnpool2d", (2,), (2, 3, 4, 3), (9, 7)),
    ("MaxUnpool2d", (2,), (2, 3, 4, 3), (2, 3, 9, 5)),
    ("MaxUnpool3d", (2, 1), (2, 2, 3, 2, 3), None),
]


@pytest.mark.parametrize(("name", "args", "shape", "size"), UNPOOL, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unpooling(name, args, shape, size, dtype):
    ours, theirs = make(name, args, {})
    check_arguments(name)
    check_description(ours, theirs)
    check_copies(ours)
    rng = np.random.default_rng(1)
    indices = np.zeros(shape, np.int64)
    places = int(np.prod(shape[-int(name[-2]) :]))
    for plane in np.ndindex(shape[: -int(name[-2])]):
        indices[plane] = rng.permutation(places).reshape(indices[plane].shape)
    kwargs = {} if size is None else {"output_size": size}
    check_run(ours, theirs, [rng.standard_normal(shape), indices], kwargs, dtype=dtype)
    meta = mt.empty(shape, device="meta")
    found = ours(meta, mt.empty(shape, dtype=mt.int64, device="meta"), **kwargs)
    expected = theirs(torch.from_numpy(np.zeros(shape)), torch.from_numpy(indices), **kwargs)
    assert found.is_meta and tuple(found.shape) == tuple(expected.shape)


FRACTIONAL = [
    ("FractionalMaxPool2d", (3, (4, 5)), {}, IMAGE),
    ("FractionalMaxPool2d", ((2, 3),), {"output_ratio": (0.5, 0.3), "return_indices": True}, IMAGE),
    ("FractionalMaxPool2d", (2, 4, None, True), {}, LONE),
    ("FractionalMaxPool3d", (2, 2), {}, SPACE),
    ("FractionalMaxPool3d", (2,), {"output_ratio": 0.5, "return_indices": True}, (2, 4, 5, 6)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), FRACTIONAL, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fractional_pooling(name, args, kwargs, shape, dtype):
    check_arguments(name)
    n = int(name[-2])
    lead = shape[:2] if len(shape) == n + 2 else (1, shape[0])
    rng = np.random.default_rng(1)
    samples = rng.uniform(0, 1, (*lead, n)).astype(dtype)
    ours, theirs = make(name, args, {**kwargs, "_random_samples": samples})
    check_description(ours, theirs)
    check_copies(ours)
    x = rng.integers(0, 9, shape).astype(float)
    check_run(ours, theirs, [x], dtype=dtype)
    found = outputs(ours.to("meta")(mt.empty(shape, dtype=getattr(mt, dtype), device="meta")))
    expected = outputs(theirs(torch.from_numpy(x.astype(dtype))))
    assert [(t.is_meta, tuple(t.shape)) for t in found] == [
        (True, tuple(t.shape)) for t in expected
    ]


def test_fractional_windows_are_random():
    x = mt.arange(400.0).reshape(1, 20, 20)
    pool = mt.nn.FractionalMaxPool2d(2, 9)
    mt.manual_seed(0)
    first, second = pool(x), pool(x)
    assert first.tolist() != second.tolist()
    mt.manual_seed(0)
    assert pool(x).tolist() == first.tolist()
    assert first[0, -1, -1].item() == 399


def test_one_ratio_for_all_axes():
    for n in (2, 3):
        pool = getattr(mt.nn.functional, f"fractional_max_pool{n}d")
        assert pool(mt.zeros(1, *(8,) * n), 2, output_ratio=0.5).shape == (1, *(4,) * n)


def test_nan_in_a_fractional_window():
    x = np.zeros((1, 1, 5, 5))
    x[0, 0, 1, 1] = x[0, 0, 1, 2] = x[0, 0, 3, 3] = np.nan
    results = []
    for lib in (mt, torch):
        samples = lib.zeros(1, 1, 2, dtype=lib.float64)
        pool = lib.nn.functional.fractional_max_pool2d
        results.append(pool(lib.from_numpy(x), 3, 2, None, True, samples))
    for mine, other in zip(*results, strict=True):
        same(mine, other, 0)


def test_the_last_of_several_values_at_one_place_stays():
    indices = np.array([[[0, 0, 5, 1]]])
    results = [
        lib.nn.functional.max_unpool1d(lib.arange(4.0).reshape(1, 1, 4), lib.from_numpy(indices), 2)
        for lib in (mt, torch)
    ]
    same(*results, 0)


# -- errors ----------------------------------------------------------------------------------------


def test_errors_of_unpooling(lib):
    F = lib.nn.functional
    x, i = lib.zeros(1, 1, 2, 2), lib.zeros(1, 1, 2, 2, dtype=lib.int64)
    with raises(RuntimeError, "Found an invalid max index: 16 (output volumes are of size 4x4"):
        F.max_unpool2d(x, i + 16, 2)
    with raises(ValueError, 'invalid output_size "', "(dim 0 must be between 2 and 6)"):
        F.max_unpool2d(x, i, 2, output_size=(6, 4))
    with raises(ValueError, "output_size should be a sequence containing 2 or 4 elements"):
        F.max_unpool2d(x, i, 2, output_size=(4,))
    with raises(RuntimeError, "int64"):
        F.max_unpool2d(x, i.int(), 2)
    with raises(RuntimeError, "xpected shape of indices to be"):
        F.max_unpool2d(x, i[:, :, 1:], 2)
    with raises(RuntimeError, "dimensions"):
        F.max_unpool2d(x[0, 0], i[0, 0], 2)


def test_more_strides_than_axes_are_not_looked_at(lib):
    F = lib.nn.functional
    x, i = lib.ones(1, 2), lib.tensor([[0, 2]])
    assert F.max_unpool1d(x, i, 2, (2, 3), (0, 7)).tolist() == [[1.0, 0.0, 1.0, 0.0]]
    x, i = lib.ones(1, 1, 1), lib.tensor([[[3]]])
    assert F.max_unpool2d(x, i, 2, (2, 2, 5)).tolist() == [[[0.0, 0.0], [0.0, 1.0]]]
    with raises(RuntimeError, "stride"):
        F.max_unpool3d(x[None], i[None], 1, (1, 1, 1, 1))


def test_errors_of_fractional_pooling(lib):
    nn, F = lib.nn, lib.nn.functional
    with raises(ValueError, "requires specifying either an output size, or a pooling ratio"):
        nn.FractionalMaxPool2d(2)
    with raises(ValueError, "only one of output_size and output_ratio may be specified"):
        nn.FractionalMaxPool3d(2, 3, 0.5)
    with raises(ValueError, "output_ratio must be between 0 and 1 (got 1.5)"):
        nn.FractionalMaxPool2d(2, output_ratio=1.5)
    with raises(ValueError, "requires specifying either an output_size or an output_ratio"):
        F.fractional_max_pool2d(lib.zeros(1, 4, 4), 2)
    with raises(RuntimeError, "too large relative to"):
        F.fractional_max_pool2d(lib.zeros(1, 4, 4), 3, 3)
    with raises(RuntimeError, "too large relative to"):
        F.fractional_max_pool3d(lib.zeros(1, 9, 4, 9), 2, 3)
    assert F.fractional_max_pool2d(lib.zeros(1, 4, 4), 3, (0, 2)).shape == (1, 0, 2)
