# SPDX-License-Identifier: BSD-3-Clause
"""ctc_loss and multi_margin_loss: values and gradients are torch's."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

REDUCTIONS = ["none", "sum", "mean"]
NAMES = ["CTCLoss", "MultiMarginLoss"]


def compared(call, *arrays):
    """Value and gradient with respect to the first array."""
    results = []
    for lib in (mt, torch):
        x, *rest = (lib.from_numpy(a.copy()) for a in arrays)
        x.requires_grad_()
        out = call(lib, x, *rest)
        weight = lib.from_numpy(
            np.asarray(np.arange(1.0, out.numel() + 1)).reshape(tuple(out.shape))
        )
        (out * weight).sum().backward()
        results.append((out.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


LENGTHS = [
    ([7, 5, 6], [3, 2, 0]),
    ([7, 7, 3], [1, 3, 3]),
    ([1, 2, 7], [1, 1, 2]),
]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("used", "lengths"), LENGTHS)
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc(reduction, used, lengths, joined, blank):
    rng = np.random.default_rng(0)
    others = [c for c in range(5) if c != blank]
    labels = rng.choice(others, (3, 3))
    labels[1] = labels[1, 0]  # repetitions need a blank between
    if joined:
        labels = np.concatenate([row[:n] for row, n in zip(labels, lengths, strict=True)])

    def call(lib, x, labels):
        return lib.nn.functional.ctc_loss(
            x.log_softmax(-1),
            labels,
            lib.tensor(used),
            lib.tensor(lengths),
            blank,
            reduction,
            zero_infinity=True,
        )

    compared(call, rng.standard_normal((7, 3, 5)), labels)


def test_ctc_of_labels_that_do_not_fit():
    for lib in (mt, torch):
        lp = lib.zeros(2, 1, 3).log_softmax(-1)
        arguments = (lp, lib.tensor([[1, 1]]), lib.tensor([2]), lib.tensor([2]))
        assert lib.nn.functional.ctc_loss(*arguments).item() == float("inf")
        assert lib.nn.functional.ctc_loss(*arguments, zero_infinity=True).item() == 0


def test_ctc_of_one_sample():
    def call(lib, x, labels):
        return lib.nn.CTCLoss(blank=1, reduction="none")(
            x.log_softmax(-1), labels, lib.tensor(5), lib.tensor(2)
        )

    compared(call, np.random.default_rng(1).standard_normal((5, 4)), np.array([2, 0]))


def test_ctc_lengths():
    for lib in (mt, torch):
        lp = lib.zeros(2, 1, 3)
        with pytest.raises(RuntimeError, match="input_lengths"):
            lib.nn.functional.ctc_loss(lp, lib.tensor([[1]]), lib.tensor([3]), lib.tensor([1]))
        with pytest.raises(RuntimeError, match="must be of size batch_size"):
            lib.nn.functional.ctc_loss(lp, lib.tensor([[1]]), lib.tensor([1, 1]), lib.tensor([1]))
        with pytest.raises(RuntimeError, match="blank must be in label range"):
            lib.nn.functional.ctc_loss(lp, lib.tensor([[1]]), lib.tensor([1]), lib.tensor([1]), 3)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_multi_margin(reduction, p, weighted):
    rng = np.random.default_rng(2)

    def call(lib, x, target, weight):
        layer = lib.nn.MultiMarginLoss(p, 0.7, weight if weighted else None, reduction=reduction)
        return layer(x, target)

    target, weight = np.array([0, 3, 2]), rng.uniform(0.5, 2, 4)
    compared(call, rng.standard_normal((3, 4)), target, weight)
    compared(call, rng.standard_normal(4), np.array(2), weight)


@pytest.mark.parametrize("name", NAMES)
def test_arguments(name):
    def arguments(function):
        found = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in found if p.name != "self"]

    ours, theirs = getattr(mt.nn, name), getattr(torch.nn, name)
    assert arguments(ours.__init__) == arguments(theirs.__init__)
    assert [n for n, _ in arguments(ours.forward)] == [n for n, _ in arguments(theirs.forward)]
    assert repr(ours()) == repr(theirs()) and list(ours().state_dict()) == []


def test_wrong_power():
    for lib in (mt, torch):
        with pytest.raises(ValueError, match="only p == 1 and p == 2 supported"):
            lib.nn.MultiMarginLoss(p=3)
        with pytest.raises(ValueError, match="only p == 1 and p == 2 supported"):
            lib.nn.functional.multi_margin_loss(lib.zeros(1, 2), lib.tensor([0]), p=3)


def test_gradient_of_ctc_is_that_of_its_value():
    lp = mt.from_numpy(np.random.default_rng(4).standard_normal((4, 1, 3))).log_softmax(-1)
    lp.requires_grad_()

    def loss(lib, lp):
        lengths = lib.tensor([4]), lib.tensor([2])
        return lib.nn.functional.ctc_loss(lp, lib.tensor([[1, 2]]), *lengths)

    assert mt.autograd.gradcheck(lambda lp: loss(mt, lp), lp)
    theirs = torch.from_numpy(lp.detach().numpy().copy()).requires_grad_()
    loss(torch, theirs).backward()
    loss(mt, lp).backward()
    extra = theirs.grad.numpy() - lp.grad.numpy()
    np.testing.assert_allclose(extra, np.exp(lp.detach().numpy()) / 2, rtol=1e-9)
