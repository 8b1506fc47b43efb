# SPDX-License-Identifier: BSD-3-Clause
"""Losses against torch's: functions, gradients, modules, targets of every kind, warnings,
errors.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.gradients import Case, between, of, suite
from helpers.layers_common import check_arguments, check_copies, check_description, check_run, make
from helpers.support import raises

import modtree as mt
from modtree import nn
from modtree.nn import functional as F

torch = pytest.importorskip("torch")

REDUCTIONS = ("none", "mean", "sum")
PAIRS = [((), ()), ((5,), (5,)), ((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1), (1, 3))]
SAME = [((), ()), ((7,), (7,)), ((3, 4), (3, 4)), ((2, 0), (2, 0))]
ANY = between(-2, 2)
PROBABILITY = between(0.02, 0.98)
# With differences 0, at the bounds of the pieces, and beyond.
POINTS = (of(0, 1, -1, 2, 0.5, 3), of(0, 0, 0, 0, 0, 1))


def cases(name, shapes, sample=ANY, twice=True, mixed=True, detached=None, **options):
    """A case for each reduction; torch gives no gradient to the input number ``detached``."""

    def run(lib, r, *xs):
        xs = [x.detach() if i == detached else x for i, x in enumerate(xs)]
        return getattr(lib.nn.functional, name)(*xs, reduction=r, **options)

    label = "".join(f" {k}={v}" for k, v in options.items())
    return [
        Case(
            f"{name} {reduction}{label}",
            lambda lib, *xs, r=reduction: run(lib, r, *xs),
            shapes,
            sample,
            twice=twice,
            mixed=mixed,
        )
        for reduction in REDUCTIONS
    ]


test_gradients = suite(
    [
        *cases("mse_loss", PAIRS),
        *cases("l1_loss", PAIRS, POINTS),
        *cases("smooth_l1_loss", PAIRS),
        *cases("smooth_l1_loss", PAIRS, POINTS, beta=0.5, twice=False),
        *cases("smooth_l1_loss", PAIRS, POINTS, beta=0),
        *cases("huber_loss", PAIRS, mixed=False),
        *cases("huber_loss", PAIRS, POINTS, delta=0.5, twice=False, mixed=False),
        *cases("kl_div", SAME, (between(-3, 0), PROBABILITY), mixed=False),
        *cases("kl_div", SAME, log_target=True, mixed=False),
        *cases("binary_cross_entropy", SAME, PROBABILITY, mixed=False),
        *cases(
            "binary_cross_entropy_with_logits", SAME, (between(-4, 4), PROBABILITY), mixed=False
        ),
        *cases("poisson_nll_loss", SAME, between(0.5, 3), mixed=False),
        *cases(
            "poisson_nll_loss",
            SAME,
            (between(0.5, 3), of(1, 2, 0.5, 4)),
            log_input=False,
            full=True,
        ),
        *cases("soft_margin_loss", SAME, detached=1, mixed=False),
        *cases("gaussian_nll_loss", [((3, 4),) * 3], between(0.1, 2), mixed=False),
        *cases(
            "gaussian_nll_loss", [((3, 4), (3, 4), (3, 1))], between(0.1, 2), full=True, mixed=False
        ),
        *cases("margin_ranking_loss", [((5,),) * 3], margin=0.3),
        *cases("hinge_embedding_loss", SAME[:3], (between(-2, 2), of(1, -1)), mixed=False),
        *cases(
            "cosine_embedding_loss",
            [((4, 3), (4, 3), (4,))],
            (between(-2, 2),) * 2 + (of(1, -1),),
            mixed=False,
        ),
        *cases(
            "cosine_embedding_loss",
            [((3,), (3,), ())],
            (between(-2, 2),) * 2 + (of(-1),),
            margin=-0.9,
            mixed=False,
        ),
        *cases("triplet_margin_loss", [((4, 3),) * 3, ((4, 3), (1, 3), (4, 3)), ((3,),) * 3]),
        *cases("triplet_margin_loss", [((4, 3),) * 3], swap=True, margin=3.0),
        *cases("triplet_margin_loss", [((4, 3),) * 3], p=1, margin=3.0, twice=False),
    ]
)


@pytest.mark.parametrize("name", ["kl_div", "mse_loss", "huber_loss"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_of_what_was_broadcast(name, reduction):
    """torch cannot go backward through kl_div with a target that is broadcast: compared with the
    target written out.
    """
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((3, 4)), rng.random(4)

    def run(spread):
        a, b = mt.from_numpy(x).requires_grad_(), mt.from_numpy(y).requires_grad_()
        loss = getattr(F, name)(a, b.expand(3, 4) if spread else b, reduction=reduction)
        return [v.numpy() for v in mt.autograd.grad(loss.sum(), (a, b))]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mine, other in zip(run(False), run(True), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-12)


# -- the points where logarithms end ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_cross_entropy_of_certainty(dtype):
    x = np.array([0.0, 0.0, 1.0, 1.0, 0.5], dtype)
    y = np.array([0.0, 1.0, 0.0, 1.0, 1.0], dtype)

    def run(lib):
        leaf = lib.from_numpy(x.copy()).requires_grad_()
        loss = lib.nn.functional.binary_cross_entropy(leaf, lib.from_numpy(y), reduction="none")
        loss.sum().backward()
        return loss.detach().numpy(), leaf.grad.numpy()

    for mine, other in zip(run(mt), run(torch), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_logits_do_not_overflow():
    x = mt.tensor([1000.0, -1000.0, 1000.0], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, mt.tensor([0.0, 1.0, 1.0]), reduction="none")
    assert loss.tolist() == [1000.0, 1000.0, 0.0]
    loss.sum().backward()
    assert x.grad.tolist() == [1.0, -1.0, 0.0]


def test_kl_div_of_a_target_without_mass():
    log_p = mt.tensor([-0.5, -1.0], requires_grad=True)
    target = mt.tensor([0.0, 1.0], requires_grad=True)
    loss = F.kl_div(log_p, target, reduction="sum")
    assert loss.item() == pytest.approx(1.0)
    loss.backward()
    assert log_p.grad.tolist() == [0.0, -1.0]
    assert np.isfinite(target.grad.numpy()).all()


@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div_batchmean(log_target):
    rng = np.random.default_rng(0)
    x, y = np.log(rng.dirichlet(np.ones(4), 3)), rng.dirichlet(np.ones(4), 3)
    y = np.log(y) if log_target else y
    mine = F.kl_div(
        mt.from_numpy(x), mt.from_numpy(y), reduction="batchmean", log_target=log_target
    )
    other = torch.nn.functional.kl_div(
        torch.from_numpy(x), torch.from_numpy(y), reduction="batchmean", log_target=log_target
    )
    assert mine.item() == pytest.approx(other.item(), rel=1e-12)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights(name, reduction):
    rng = np.random.default_rng(2)
    x, y, w = rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), rng.random((2, 3))

    def run(lib):
        a, b, c = (lib.from_numpy(v.copy()).requires_grad_() for v in (x, y, w))
        loss = getattr(lib.nn.functional, name)(a, b, reduction=reduction, weight=c)
        loss.sum().backward()
        return loss.detach().numpy(), a.grad.numpy(), b.grad.numpy()

    for mine, other in zip(run(mt), run(torch), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)
    with raises(ValueError, "Weights and input must have the same size"):
        getattr(F, name)(mt.zeros(3), mt.zeros(3), weight=mt.zeros(2))


@pytest.mark.parametrize(
    "name", ["huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"]
)
def test_dtypes_that_differ_meet(name):
    x = mt.full((3,), 0.25, requires_grad=True)
    y = mt.full((3,), 0.5, dtype=mt.float64, requires_grad=True)
    loss = getattr(F, name)(x, y)
    assert loss.dtype is mt.float64
    loss.backward()
    assert x.grad.dtype is mt.float32
    assert y.grad.dtype is mt.float64


# -- classes ---------------------------------------------------------------------------------------

#: Shape of the input, shape of the target.
CLASS_SHAPES = {
    "one": ((5,), ()),
    "batch": ((6, 5), (6,)),
    "image": ((2, 5, 3, 2), (2, 3, 2)),
    "sequence": ((2, 5, 4), (2, 4)),
    "many": ((300, 5), (300,)),
    "one class": ((4, 1), (4,)),
}


def run_classes(lib, name, x, target, twice=False, **options):
    """The loss, its gradient, and with ``twice`` the gradient of that."""
    leaf = lib.from_numpy(x.copy()).requires_grad_()
    options = {
        k: lib.from_numpy(v.astype(x.dtype)) if isinstance(v, np.ndarray) else v
        for k, v in options.items()
    }
    loss = getattr(lib.nn.functional, name)(leaf, lib.from_numpy(target.copy()), **options)
    scale = lib.from_numpy(np.random.default_rng(3).random(tuple(loss.shape)).astype(x.dtype))
    (grad,) = lib.autograd.grad((loss * scale).sum(), leaf, create_graph=twice)
    found = [loss.detach().numpy(), grad.detach().numpy()]
    if twice and grad.requires_grad:
        weights = lib.from_numpy(np.random.default_rng(4).random(x.shape).astype(x.dtype))
        (second,) = lib.autograd.grad((grad * weights).sum(), leaf)
        found.append(second.numpy())
    return found


def compare_classes(name, x, target, tolerance=1e-10, twice=False, **options):
    mine = run_classes(mt, name, x, target, twice, **options)
    other = run_classes(torch, name, x, target, twice, **options)
    # A gradient that does not depend on the input has a graph in torch: of zeros.
    assert len(mine) == len(other) or not other[2].any()
    for a, b in zip(mine, other, strict=False):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 2, -1])
@pytest.mark.parametrize("smoothing", [None, 0.0, 0.1])
@pytest.mark.parametrize("shapes", CLASS_SHAPES)
def test_classes(shapes, smoothing, ignore_index, weighted, reduction):
    shape, target_shape = CLASS_SHAPES[shapes]
    classes = shape[1] if len(shape) > 1 else shape[0]
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape) * 2
    target = np.asarray(rng.integers(0, classes, target_shape))
    if target.size > 2:
        target.reshape(-1)[1] = ignore_index if ignore_index < classes else 0
    weight = {"weight": rng.random(classes) + 0.1} if weighted else {}
    options = {"reduction": reduction, "ignore_index": ignore_index, **weight}
    if smoothing is None:
        compare_classes("nll_loss", x, target, twice=shapes == "batch", **options)
        return
    options["label_smoothing"] = smoothing
    compare_classes("cross_entropy", x, target, twice=shapes in ("batch", "image"), **options)
    compare_classes("cross_entropy", x.astype("f4"), target, 3e-5, **options)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_all_targets_ignored(name):
    x, target = np.ones((2, 3)), np.array([-100, -100])
    for reduction in REDUCTIONS:
        compare_classes(name, x, target, reduction=reduction)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_what_is_ignored_may_be_infinite(name):
    x = mt.tensor([[0.0, -float("inf")], [-1.0, -2.0]], requires_grad=True)
    loss = getattr(F, name)(x, mt.tensor([1, 0]), ignore_index=1)
    loss.backward()
    assert np.isfinite(loss.item())
    assert x.grad[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_one_place_with_its_target_in_a_list(name, reduction):
    """torch cannot go backward here."""
    x, target = np.log([0.2, 0.3, 0.5]), np.array([1])
    mine = getattr(F, name)(mt.from_numpy(x), mt.from_numpy(target), reduction=reduction)
    assert tuple(mine.shape) == ()
    assert mine.item() == pytest.approx(-np.log(0.3))
    for a, b in zip(
        run_classes(mt, name, x, target, reduction=reduction),
        run_classes(mt, name, x, np.asarray(1), reduction=reduction),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_layouts_and_bytes():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5, 6)).T
    target = rng.integers(0, 5, 6)
    compare_classes("cross_entropy", x, target)
    compare_classes("cross_entropy", x, target.astype(np.uint8))
    compare_classes("nll_loss", x, target.astype(np.uint8))
    wide = rng.standard_normal((4, 3, 5)).transpose(0, 2, 1)
    compare_classes("cross_entropy", wide, rng.integers(0, 5, (4, 3)))


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_target_changed_before_backward_is_an_error(name):
    for lib in (torch, mt):
        x, target = lib.zeros(2, 3, requires_grad=True), lib.tensor([0, 1])
        loss = getattr(lib.nn.functional, name)(x * 1, target)
        target.add_(1)
        with raises(RuntimeError, "modified by an inplace operation"):
            loss.backward()


def test_large_logits():
    x = np.array([[1000.0, 0.0, -1000.0], [-1000.0, -1000.0, -1000.0]])
    compare_classes("cross_entropy", x, np.array([1, 2]), reduction="none")
    # Of numbers near 1000, float32 knows the exponents' differences to about 1e-4.
    compare_classes("cross_entropy", x.astype("f4"), np.array([1, 2]), 1e-4, reduction="none")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 4, 3)], ids=str)
def test_class_probabilities(shape, smoothing, weighted, reduction):
    rng = np.random.default_rng(6)
    x, p = rng.standard_normal(shape), rng.random(shape)
    weight = rng.random(4)

    def run(lib):
        a, b = (lib.from_numpy(v.copy()).requires_grad_() for v in (x, p))
        w = lib.from_numpy(weight) if weighted else None
        loss = lib.nn.functional.cross_entropy(
            a, b, weight=w, reduction=reduction, label_smoothing=smoothing
        )
        grads = lib.autograd.grad(loss.sum(), (a, b))
        return [loss.detach().numpy(), *(g.numpy() for g in grads)]

    for mine, other in zip(run(mt), run(torch), strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


# -- modules ---------------------------------------------------------------------------------------

RNG = np.random.default_rng(9)
X, Y, P, Q = (
    RNG.standard_normal((4, 3)),
    RNG.standard_normal((4, 3)),
    RNG.random((4, 3)),
    RNG.random((4, 3)),
)
CLASSES = np.array([0, 2, 1, 2])
SIGNS = np.array([1.0, -1.0, 1.0, -1.0])
WEIGHT = np.array([0.5, 1.0, 2.0], np.float32)

#: Arguments of the constructor, inputs.
MODULES = {
    "MSELoss": ((), {}, [X, Y]),
    "MSELoss sum": ((), {"reduction": "sum"}, [X, Y]),
    "L1Loss": ((), {"reduction": "none"}, [X, Y]),
    "SmoothL1Loss": ((), {"beta": 0.5}, [X, Y]),
    "HuberLoss": (("sum", 0.5), {}, [X, Y]),
    "SoftMarginLoss": ((), {}, [X, np.sign(Y)]),
    "CrossEntropyLoss": ((), {}, [X, CLASSES]),
    "CrossEntropyLoss all": (
        (WEIGHT,),
        {"ignore_index": 1, "reduction": "sum", "label_smoothing": 0.1},
        [X, CLASSES],
    ),
    "NLLLoss": ((), {}, [X, CLASSES]),
    "NLLLoss all": ((WEIGHT,), {"ignore_index": 0, "reduction": "none"}, [X, CLASSES]),
    "BCELoss": ((), {}, [P, Q]),
    "BCELoss weight": ((WEIGHT,), {"reduction": "sum"}, [P, Q]),
    "BCEWithLogitsLoss": ((), {}, [X, Q]),
    "BCEWithLogitsLoss all": ((WEIGHT,), {"pos_weight": WEIGHT[::-1].copy()}, [X, Q]),
    "KLDivLoss": ((), {"reduction": "batchmean"}, [X, P]),
    "KLDivLoss log": ((), {"reduction": "sum", "log_target": True}, [X, Y]),
    "GaussianNLLLoss": ((), {"full": True}, [X, Y, P]),
    "PoissonNLLLoss": ((False,), {"full": True}, [P, Q * 4]),
    "CosineEmbeddingLoss": ((0.1,), {}, [X, Y, SIGNS]),
    "MarginRankingLoss": ((0.5,), {}, [X[:, 0], Y[:, 0], SIGNS]),
    "HingeEmbeddingLoss": ((), {}, [X, np.sign(Y)]),
    "TripletMarginLoss": ((), {}, [X, Y, P]),
    "TripletMarginLoss all": ((2.0, 3.0), {"swap": True, "reduction": "none"}, [X, Y, P]),
    "TripletMarginWithDistanceLoss": ((), {"margin": 2.0, "swap": True}, [X, Y, P]),
}
module = pytest.mark.parametrize("label", MODULES)


@pytest.mark.parametrize("name", sorted({label.split()[0] for label in MODULES}))
def test_arguments(name):
    check_arguments(name)


@module
def test_description(label):
    args, kwargs, _ = MODULES[label]
    ours, theirs = make(label.split()[0], args, kwargs)
    check_description(ours, theirs)
    check_copies(ours)


@module
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_runs(label, dtype):
    args, kwargs, inputs = MODULES[label]
    if label == "SoftMarginLoss":  # torch gives its target no gradient
        inputs = [inputs[0], np.sign(inputs[1]).astype(np.int64)]
    check_run(*make(label.split()[0], args, kwargs), inputs, dtype=dtype)


def test_weights_move_with_the_module():
    loss = nn.CrossEntropyLoss(weight=mt.ones(3)).double()
    assert loss.weight.dtype is mt.float64
    assert list(loss.state_dict()) == ["weight"]


# -- warnings and errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_sizes_that_differ_warn_at_the_caller(name):
    with pytest.warns(
        UserWarning, match="Using a target size .* different to the input size"
    ) as caught:
        getattr(F, name)(mt.zeros(4, 3), mt.zeros(1, 3))
    assert caught[0].filename == __file__


def test_old_arguments_warn():
    for kwargs, reduction in (
        ({"size_average": True}, "mean"),
        ({"size_average": False}, "sum"),
        ({"reduce": False}, "none"),
        ({"reduce": True}, "mean"),
    ):
        with pytest.warns(UserWarning, match=f"please use reduction='{reduction}' instead"):
            assert nn.MSELoss(**kwargs).reduction == reduction
        with pytest.warns(UserWarning, match=f"please use reduction='{reduction}' instead"):
            loss = F.l1_loss(mt.ones(4), mt.zeros(4), **kwargs)
        assert loss.sum().item() == {"mean": 1.0, "sum": 4.0, "none": 4.0}[reduction]


def test_kl_div_mean_warns():
    with pytest.warns(UserWarning, match="'batchmean' divides only by the batch size"):
        F.kl_div(mt.zeros(2, 2), mt.ones(2, 2))


ERRORS = {
    "batch": (ValueError, "Expected input batch_size (4) to match target batch_size (3)"),
    "range": (IndexError, "Target 3 is out of bounds"),
    "dtype": (RuntimeError, "expected target dtype to be Long or Byte, but got"),
    "reduction": (ValueError, "x is not a valid value for reduction"),
    "weight": (RuntimeError, "all 3 classes or no classes but got weight tensor of shape: [2]"),
    "size": (RuntimeError, "Expected target size [2, 3], got [2]"),
    "weight dtype": (RuntimeError, "expected scalar type"),
    "list": (ValueError, "For 1D input, 1D target must have size 1, but got target size: 2"),
}


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("what", ERRORS)
def test_class_errors(name, what):
    """Of the same type as torch's, with the same text where there is a choice of words to match
    on.
    """

    def attempt(lib):
        x, t = lib.zeros(4, 3), lib.tensor([0, 1, 2, 0])
        call = getattr(lib.nn.functional, name)
        if what == "batch":
            call(x, t[:3])
        elif what == "range":
            call(x, t + 1)
        elif what == "dtype":
            call(x, t.float())
        elif what == "reduction":
            call(x, t, reduction="x")
        elif what == "weight":
            call(x, t, weight=lib.ones(2))
        elif what == "size":
            call(lib.zeros(2, 4, 3), t[:2])
        elif what == "weight dtype":
            call(x, t, weight=lib.ones(3, dtype=lib.float64))
        else:
            call(x[0], t[:2])

    kind, text = ERRORS[what]
    with raises(kind, text):
        attempt(torch)
    with raises(kind, text):
        attempt(mt)


def test_errors_of_probabilities():
    x = mt.zeros(4, 3)
    with raises(RuntimeError, "label_smoothing must be between 0.0 and 1.0. Got: 2"):
        F.cross_entropy(x, mt.zeros(4, dtype=mt.int64), label_smoothing=2.0)
    with raises(RuntimeError, "Expected floating point type for target with class probabilities"):
        F.cross_entropy(x, x.long())
    with raises(RuntimeError, "ignore_index is not supported for floating point target"):
        F.cross_entropy(x, x, ignore_index=1)
    with raises(RuntimeError, "all 3 classes or no classes"):
        F.cross_entropy(x, x, weight=mt.ones(2))
    with raises(RuntimeError, "all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(x - 1, x)
    with raises(ValueError, "Using a target size", "different to the input size"):
        F.binary_cross_entropy(x, x[:1])
    with raises(ValueError, "Target size", "must be the same as input size"):
        F.binary_cross_entropy_with_logits(x, x[:1])


def test_errors_of_distances():
    x = mt.zeros(4, 3)
    with raises(RuntimeError, "smooth_l1_loss does not support negative values for beta"):
        F.smooth_l1_loss(x, x, beta=-1.0)
    with raises(RuntimeError, "huber_loss does not support non-positive values for delta"):
        F.huber_loss(x, x, delta=0.0)
    with raises(ValueError, "margin must be greater than 0, got -1"):
        F.triplet_margin_loss(x, x, x, margin=-1)
    with raises(ValueError, "expected margin to be greater than 0, got 0 instead"):
        nn.TripletMarginLoss(margin=0)
    with raises(RuntimeError, "same number of dimensions", "negative 1D"):
        F.triplet_margin_loss(x, x, x[0])
    with raises(RuntimeError, "All input tensors should have same dimension but got sizes"):
        F.margin_ranking_loss(x, x, x[0])
    with raises(RuntimeError, "1D target tensor expects 2D input tensors"):
        F.cosine_embedding_loss(x[0], x[0], mt.ones(4))
    with raises(RuntimeError, "multi-target not supported"):
        F.cosine_embedding_loss(x, x, x)
    with raises(ValueError, "var is of incorrect size"):
        F.gaussian_nll_loss(x, x, mt.ones(3))
    with raises(ValueError, "var has negative"):
        F.gaussian_nll_loss(x, x, -mt.ones(4, 3))
    for call in (F.mse_loss, F.kl_div, F.cross_entropy):
        with raises(TypeError, "expected a modtree.Tensor, got"):
            call(np.zeros(3), x)


def test_meta():
    x, t = mt.empty(4, 3, device="meta"), mt.empty(4, dtype=mt.int64, device="meta")
    for name in (
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy_with_logits",
    ):
        assert tuple(getattr(F, name)(x, x).shape) == ()
        assert tuple(getattr(F, name)(x, x, reduction="none").shape) == (4, 3)
        assert getattr(F, name)(x, x).is_meta
    for name in ("cross_entropy", "nll_loss"):
        assert tuple(getattr(F, name)(x, t).shape) == ()
        assert tuple(getattr(F, name)(x, t, reduction="none").shape) == (4,)


@pytest.mark.parametrize("name", ["MSELoss", "NLLLoss", "SmoothL1Loss", "MultiMarginLoss"])
def test_deprecated_arguments_warn_where_the_module_is_made(name):
    with pytest.warns(UserWarning, match="size_average and reduce args") as caught:
        getattr(nn, name)(size_average=False)
    assert [w.filename for w in caught] == [__file__]
