# SPDX-License-Identifier: BSD-3-Clause
"""Losses of nothing, of NaN, of targets out of bounds, of sizes and dtypes that differ."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.same import differentiated, same

import modtree as mt

pytest.importorskip("torch")

REDUCTIONS = ("none", "mean", "sum")


def floats(*values):
    return np.array(values, np.float64)


def loss(name, *arrays, **options):
    return differentiated(
        lambda lib, *xs: getattr(lib.nn.functional, name)(*xs, **options), *arrays
    )


NAN = floats(np.nan, 1, np.inf)
ONES = floats(1, 1, 1)
HALF = np.array([1.5, -2], np.float16)
WHOLE = np.array([1, 3])
BYTES = np.array([1, 3], np.uint8)
COMPLEX = np.array([1 + 2j, -1j])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "arrays", "options"),
    [
        ("l1_loss", (NAN, ONES), {}),
        ("l1_loss", (WHOLE, WHOLE[::-1].copy()), {}),
        ("l1_loss", (BYTES, BYTES), {}),
        ("l1_loss", (WHOLE > 1, WHOLE > 2), {}),
        ("l1_loss", (COMPLEX, COMPLEX[::-1].copy()), {}),
        ("mse_loss", (COMPLEX, COMPLEX), {}),
        ("mse_loss", (WHOLE, WHOLE), {}),
        ("mse_loss", (HALF, np.float32(2).reshape(())), {}),
        ("mse_loss", (np.ones((2, 3)), np.ones(2)), {}),
        ("smooth_l1_loss", (NAN, ONES), {"beta": 0.0}),
        ("smooth_l1_loss", (WHOLE, WHOLE), {}),
        ("smooth_l1_loss", (COMPLEX, COMPLEX), {}),
        ("smooth_l1_loss", (WHOLE, WHOLE), {"beta": 0.0}),
        ("huber_loss", (WHOLE, WHOLE), {}),
        ("huber_loss", (COMPLEX, COMPLEX), {}),
        ("kl_div", (floats(1, 2, 3), floats(-1, 2, -np.inf)), {}),
        ("kl_div", (floats(1, 2), WHOLE), {}),
        ("kl_div", (WHOLE, floats(1, 2)), {"log_target": True}),
        ("kl_div", (COMPLEX, COMPLEX), {"log_target": True}),
        ("binary_cross_entropy", (floats(0.2, 0.4), floats(-0.1, 0.5)), {}),
        ("binary_cross_entropy", (floats(0.2, 0.4), floats(0.1, 1.5)), {}),
        ("binary_cross_entropy", (floats(0, 1), floats(0.5, 0.5)), {}),
        ("binary_cross_entropy_with_logits", (WHOLE, floats(0.5, 1)), {}),
        ("multi_margin_loss", (floats(0.5, 0.5, 2), np.array([1])), {}),
        ("multi_margin_loss", (floats(1, 2, 0), np.array(1)), {"margin": -1.0}),
        ("multi_margin_loss", (WHOLE, np.array(1)), {}),
        ("multi_margin_loss", (np.zeros((2, 0)), np.array([1, 0])), {}),
    ],
)
def test_pairs(name, arrays, options, reduction):
    same(loss(name, *arrays, reduction=reduction, **options))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
@pytest.mark.parametrize(
    ("values", "weight"),
    [(COMPLEX, COMPLEX), (WHOLE, floats(2, 1)), (WHOLE, floats(2)), (floats(1, 2), floats(0, 3))],
)
def test_weighted(name, values, weight, reduction):
    def program(lib, x, w):
        return getattr(lib.nn.functional, name)(x, x * 2, weight=w, reduction=reduction)

    same(differentiated(program, values, weight.astype(values.dtype)))


SIZES = [
    ((), (1,)),
    ((2, 3), (1, 3)),
    ((2, 3), (1, 1)),
    ((2, 3), (2, 1)),
    ((2, 3, 4), (1, 1, 4)),
    ((2, 3), (3,)),
    ((3,), ()),
]


@pytest.mark.parametrize(("size", "variances"), SIZES)
def test_variances_of_some_sizes(size, variances):
    same(loss("gaussian_nll_loss", np.ones(size), np.zeros(size), np.full(variances, 2.0)))


@pytest.mark.parametrize(
    "var", [floats(np.inf, 0, 2), np.array([1, 2, 3]), floats(1, -1, 1), 2.0, -1.0]
)
def test_variances(var):
    for x in (ONES, np.array([1, 2, 3])):
        same(loss("gaussian_nll_loss", x, ONES, var))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize(
    ("size", "target", "options"),
    [
        ((0, 3), np.zeros(0, np.int64), {}),
        ((2, 0), np.array([0, 1]), {}),
        ((2, 0), np.array([1, 1]), {"ignore_index": 1}),
        ((0, 0), np.zeros(0, np.int64), {}),
        ((0,), np.array(0), {}),
        ((2, 0, 0), np.zeros((2, 0), np.int64), {}),
        ((2, 3, 4), np.ones((2, 4), np.uint8), {}),
        ((2, 3), np.array([2, 1], np.uint8), {}),
    ],
)
def test_classes(name, size, target, options, reduction):
    x = np.arange(np.prod(size, dtype=int)).reshape(size) / 7
    same(loss(name, x, target, reduction=reduction, **options))


def test_weights_of_0_are_no_targets_that_are_ignored():
    def program(lib, x, target, weight):
        weight = weight.detach()
        return [
            lib.nn.functional.nll_loss(x, target, weight, reduction=r) for r in ("none", "mean")
        ]

    same(differentiated(program, np.array([[-1.0], [-np.inf]]), np.array([0, 0]), floats(0)))


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_probabilities_of_no_classes(smoothing):
    for size in ((2, 0), (0,), (0, 3)):
        x = np.zeros(size)
        same(loss("cross_entropy", x, x, label_smoothing=smoothing, reduction="sum"))
    target = np.array([1], np.uint8)
    same(loss("cross_entropy", np.ones((1, 3)), target, label_smoothing=smoothing))


def test_cross_entropy_of_a_scalar():
    same(loss("cross_entropy", np.array(1.0), np.array(0)))


def test_poisson_nll_of_a_target_of_0_has_a_gradient():
    input, target = mt.ones(1), mt.zeros(1, requires_grad=True)
    mt.nn.functional.poisson_nll_loss(input, target, full=True).backward()
    assert np.isfinite(target.grad.numpy()).all()


@pytest.mark.parametrize("variance", [1, True, 1.0, -1.0])
def test_a_number_as_variance_is_a_float(variance):
    same(lambda lib: lib.nn.functional.gaussian_nll_loss(lib.ones(2), lib.ones(2), variance))


@pytest.mark.parametrize("margin", [0, 2, 2.7, True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins_are_floats(margin, dtype, reduction):
    x, y, sign = (np.array([v], dtype) for v in (3, 4, 1))
    options = {"margin": margin, "reduction": reduction}
    same(loss("margin_ranking_loss", x, y, sign, **options))
    same(loss("hinge_embedding_loss", x, sign, **options))
    if dtype == np.float32:
        same(loss("cosine_embedding_loss", x[None], y[None], sign, **options))
        same(loss("multi_margin_loss", np.ones((1, 2)), np.array([1]), **options))


def test_the_bound_of_cosines_is_not_seen_by_gradients():
    x, y = floats(0.1, 0.2), floats(3, -1)
    same(loss("cosine_similarity", x, y, dim=0, eps=3.25))
    same(loss("cosine_similarity", floats(0, 0), y, dim=0))


def test_complex_targets_are_refused():
    with pytest.raises(NotImplementedError):
        mt.nn.functional.binary_cross_entropy_with_logits(mt.ones(2), mt.ones(2) * 1j)


def test_soft_margin_loss_does_not_overflow():
    x = mt.tensor([200.0], requires_grad=True)
    value = mt.nn.functional.soft_margin_loss(x, mt.tensor([-1.0]))
    value.backward()
    assert value.item() == 200 and x.grad.item() == 1


@pytest.mark.parametrize(
    "line",
    [
        "f.multi_margin_loss(x, m.tensor([0], dtype=m.int32))",
        "f.multi_margin_loss(x, m.tensor([0]), weight=m.ones(3, dtype=m.int64))",
        "f.multi_margin_loss(x.half(), m.tensor([-1]))",
        "f.multi_margin_loss(x.float(), m.tensor([0]), margin=1e300)",
        "f.soft_margin_loss(x, x.float())",
        "f.soft_margin_loss(x.float(), x)",
        "f.soft_margin_loss(x, m.ones(3, dtype=m.int8))",
        "f.soft_margin_loss(x[0], x)",
        "f.soft_margin_loss(x.to(m.complex128), x)",
        "f.soft_margin_loss(x.long(), x)",
        "f.hinge_embedding_loss(x.long(), m.ones(1, 3).long(), 2.5)",
        "f.hinge_embedding_loss(x.to(m.int8), m.ones(1, 3).long(), 300)",
        "f.hinge_embedding_loss(x.to(m.int8), m.ones(1, 3).long(), float('inf'))",
        "f.hinge_embedding_loss(x.float(), m.ones(1, 3), 1e300)",
        "f.hinge_embedding_loss(x, m.ones(1, 3), True)",
        "f.huber_loss(x, x, delta=float('nan'))",
        "f.smooth_l1_loss(x, x, beta=float('nan'))",
        "f.smooth_l1_loss(x > 0, x > 1, beta=0)",
        "f.l1_loss(x, x.T, weight=x)",
        "f.mse_loss(x, x.T, weight=x.expand(3, 3))",
        "f.gaussian_nll_loss(x, x, m.ones(1, 3).long(), eps=3)",
        "f.gaussian_nll_loss(x, x, m.ones(1, 3).long())",
        "f.poisson_nll_loss(x.long(), x.long(), False, eps=3)",
        "f.poisson_nll_loss(x[0, 0].half(), m.tensor([1, 2]), False, True)",
        "f.triplet_margin_loss(x, x, x.long(), margin=2**70)",
        "f.triplet_margin_loss(x.long(), x.long(), x.long(), eps=2)",
        "f.cross_entropy(x, x, label_smoothing=-1.5)",
        "f.cross_entropy(x, x, label_smoothing=1.5)",
        "f.cross_entropy(x, m.tensor([1]), label_smoothing=-1.5)",
        "f.cross_entropy(x, m.tensor([1]), label_smoothing=2)",
        "f.cross_entropy(x[0, 0], x[0, 0], ignore_index=0)",
        "f.cross_entropy(x[0], m.tensor([1, 2, 3], dtype=m.int8))",
        "f.nll_loss(x[0], m.tensor([1, 2, 3], dtype=m.int8))",
        "f.nll_loss(x[0], m.tensor([1, 2, 3]))",
        "f.binary_cross_entropy_with_logits(x, x > 0)",
        "f.binary_cross_entropy_with_logits(x.float(), x.float(), m.ones(3).long())",
        "f.binary_cross_entropy_with_logits(x.float(), x.float(), pos_weight=m.ones(3).long())",
        "f.ctc_loss(x.long(), m.tensor([1]), m.tensor([1]), m.tensor([1]))",
        "f.ctc_loss(x[0], m.tensor([1]), m.tensor([1]), m.tensor([1]))",
        "f.l1_loss(x, x, reduce=m.tensor(False))",
    ],
)
def test_arguments_and_what_is_refused(line):
    x = np.array([[0.5, -1.5, 2]])
    same(lambda lib: eval(line, {"m": lib, "f": lib.nn.functional, "x": lib.from_numpy(x)}))
