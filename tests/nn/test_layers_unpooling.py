# SPDX-License-Identifier: BSD-3-Clause
"""MaxUnpool against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, distinct
from helpers.gradients import suite as gradient_suite
from helpers.layer_checks import same
from helpers.layers_common import check_arguments, check_copies, check_description, check_run, make
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")


def unpooled(n, *args):
    """Pools and unpools, so that the indices are those of the library."""

    def function(lib, x):
        functions = lib.nn.functional
        values, indices = getattr(functions, f"max_pool{n}d")(x, *args, return_indices=True)
        unpool = getattr(functions, f"max_unpool{n}d")
        return unpool(values, indices, *args, output_size=tuple(x.shape[-n:]))

    return function


PLANES, SPACES = [((2, 3, 7, 6),), ((3, 6, 7),)], [((2, 2, 4, 5, 6),), ((2, 5, 4, 6),)]
CASES = [
    Case("max_unpool1d", unpooled(1, 3), [((2, 3, 9),)], distinct),
    Case("max_unpool2d", unpooled(2, 2), PLANES, distinct),
    Case("max_unpool2d overlapping", unpooled(2, 3, 1), PLANES, distinct),
    Case("max_unpool2d padded", unpooled(2, 3, 2, 1), PLANES, distinct),
    Case("max_unpool3d", unpooled(3, 2), SPACES, distinct),
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
