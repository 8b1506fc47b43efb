# SPDX-License-Identifier: BSD-3-Clause
"""affine_grid and grid_sample: values and gradients are torch's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

MODES = list(
    itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)
    )
)


def sampled(lib, image, grid, **options):
    x, g = (lib.from_numpy(a).requires_grad_() for a in (image, grid))
    out = lib.nn.functional.grid_sample(x, g, **options)
    weight = lib.from_numpy(np.cos(np.arange(out.numel())).reshape(tuple(out.shape)))
    (out * weight).sum().backward()
    return out.detach().numpy(), x.grad.numpy(), g.grad


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        if a is None:  # places without influence: no gradient here, zeros there
            assert not b.numpy().any()
            continue
        a, b = (v if isinstance(v, np.ndarray) else v.numpy() for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("mode", "padding", "align"), MODES)
@pytest.mark.parametrize("spatial", [(4, 5), (1, 3), (2, 3, 4)], ids=str)
def test_values_and_gradients(spatial, mode, padding, align):
    if mode == "bicubic" and len(spatial) == 3:
        pytest.skip("torch has none")
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 3, *spatial))
    grid = rng.uniform(-1.9, 1.9, (2, 3, *spatial[1:], len(spatial)))
    options = {"mode": mode, "padding_mode": padding, "align_corners": align}
    assert_same(sampled(mt, image, grid, **options), sampled(torch, image, grid, **options))


@pytest.mark.filterwarnings("ignore:Since version 1.3.0:UserWarning")
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 3), (2, 1, 2, 3, 4)], ids=str)
def test_affine_grid(size, align):
    count = len(size) - 2
    theta = np.random.default_rng(1).standard_normal((2, count, count + 1))
    results = []
    for lib in (mt, torch):
        t = lib.from_numpy(theta).requires_grad_()
        grid = lib.nn.functional.affine_grid(t, size, align_corners=align)
        (grid**3).sum().backward()
        results.append((grid.detach().numpy(), t.grad.numpy()))
    assert_same(*results)


def test_transformer_is_derived_through():
    theta = np.array([[[0.9, 0.1, 0.05], [-0.2, 1.1, 0.0]]])
    image = np.random.default_rng(2).standard_normal((1, 1, 6, 6))
    slopes = []
    for lib in (mt, torch):
        t = lib.from_numpy(theta).requires_grad_()
        grid = lib.nn.functional.affine_grid(t, (1, 1, 6, 6), align_corners=False)
        out = lib.nn.functional.grid_sample(lib.from_numpy(image), grid, align_corners=False)
        out.pow(2).sum().backward()
        slopes.append(t.grad.numpy())
    np.testing.assert_allclose(*slopes, rtol=1e-9)


def test_errors():
    for lib in (mt, torch):
        functional = lib.nn.functional
        x, g = lib.zeros(1, 1, 2, 2), lib.zeros(1, 2, 2, 2)
        with pytest.raises(ValueError, match="expected mode to be"):
            functional.grid_sample(x, g, mode="cubic", align_corners=False)
        with pytest.raises(ValueError, match="expected padding_mode to be"):
            functional.grid_sample(x, g, padding_mode="circular", align_corners=False)
        with pytest.raises(RuntimeError, match="grid_sampler"):
            functional.grid_sample(x, lib.zeros(2, 2, 2, 2), align_corners=False)
        with pytest.raises(RuntimeError, match="grid_sampler"):
            functional.grid_sample(x, lib.zeros(1, 2, 2, 3), align_corners=False)
        with pytest.raises(RuntimeError, match="dtype|scalar type"):
            functional.grid_sample(x, g.double(), align_corners=False)
        with pytest.raises(ValueError, match="affine matrices"):
            functional.affine_grid(lib.zeros(1, 2, 2), (1, 1, 2, 2), align_corners=False)
